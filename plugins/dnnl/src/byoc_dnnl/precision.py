"""What the precision that was asked for means for ops: which ones read and hand on values that are stored narrower."""

from __future__ import annotations

from typing import Literal

from byoc_dnnl.capi import Isa

__all__ = ["PASSING", "READING_NARROW", "Precision", "lacks", "multiplies_bytes"]

Precision = Literal["float32", "bfloat16"]

_VIEWS = frozenset({"expand_dims", "permute_dims", "reshape", "squeeze"})

PASSING = _VIEWS | {
    *("add", "divide", "maximum", "minimum", "multiply", "nn.bias_add", "subtract"),
    *("abs", "clip", "negative", "nn.gelu", "nn.hard_sigmoid", "nn.hard_swish", "nn.leaky_relu", "nn.mish"),
    *("nn.relu", "nn.swish", "round", "sigmoid", "sqrt", "tanh"),
}
"""Ops whose result is stored as their first operand is; most of them are computed with what comes before them."""

READING_NARROW = PASSING | {
    *("concat", "matmul", "mean", "nn.batch_norm", "nn.dense", "sum"),
    *(f"nn.conv{rank}d" for rank in (1, 2, 3)),
    *(f"nn.{kind}_pool{rank}d" for kind in ("avg", "max") for rank in (1, 2, 3)),
}
"""Ops that lose nothing by reading narrow values but the rounding itself.

Not those whose result depends on small differences of large numbers (softmax, layer normalisation): they read float32,
and give what others read.
"""


def lacks(isa: int, dtype: str) -> bool:
    """Whether oneDNN, limited to these instructions, has to compute on a float dtype by converting it in software."""
    needed = {"bfloat16": Isa.AVX512_CORE_BF16, "float16": Isa.AVX512_CORE_FP16}.get(dtype, Isa.DEFAULT)
    return isa & needed != needed


def multiplies_bytes(isa: int) -> bool:
    """Whether oneDNN, limited to these instructions, sums products of bytes in 32 bits; in 16 bits they overflow."""
    return any(isa & needed == needed for needed in (Isa.AVX512_CORE_VNNI, Isa.AVX2_VNNI))
