"""Ops ordering elements: the largest or smallest, sorting, and the indices of the sorted order.

Lower index first among equal elements. A NaN counts as the largest element, as in numpy. In ONNX Runtime the place of a
NaN depends on the elements around the NaN, so no rule could follow ONNX Runtime.
"""

from __future__ import annotations

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray, native_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import axis_cases, example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import EXACT
from byoc_core.opset.type_rules import NUMBER_KINDS, require_kind, resolve_axis
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]


def _argsort(x: NDArray, *, axis: int, descending: bool) -> NDArray:
    """Return the indices (int64) of the sorted order of ``x`` along an axis; equal elements keep their order."""
    keys = x.astype(native_dtype(x.dtype), copy=False)  # other types sort NaN to arbitrary positions
    if not descending:
        return np.argsort(keys, axis=axis, kind="stable").astype(np.int64, copy=False)
    # A stable order of the mirrored axis, mirrored again, keeps the order of equal elements.
    mirrored = np.argsort(np.flip(keys, axis), axis=axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(mirrored, axis)).astype(np.int64, copy=False)


def _sort(x: NDArray, *, axis: int, descending: bool) -> NDArray:
    """Return ``x`` sorted along an axis; equal elements (the zeros of both signs too) keep their order."""
    return np.asarray(np.take_along_axis(x, _argsort(x, axis=axis, descending=descending), axis))


def _topk(
    x: NDArray,
    *,
    k: int,
    axis: int,
    largest: bool,
    sorted: bool,  # noqa: A002 - the op's attribute name
) -> tuple[NDArray, NDArray]:
    """Return the ``k`` largest or smallest elements along an axis, and their indices (int64).

    Among equal elements, lower indices are taken first. ``sorted`` results begin with the extreme element; other
    results are in the order of their indices.

    Raises:
        ExecutionError: the axis has fewer than ``k`` elements.
    """
    size = x.shape[axis]
    if not 0 <= k <= size:
        raise ExecutionError("op `topk`", "attribute `k` is out of range for the axis", got=k, expected=f"0 to {size}")
    order = _argsort(x, axis=axis, descending=largest)
    indices = np.take(order, np.arange(k), axis=axis)
    if not sorted:
        indices = np.sort(indices, axis=axis)
    return np.asarray(np.take_along_axis(x, indices, axis)), indices


def _infer_topk(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, NUMBER_KINDS)
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    k: Dim = context.attrs["k"]
    missing = k - shape[axis]
    if (isinstance(k, int) and k < 0) or (isinstance(missing, int) and missing > 0):
        raise context.error(f"attribute `k` is out of range for axis {axis}", got=k, expected=f"0 to {shape[axis]}")
    result = (*shape[:axis], k, *shape[axis + 1 :])
    return TensorType(result, type_.dtype), TensorType(result, "int64")


def _infer_sort(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, NUMBER_KINDS)
    resolve_axis(context, context.attrs["axis"], len(context.shape(0)))
    return (type_,)


def _infer_argsort(context: TypeContext) -> tuple[Type, ...]:
    (type_,) = _infer_sort(context)
    assert isinstance(type_, TensorType)
    return (TensorType(type_.shape, "int64"),)


def _comparisons(context: OpContext) -> Dim:
    """Return the comparisons of a sort, ``n * log2(n)`` for each line of ``n`` elements; ``n`` for unknown ``n``."""
    shape = context.operand_shape(0)
    size = shape[context.attrs["axis"]]
    return context.operand_elements(0) * (max(1, (size - 1).bit_length()) if isinstance(size, int) else 1)


_AXIS = AttrSpec("axis", AttrKind.INT, -1, doc="The sorted axis.")
_DESCENDING = AttrSpec(
    "descending", AttrKind.BOOL, False, doc="Whether the largest element is first, instead of the smallest."
)

OPS: tuple[OpDef, ...] = (
    OpDef(
        "topk",
        (OperandSpec("x"),),
        _infer_topk,
        attrs=(
            AttrSpec("k", AttrKind.DIM, doc="The number of selected elements, 0 to the size of ``axis``."),
            AttrSpec("axis", AttrKind.INT, -1, doc="The searched axis."),
            AttrSpec(
                "largest", AttrKind.BOOL, True, doc="Whether to select the largest elements, instead of the smallest."
            ),
            AttrSpec(
                "sorted",
                AttrKind.BOOL,
                True,
                doc="Whether results are sorted, the most extreme element first; otherwise in order of the indices.",
            ),
        ),
        flops=_comparisons,
        kernel=NumpyKernel(_topk, gives=fixed_dtype(None)),
        rounding=EXACT,
        cases=lambda: (example((2, 5), k=3), example((2, 5, 3), k=2, axis=1, largest=False)),
        doc="Return the ``k`` largest or smallest elements along an axis, and their indices (int64). Of equal "
        "elements, the elements with lower indices are selected, and come first; NaN is the largest.\n\n"
        "Shapes: both results have the shape of ``x``, with ``k`` in place of the size of ``axis``.",
    ),
    OpDef(
        "sort",
        (OperandSpec("x"),),
        _infer_sort,
        attrs=(_AXIS, _DESCENDING),
        flops=_comparisons,
        kernel=NumpyKernel(_sort),
        rounding=EXACT,
        cases=axis_cases,
        doc="Return ``x`` sorted along an axis; equal elements keep their order; NaN is the largest.\n\n"
        "Shapes: any but rank 0; the result has the shape and dtype of ``x``.",
    ),
    OpDef(
        "argsort",
        (OperandSpec("x"),),
        _infer_argsort,
        attrs=(_AXIS, _DESCENDING),
        flops=_comparisons,
        kernel=NumpyKernel(_argsort, gives=fixed_dtype("int64")),
        rounding=EXACT,
        cases=axis_cases,
        doc="Return the indices (int64) sorting ``x`` along an axis; equal elements keep their order; NaN is the "
        "largest.\n\n"
        "Shapes: any but rank 0; the result has the shape of ``x``.",
    ),
)
"""The family's ops."""
