"""The lowering of pairwise coupling to the C in the folder ``c``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from byoc_core.backend.hooks import LoweringBuilder
from byoc_core.ir import Binding, TensorType, tensor

__all__ = ["can_lower_coupling", "lower_coupling"]

_C_TYPES = {"float32": "float", "float64": "double"}
"""The supported dtypes, and the elements' types in C."""


def can_lower_coupling(binding: Binding) -> bool:
    """Return whether an op is pairwise coupling on float32 or float64."""
    if binding.op.name != "mlops.couple_probabilities":
        return False
    pairs = binding.operands[0].type
    return isinstance(pairs, TensorType) and pairs.dtype in _C_TYPES


def lower_coupling(binding: Binding, builder: LoweringBuilder) -> None:
    """Add the call of a coupling."""
    pairs, out = builder.buffer(binding.operands[0]), builder.buffer(binding.result)
    (count,) = binding.context().ints("num_classes")
    prefix = f"byoc_mlops_coupling_{pairs.dtype}_{count}"
    builder.include("<math.h>")
    text = _template()
    for word, replacement in (("COUNT", str(count)), ("REAL", _C_TYPES[pairs.dtype]), ("COUPLING", prefix)):
        text = text.replace(word, replacement)
    builder.add_source(text)
    scratch = builder.allocate(tensor((count * (count + 2),), "float64"), "scratch")
    builder.call_extern(f"{prefix}_run", pairs, scratch.written(), out.written(), pairs.shape[0])


@cache
def _template() -> str:
    return (files("byoc_mlops") / "c" / "coupling.c").read_text("utf-8")
