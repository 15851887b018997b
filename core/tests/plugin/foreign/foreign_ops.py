"""The ops of a third-party package, in a file read by both halves."""

from __future__ import annotations

import math

import numpy as np
from byoc_core.opset import (
    OnnxSpelling,
    OpDef,
    OperandSpec,
    Rounding,
    Rule,
    TensorType,
    Trait,
    TypeContext,
    example,
    no_flops,
    unary_op,
)

__all__ = ["OPS"]


def _flattened(context: TypeContext) -> tuple[TensorType]:
    first, *others = context.shape(0)
    return (TensorType((first, math.prod(others)), context.tensor(0).dtype),)


OPS = (
    unary_op(
        "foreign.log1p",
        "Return ``log(1 + x)``: NaN below -1.",
        np.log1p,
        rounding=Rounding(Rule.ULP, 2.0),
        onnx=OnnxSpelling("Log1p", domain="foreign"),
    ),
    OpDef(
        "foreign.flatten2",
        (OperandSpec("x"),),
        _flattened,
        traits=frozenset({Trait.PURE, Trait.RESHAPING}),
        flops=no_flops,
        kernel=lambda x: x.reshape(len(x), -1),
        cases=lambda: (example((2, 3, 4)), example((2, 3))),
        onnx=OnnxSpelling("Flatten2", domain="foreign"),
        doc="Return ``x`` with all axes but the first as one.\n\nShapes: ``(N, ...) -> (N, D)``.",
    ),
)
