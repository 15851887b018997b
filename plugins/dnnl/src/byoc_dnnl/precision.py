"""The effect of the requested precision on ops: ops able to read and pass on values stored narrower.

The planner stores a result narrower for the readers listed here. Names of precisions appear in options and payloads.
"""

from __future__ import annotations

from typing import Literal

from byoc_dnnl.capi import Isa

__all__ = ["PASSING", "READING_NARROW", "Precision", "lacks_instructions", "multiplies_bytes"]

Precision = Literal["float32", "bfloat16"]

_VIEWS = frozenset({"expand_dims", "permute_dims", "reshape", "squeeze"})

PASSING = _VIEWS | {
    *("add", "divide", "maximum", "minimum", "multiply", "nn.bias_add", "subtract"),
    *("abs", "clip", "negative", "nn.gelu", "nn.hard_sigmoid", "nn.hard_swish", "nn.leaky_relu", "nn.mish"),
    *("nn.relu", "nn.swish", "round", "sigmoid", "sqrt", "tanh"),
}
"""Ops whose result is stored with the dtype of the first operand; most are computed together with the op before."""

READING_NARROW = PASSING | {
    *("concat", "matmul", "mean", "nn.batch_norm", "nn.dense", "sum"),
    *(f"nn.conv{rank}d" for rank in (1, 2, 3)),
    *(f"nn.{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)),
}
"""Ops losing nothing but the rounding itself by reading narrow values.

Excluded are ops with results depending on small differences of large numbers (softmax, layer normalisation): such ops
read float32, and write the dtype read by others.
"""


def lacks_instructions(isa: int, dtype: str) -> bool:
    """Return whether oneDNN, limited to these instructions, has to convert a float dtype in software."""
    needed = {"bfloat16": Isa.AVX512_CORE_BF16, "float16": Isa.AVX512_CORE_FP16}.get(dtype, Isa.DEFAULT)
    return isa & needed != needed


def multiplies_bytes(isa: int) -> bool:
    """Return whether oneDNN, limited to these instructions, sums products of bytes in 32 bits; 16 bits overflow."""
    return any(isa & needed == needed for needed in (Isa.AVX512_CORE_VNNI, Isa.AVX2_VNNI))
