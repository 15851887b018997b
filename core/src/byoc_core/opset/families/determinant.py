"""The determinant of square matrices."""

from __future__ import annotations

import numpy as np

from byoc_core.dims import Dim
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORM
from byoc_core.opset.type_rules import FLOAT_KINDS, require_equal, require_kind
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]


def _det(x: NDArray) -> NDArray:
    """Return the determinants: products of the diagonals of the triangular factors."""
    return np.asarray(np.linalg.det(x))


def _infer_det(context: TypeContext) -> tuple[Type, ...]:
    type_, shape = require_kind(context, 0, FLOAT_KINDS), context.shape(0)
    if len(shape) < 2:
        raise context.error("is no matrix", operand=0, got=f"rank {len(shape)}", expected="rank 2 or more")
    require_equal(context, 0, len(shape) - 1, shape[-2], "as the axis before: square matrices")
    return (TensorType(shape[:-2], type_.dtype),)


def _det_flops(context: OpContext) -> Dim:
    """Return the operations of the elimination, two thirds of the cube of the size of a matrix."""
    shape = context.operand_shape()
    return (context.operand_elements(0) * shape[-1] * 2) // 3 if shape else 0


OPS: tuple[OpDef, ...] = (
    OpDef(
        "det",
        (OperandSpec("x"),),
        _infer_det,
        flops=_det_flops,
        kernel=NumpyKernel(_det, widens=True),
        rounding=NORM,
        cases=lambda: (example((3, 3)), example((2, 5, 4, 4))),
        doc="Return the determinants of square matrices; 1 of matrices without elements.\n\n"
        "Shapes: ``(..., M, M)`` to ``(...)``.",
    ),
)
"""The family's ops."""
