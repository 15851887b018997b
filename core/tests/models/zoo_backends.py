"""The backends for tests of the zoo's networks."""

from __future__ import annotations

import byoc_core
from byoc_core.backend import BackendHandle
from byoc_core.backend import backends as installed_backends

__all__ = ["HOST", "dynamic_backends"]

HOST = "host"


def dynamic_backends() -> list[str]:
    """Return the installed backends for networks, with symbolic sizes, and able to compile here; and the host.

    A backend that takes only its own ops takes nothing of a network.
    """
    handles = map(installed_backends().get, byoc_core.backends.names())
    return [
        handle.name
        for handle in handles
        if handle.info().dynamic_shapes and handle.compile_status().ok and not _takes_own_ops_only(handle)
    ]


def _takes_own_ops_only(handle: BackendHandle) -> bool:
    module = byoc_core.script.parse("def main(x: R.Tensor((2,))):\n    y = R.add(x, x)\n    return y")
    share = byoc_core.explain(module, [handle.name]).report_data["offloaded_share"]
    return bool(handle.ops()) and share == 0
