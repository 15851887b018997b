"""The run half of the C-source kit: modules of generated C, their saved form, and the libraries of this process.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.lazy_names import lazy_names

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


__getattr__ = lazy_names(__name__, _HOMES)
