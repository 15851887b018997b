"""The stages of a compilation, and the insertion points for passes of plugins and users.

The values of :class:`Stage` are public: progress reports, folders of dumped modules and the key ``passes`` of request
files use these names.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from types import MappingProxyType

from byoc_core.ir import IRModule

__all__ = ["HOOKS", "INSERTION_POINTS", "ModulePass", "Stage"]

ModulePass = Callable[[IRModule], IRModule]
"""A pass, or a plain function from module to module."""


class Stage(StrEnum):
    """The stages of a compilation, in order. ``prepare`` ends with the passes of ``before_partition``."""

    PREPARE = "prepare"
    BEFORE_PARTITION = "before_partition"
    PARTITION = "partition"
    AFTER_PARTITION = "after_partition"
    PARTITION_HOST = "partition_host"
    LAYOUTS = "layouts"
    PEEL = "peel"
    COMPILE = "compile"
    AFTER_CODEGEN = "after_codegen"
    LOWER = "lower"


INSERTION_POINTS = (Stage.BEFORE_PARTITION, Stage.AFTER_PARTITION, Stage.AFTER_CODEGEN)
"""The stages with passes of plugins, in the order of backends, followed by passes of the user.

- ``before_partition``: after the core's own passes. Every op is still in the function written by the user.
- ``after_partition``: between partition and codegen. Each region claimed by a backend is a function annotated with
  ``Codegen`` and ``global_symbol``. Ops outside these functions go to the host afterwards.
- ``after_codegen``: regions are calls of external symbols, with the compiled modules attached to the module.
"""

HOOKS = MappingProxyType(
    {
        Stage.BEFORE_PARTITION: "byoc_prepare",
        Stage.AFTER_PARTITION: "byoc_after_partition",
        Stage.AFTER_CODEGEN: "byoc_after_codegen",
    }
)
"""The plugin's hook at each insertion point."""
