"""The compile side of backends: hook specifications, exchanged types, and the registry.

Authors read :mod:`byoc_core.backend.hooks`. The names below are loaded on first use. Importing a light module therefore
does not import pluggy and the registry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.backend.all_hooks import hook_specs
    from byoc_core.backend.axis_orders import AxisOrders
    from byoc_core.backend.handle import BackendHandle
    from byoc_core.backend.info import (
        BackendInfo,
        CodegenResult,
        CompileContext,
        Estimate,
        Rejection,
        Status,
        Support,
        coarsest_roundoff,
    )
    from byoc_core.backend.kernel_report import KernelReport, SharedLoop
    from byoc_core.backend.own_ops import ops_with
    from byoc_core.backend.registry import Backends, backends

__all__ = [
    "AxisOrders",
    "BackendHandle",
    "BackendInfo",
    "Backends",
    "CodegenResult",
    "CompileContext",
    "Estimate",
    "KernelReport",
    "Rejection",
    "SharedLoop",
    "Status",
    "Support",
    "backends",
    "coarsest_roundoff",
    "hook_specs",
    "ops_with",
]

_HOMES = {
    "AxisOrders": "byoc_core.backend.axis_orders",
    "BackendHandle": "byoc_core.backend.handle",
    "Backends": "byoc_core.backend.registry",
    "KernelReport": "byoc_core.backend.kernel_report",
    "SharedLoop": "byoc_core.backend.kernel_report",
    "backends": "byoc_core.backend.registry",
    "hook_specs": "byoc_core.backend.all_hooks",
    "ops_with": "byoc_core.backend.own_ops",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "byoc_core.backend.info")), name)
