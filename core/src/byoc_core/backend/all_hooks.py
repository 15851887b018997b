"""All hooks of byoc as data, for all entry-point groups."""

from __future__ import annotations

from byoc_core.backend import hooks as backend_hooks
from byoc_core.plugin import BACKENDS_GROUP, IMPORTERS_GROUP, RUNTIMES_GROUP
from byoc_core.plugin.specification import HookSpec, read_hook_specs
from byoc_core.runtime import hooks as runtime_hooks

__all__ = ["hook_specs"]


def hook_specs() -> tuple[HookSpec, ...]:
    """Return all hooks: of the groups ``byoc.backends``, ``byoc.runtimes`` and ``byoc.importers``, in this order.

    The pages of the documentation are generated from the result. Tools for writing or checking plugins may use the
    result too::

        for hook in byoc_core.backend.hook_specs():
            print(hook.group, hook.signature, "required" if hook.required else "optional", f"since {hook.since}")
    """
    from byoc_core.frontend import hooks as importer_hooks

    return (
        *read_hook_specs(backend_hooks, BACKENDS_GROUP),
        *read_hook_specs(runtime_hooks, RUNTIMES_GROUP),
        *read_hook_specs(importer_hooks, IMPORTERS_GROUP),
    )
