"""Cumulative ops: each element combined with all preceding elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray, native_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import axis_cases
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORM, SUM, Rounding
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, resolve_axis
from byoc_core.opset.types import Type

__all__ = ["OPS"]


def _cumulative(ufunc: Any, neutral: int) -> NumpyKernel:
    """Return the kernel accumulating elements along an axis by a numpy ufunc."""

    def kernel(x: NDArray, *, axis: int, exclusive: bool, reverse: bool) -> NDArray:
        wide = x.astype(native_dtype(x.dtype), copy=False)
        walked = np.flip(wide, axis) if reverse else wide
        total = np.asarray(ufunc.accumulate(walked, axis=axis, dtype=wide.dtype))
        if exclusive:
            edge = np.full_like(np.take(total, np.arange(min(total.shape[axis], 1)), axis=axis), neutral)
            leading = np.take(total, np.arange(max(total.shape[axis] - 1, 0)), axis=axis)
            total = np.concatenate((edge, leading), axis=axis)
        return (np.flip(total, axis) if reverse else total).astype(x.dtype, copy=False)

    return NumpyKernel(kernel)


def _infer_cumulative(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, NUMBER_KINDS)
    resolve_axis(context, context.attrs["axis"], len(context.shape(0)))
    return (type_,)


def _flops(context: OpContext) -> Dim:
    return context.elements()


def _cumulative_op(name: str, doc: str, kernel: NumpyKernel, rounding: Rounding) -> OpDef:
    return OpDef(
        name,
        (OperandSpec("x"),),
        _infer_cumulative,
        attrs=(
            AttrSpec("axis", AttrKind.INT, doc="The axis of the accumulation."),
            AttrSpec(
                "exclusive",
                AttrKind.BOOL,
                False,
                doc="Whether each result leaves out the element at the same position.",
            ),
            AttrSpec("reverse", AttrKind.BOOL, False, doc="Whether the accumulation begins at the end of the axis."),
        ),
        flops=_flops,
        kernel=kernel,
        rounding=rounding,
        cases=axis_cases,
        doc=f"{doc}\n\nShapes: any but rank 0; the result has the shape and dtype of ``x``.",
    )


OPS: tuple[OpDef, ...] = (
    _cumulative_op(
        "cumsum",
        "Return the cumulative sum along an axis; integers wrap around.",
        _cumulative(np.add, 0),
        SUM,
    ),
    _cumulative_op(
        "cumprod",
        "Return the cumulative product along an axis; integers wrap around.",
        _cumulative(np.multiply, 1),
        NORM,
    ),
)
"""The family's ops."""
