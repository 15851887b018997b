"""Detection of plugins changing frozen IR in place, before the change looks like a fault of byoc.

The parts of a module are compared by identity (:mod:`byoc_core.ir.snapshot`); other parts may change unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from byoc_core.backend import BackendHandle
from byoc_core.errors import PluginError
from byoc_core.ir import IRModule
from byoc_core.ir.snapshot import Snapshot

__all__ = ["keep_frozen"]


@contextmanager
def keep_frozen(module: IRModule, handles: Sequence[BackendHandle], hook: str = "") -> Iterator[None]:
    """Check that hooks of these backends leave a module unchanged.

    Args:
        module: the module shown to the hooks.
        handles: the backends of the running hooks.
        hook: the running hook; empty if several hooks run.

    Raises:
        PluginError: a part of the module was changed; any other error becomes the cause. This is
            no refusal of the backend, because other backends would get the changed module.
    """
    snapshot = Snapshot(module)
    try:
        yield
    except Exception as error:
        if not snapshot.is_current():
            raise _blame(handles, hook) from error
        raise
    if not snapshot.is_current():
        raise _blame(handles, hook)


def _blame(handles: Sequence[BackendHandle], hook: str) -> PluginError:
    labels = [handle.where(hook) if hook else handle.record.label for handle in handles]
    names = ", ".join(handle.record.distribution or handle.name for handle in handles)
    return PluginError(
        " or ".join(labels),
        "changed a module in place",
        hint=f"IR is frozen: a hook must return new objects. This is a fault of {names}, not of byoc-core.",
    )
