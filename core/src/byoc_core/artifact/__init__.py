"""Artifacts: executables as files, carrying a model to a machine without a compiler.

Loading and running an artifact import nothing of the compile side, and reports only on request. Names are therefore
imported when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.artifact.adapters import Adapter, load_adapter
    from byoc_core.artifact.executable import Executable
    from byoc_core.artifact.inspection import InspectResult, inspect, verify
    from byoc_core.artifact.library import load_module
    from byoc_core.artifact.loading import load
    from byoc_core.artifact.memory_need import MemoryNeed
    from byoc_core.artifact.sharing import join_weights, share_weights
    from byoc_core.artifact.swapping import list_weights, merge_adapters, swap_weights
    from byoc_core.artifact.tensor_files import read_tensors
    from byoc_core.artifact.trusted import is_trusted, trust

__all__ = [
    "Adapter",
    "Executable",
    "InspectResult",
    "MemoryNeed",
    "inspect",
    "is_trusted",
    "join_weights",
    "list_weights",
    "load",
    "load_adapter",
    "load_module",
    "merge_adapters",
    "read_tensors",
    "share_weights",
    "swap_weights",
    "trust",
    "verify",
]

_HOMES = {
    "Adapter": "adapters",
    "Executable": "executable",
    "InspectResult": "inspection",
    "MemoryNeed": "memory_need",
    "inspect": "inspection",
    "is_trusted": "trusted",
    "join_weights": "sharing",
    "list_weights": "swapping",
    "load": "loading",
    "load_adapter": "adapters",
    "load_module": "library",
    "merge_adapters": "swapping",
    "read_tensors": "tensor_files",
    "share_weights": "sharing",
    "swap_weights": "swapping",
    "trust": "trusted",
    "verify": "inspection",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
