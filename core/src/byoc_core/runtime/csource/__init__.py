"""The run half of the C-source kit: modules of generated C, their saved form, and the libraries of this process.

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.runtime.csource.library_pool import CONSTANT_TABLE
    from byoc_core.runtime.csource.module import CSourceModule

__all__ = [
    "CONSTANT_TABLE",
    "CSourceModule",
]

_HOMES = {
    "library_pool": ("CONSTANT_TABLE",),
    "module": ("CSourceModule",),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
