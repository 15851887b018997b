"""The drawings of the pages, by file name; `docs.generate` writes the drawings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from docs.drawings.atoms import draw_atoms
from docs.drawings.call_list import draw_call_list
from docs.drawings.forest import draw_forest
from docs.drawings.memory import draw_memory
from docs.drawings.module_life import draw_module_life
from docs.drawings.partition import draw_partition
from docs.drawings.road import draw_road

__all__ = ["DRAWINGS"]

DRAWINGS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "atoms.svg": draw_atoms,
        "call-list.svg": draw_call_list,
        "forest.svg": draw_forest,
        "memory.svg": draw_memory,
        "module-life.svg": draw_module_life,
        "partition.svg": draw_partition,
        "road.svg": draw_road,
    }
)
