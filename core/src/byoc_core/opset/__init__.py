"""What ops are, and which ops there are: data that the compile side and the run side read.

Names are imported when they are first used: a process that runs an artifact needs few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.opset.contexts import OpContext
    from byoc_core.opset.families import KERNELS, find_op
    from byoc_core.opset.opdef import OpDef
    from byoc_core.opset.rounding import Rounding, Rule
    from byoc_core.opset.types import TensorType
    from byoc_core.opset.value_bounds import LARGEST, ValueFacts

__all__ = ["KERNELS", "LARGEST", "OpContext", "OpDef", "Rounding", "Rule", "TensorType", "ValueFacts", "find_op"]

_HOMES = {
    "contexts": ("OpContext",),
    "families": ("KERNELS", "find_op"),
    "opdef": ("OpDef",),
    "rounding": ("Rounding", "Rule"),
    "types": ("TensorType",),
    "value_bounds": ("LARGEST", "ValueFacts"),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
