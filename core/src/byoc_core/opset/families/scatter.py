"""Ops returning a copy of a tensor with elements written at computed positions: scatters, and a run of slices."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import ExecutionError
from byoc_core.kernels.indices import (
    check_array_shape,
    element_offsets,
    require_range,
    resolve_coordinates,
    row_major,
    widened,
)
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray, native_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example, integers
from byoc_core.opset.contexts import OpContext, TypeContext, no_flops
from byoc_core.opset.families.indexing import INDICES_DOC, count_coordinates, paired_indices
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORM
from byoc_core.opset.type_rules import (
    INTEGER_KINDS,
    require_at_most,
    require_equal,
    require_kind,
    require_rank,
    require_same_dtype,
    require_shape,
    resolve_axis,
)
from byoc_core.opset.types import Type

__all__ = ["OPS"]

_REDUCTIONS: Mapping[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
_NEUTRAL = {"min": np.inf, "max": -np.inf}
_WIDE_ROW = 256  # from this width on a call per row is faster than a step per element


def _scatter_elements(x: NDArray, indices: NDArray, updates: NDArray, *, axis: int, reduction: str) -> NDArray:
    """Return ``x`` with each update at its index along ``axis``.

    Along the other axes, the element has the position of the update. Several updates of an element apply in row-major
    order: see :func:`_scatter_rows`.

    Raises:
        ExecutionError: an index lies outside the axis, ``indices`` is larger than ``x`` along another axis, or
            ``updates`` differs from ``indices`` in shape.
    """
    check_array_shape("scatter_elements", "updates", updates.shape, indices.shape)
    offsets = element_offsets("scatter_elements", indices, x.shape, axis % x.ndim)
    rows = _scatter_rows(x.reshape(x.size, 1), offsets.reshape(-1), updates.reshape(updates.size, 1), reduction)
    return rows.reshape(x.shape)


def _scatter_nd(x: NDArray, indices: NDArray, updates: NDArray, *, reduction: str) -> NDArray:
    """Return ``x`` with each slice of ``updates`` at a tuple of indices, stored along the last axis of ``indices``.

    Several updates of an element apply in row-major order: see :func:`_scatter_rows`.

    Raises:
        ExecutionError: an index lies outside its axis, or ``updates`` has the wrong shape.
    """
    depth = indices.shape[-1]
    outer, inner = x.shape[:depth], x.shape[depth:]
    check_array_shape("scatter_nd", "updates", updates.shape, (*indices.shape[:-1], *inner))
    row_indices = row_major(resolve_coordinates("scatter_nd", indices, x.shape), outer).reshape(-1)
    rows = _scatter_rows(
        x.reshape(prod(outer), prod(inner)), row_indices, updates.reshape(len(row_indices), prod(inner)), reduction
    )
    return rows.reshape(x.shape)


def _scatter_slice(x: NDArray, updates: NDArray, starts: NDArray, *, axis: int, mode: str) -> NDArray:
    """Return ``x`` with ``updates`` written along ``axis`` from ``starts`` on.

    ``starts`` is a single start, or a start for each index of axis 0. With ``mode="circular"`` positions beyond the end
    continue at the front, and a start is taken modulo the axis.

    Raises:
        ExecutionError: the updates do not fit from a start on (with ``"circular"``: are longer than the axis), or an
            operand has the wrong shape.
    """
    axis %= x.ndim
    size, length = x.shape[axis], updates.shape[axis]
    check_array_shape("scatter_slice", "updates", updates.shape, (*x.shape[:axis], length, *x.shape[axis + 1 :]))
    check_array_shape("scatter_slice", "starts", starts.shape, x.shape[: starts.ndim])
    if length > size:
        raise ExecutionError(
            "op `scatter_slice`, operand `updates`",
            f"is longer than axis {axis}",
            got=length,
            expected=f"at most {size}",
        )
    first = widened(starts)
    if mode == "circular":
        first = first % max(size, 1)
    else:
        require_range("scatter_slice", first, 0, size - length, f"the updates do not fit axis {axis} from a start on")
    positions = (first.astype(np.int64)[..., np.newaxis] + np.arange(length)) % max(size, 1)
    result = np.array(x)
    rows = np.ogrid[tuple(slice(count) for count in (*starts.shape, 1))][:-1]
    np.moveaxis(result, axis, starts.ndim)[(*rows, positions)] = np.moveaxis(updates, axis, starts.ndim)
    return result


def _scatter_rows(rows: NDArray, row_indices: NDArray, updates: NDArray, reduction: str) -> NDArray:
    """Return ``(P, N)`` with each row of ``updates`` (``M, N``) applied at its row index, in order.

    ``"update"`` replaces: the last update stays. The others combine the present value with the update; narrow floats
    combine in float32 and are rounded once. ``"min"`` and ``"max"`` keep the present value only if smaller (larger)
    than the update. A present NaN is therefore replaced by the next update, and an update of NaN is written.
    """
    if reduction == "update":
        result, last = rows.copy(), _last_updates(row_indices, len(rows))
        (written,) = np.nonzero(last >= 0)
        result[written] = updates[last[written]]
        return result
    wide = native_dtype(rows.dtype)
    result, terms = rows.astype(wide, order="C"), updates.astype(wide, copy=False)
    if reduction in _NEUTRAL and wide.kind == "f" and (np.isnan(terms).any() or np.isnan(result).any()):
        _scatter_extremes_with_nan(result, row_indices, terms, reduction)
    else:
        _combine(_REDUCTIONS[reduction], result, row_indices, terms)
    return result.astype(rows.dtype, copy=False)


def _combine(ufunc: Any, result: NDArray, row_indices: NDArray, terms: NDArray) -> None:
    """Combine each row of the contiguous ``result`` with its terms by a ufunc, in place and in order."""
    width = terms.shape[1]
    if width < _WIDE_ROW:  # numpy is fast at flat indices only
        flat = row_indices[:, np.newaxis] * width + np.arange(width)
        ufunc.at(result.reshape(-1), flat.reshape(-1), terms.reshape(-1))
        return
    for row, term in zip(row_indices.tolist(), terms, strict=True):
        ufunc(result[row], term, out=result[row])


def _last_updates(row_indices: NDArray, count: int) -> NDArray:
    """Return the position of the last update of each of ``count`` rows, -1 for none."""
    last = np.full(count, -1, np.int64)
    np.maximum.at(last, row_indices, np.arange(len(row_indices)))
    return last


def _scatter_extremes_with_nan(result: NDArray, row_indices: NDArray, terms: NDArray, reduction: str) -> None:
    """Apply updates by ``"min"`` or ``"max"``; only the updates after the last NaN of an element count."""
    neutral = _NEUTRAL[reduction]
    position = np.arange(len(row_indices))[:, np.newaxis]
    last = _last_updates(row_indices, len(result))[:, np.newaxis]
    last_nan = np.full(result.shape, -1, np.int64)
    _combine(np.maximum, last_nan, row_indices, np.where(np.isnan(terms), position, -1))
    result[(last_nan >= 0) | (np.isnan(result) & (last >= 0))] = neutral
    counted = np.where(position > last_nan[row_indices], terms, neutral).astype(terms.dtype, copy=False)
    _combine(_REDUCTIONS[reduction], result, row_indices, counted)
    result[(last_nan >= 0) & (last_nan == last)] = np.nan


def _infer_scatter_elements(context: TypeContext) -> tuple[Type, ...]:
    require_same_dtype(context, 0, 2)
    require_shape(context, 2, paired_indices(context), "as operand `indices`")
    return (context.tensor(0),)


def _infer_scatter_nd(context: TypeContext) -> tuple[Type, ...]:
    require_same_dtype(context, 0, 2)
    count = count_coordinates(context)
    updates = (*context.shape(1)[:-1], *context.shape(0)[count:])
    require_shape(context, 2, updates, "as required by operands `indices` and `x`")
    return (context.tensor(0),)


def _infer_scatter_slice(context: TypeContext) -> tuple[Type, ...]:
    require_same_dtype(context, 0, 1)
    shape = context.shape(0)
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    require_rank(context, 1, len(shape), "as operand `x`")
    for other, size in enumerate(shape):
        (require_at_most if other == axis else require_equal)(context, 1, other, size, "as operand `x`")
    require_kind(context, 2, INTEGER_KINDS)
    if context.shape(2):
        if axis == 0:
            require_rank(context, 2, 0, "a single start, because attribute `axis` is 0")
        require_shape(context, 2, shape[:1], "as axis 0 of operand `x`, or no axis")
    return (context.tensor(0),)


def _reduction_flops(context: OpContext) -> Dim:
    return 0 if context.attrs["reduction"] == "update" else context.operand_elements(2)


_REDUCTION = AttrSpec(
    "reduction",
    AttrKind.STR,
    "update",
    ("update", "add", "mul", "min", "max"),
    doc="The combination of an update with the old element: ``update`` replaces the element, the others combine the "
    "two.",
)
_ORDER_DOC = (
    "Updates of the same element are applied in row-major order; with ``update`` the last update stays. With ``min`` "
    "and ``max`` the old element stays only if smaller (larger) than the update, as in ONNX Runtime: an old NaN is "
    "replaced by the next update, and an update of NaN is written."
)

OPS: tuple[OpDef, ...] = (
    OpDef(
        "scatter_elements",
        (OperandSpec("x"), OperandSpec("indices"), OperandSpec("updates")),
        _infer_scatter_elements,
        attrs=(AttrSpec("axis", AttrKind.INT, 0, doc="The indexed axis."), _REDUCTION),
        flops=_reduction_flops,
        kernel=NumpyKernel(_scatter_elements),
        rounding=NORM,
        cases=lambda: (
            example((4, 3), integers((2, 3), 0, 3), (2, 3)),
            example((4, 3), integers((2, 3), 0, 3), (2, 3), reduction="add"),
        ),
        doc="Return ``x`` with each update applied at the index along ``axis``, and at the position of the update "
        f"along the other axes. {INDICES_DOC} {_ORDER_DOC}\n\n"
        "Shapes: the result has the shape of ``x``; ``indices`` and ``updates`` have the same shape, of the rank of "
        "``x`` and no larger than ``x`` along the other axes.",
    ),
    OpDef(
        "scatter_nd",
        (OperandSpec("x"), OperandSpec("indices"), OperandSpec("updates")),
        _infer_scatter_nd,
        attrs=(_REDUCTION,),
        flops=_reduction_flops,
        kernel=NumpyKernel(_scatter_nd),
        rounding=NORM,
        cases=lambda: (example((4, 3), integers((5, 1), 0, 3), (5, 3)),),
        doc="Return ``x`` with slices updated at tuples of integers, given by the last axis of ``indices``. "
        f"{INDICES_DOC} {_ORDER_DOC}\n\n"
        "Shapes: ``(N1, ..., NK, S...), (I..., K), (I..., S...) -> (N1, ..., NK, S...)``.",
    ),
    OpDef(
        "scatter_slice",
        (OperandSpec("x"), OperandSpec("updates"), OperandSpec("starts")),
        _infer_scatter_slice,
        attrs=(
            AttrSpec("axis", AttrKind.INT, doc="The axis of the updates."),
            AttrSpec(
                "mode",
                AttrKind.STR,
                "linear",
                ("linear", "circular"),
                doc="``linear``: updates beyond the end are an error at run time; ``circular``: updates continue at "
                "the front, and a start is taken modulo the size of the axis.",
            ),
        ),
        flops=no_flops,
        kernel=NumpyKernel(_scatter_slice),
        cases=lambda: (
            example((2, 7, 3), (2, 4, 3), integers((), 0, 3), axis=1),
            example((2, 7, 3), (2, 4, 3), integers((2,), 0, 3), axis=1),
        ),
        doc="Return ``x`` with ``updates`` written over slices along ``axis``, beginning at a start, for example to "
        "extend a cache of keys. There is a single start, or a start for each item of axis 0.\n\n"
        "Shapes: ``(A..., N, B...), (A..., M, B...), () or (A0,) -> (A..., N, B...)`` with ``M <= N``.",
    ),
)
"""The family's ops."""
