"""Ops reading or marking elements at computed positions: gathers along an axis and at tuples of indices, one-hot."""

from __future__ import annotations

import numpy as np

from byoc_core.dims import Dim
from byoc_core.kernels.indices import check_array_shape, element_offsets, resolve_coordinates, widened
from byoc_core.kernels.numpy_kernel import NumpyKernel, dtype_of
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example, integers
from byoc_core.opset.contexts import TypeContext, no_flops
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.type_rules import (
    INTEGER_KINDS,
    gathered_nbytes,
    known_size,
    require_at_most,
    require_equal,
    require_kind,
    require_rank,
    require_same_dtype,
    resolve_axis,
)
from byoc_core.opset.types import TensorType, Type

__all__ = ["INDICES_DOC", "OPS", "count_coordinates", "paired_indices"]


def _gather_elements(x: NDArray, indices: NDArray, *, axis: int) -> NDArray:
    """Return for each index the element of ``x`` at the index along ``axis``.

    Along the other axes, the element has the position of the index.

    Raises:
        ExecutionError: an index lies outside the axis, or ``indices`` is larger than ``x`` along another axis.
    """
    return np.asarray(np.take(x.reshape(-1), element_offsets("gather_elements", indices, x.shape, axis % x.ndim)))


def _gather_nd(x: NDArray, indices: NDArray, *, batch_dims: int) -> NDArray:
    """Return the slices of ``x`` at tuples of indices, stored along the last axis of ``indices``.

    The first ``batch_dims`` axes of both are paired, not indexed.

    Raises:
        ExecutionError: an index lies outside its axis, or the batches differ.
    """
    batch = x.shape[:batch_dims]
    check_array_shape("gather_nd", "indices", indices.shape, (*batch, *indices.shape[batch_dims:]))
    coordinates = resolve_coordinates("gather_nd", indices, x.shape, batch_dims)
    rank = indices.ndim - 1
    paired = (np.arange(size).reshape([-1] + [1] * (rank - 1 - axis)) for axis, size in enumerate(batch))
    return np.asarray(x[(*paired, *coordinates)])


def _one_hot(indices: NDArray, on_value: NDArray, off_value: NDArray, *, depth: int, axis: int) -> NDArray:
    """Return ``on_value`` at the index along a new axis of size ``depth``, else ``off_value``.

    Negative indices count from the end; an index outside the axis yields ``off_value`` everywhere.
    """
    wide = widened(indices)
    index = np.expand_dims(np.where(wide < 0, wide + depth, wide), axis)
    positions = np.expand_dims(np.arange(depth), [other for other in range(index.ndim) if other != axis % index.ndim])
    return np.where(index == positions, on_value, off_value)


INDICES_DOC = "Negative indices count from the end; an index out of range is an error at run time."


def paired_indices(context: TypeContext) -> tuple[Dim, ...]:
    """Return the shape of operand 1: integer indices along attribute ``axis``, paired with elements of operand 0.

    Raises:
        IRTypeError: the ranks differ, there is no such axis, or the indices are larger along another axis.
    """
    require_kind(context, 1, INTEGER_KINDS)
    shape = context.shape(0)
    indices = require_rank(context, 1, len(shape), "as operand `x`")
    axis = resolve_axis(context, context.attrs["axis"], len(shape))
    for other, size in enumerate(shape):
        if other != axis:
            require_at_most(context, 1, other, size, "as operand `x`")
    return indices


def count_coordinates(context: TypeContext, first: int = 0) -> int:
    """Return the size of the last axis of operand 1: the number of indexed axes of operand 0, from ``first`` on.

    Raises:
        IRTypeError: operand 0 has no axis left, operand 1 holds no integers or has no axis, or the size is not known
            or is too large.
    """
    require_kind(context, 1, INTEGER_KINDS)
    indices, rank = context.shape(1), len(context.shape(0)) - first
    if not rank:
        raise context.error("has no axis to index", operand=0, got=context.tensor(0))
    if not indices:
        raise context.error("has rank 0", operand=1, expected="a last axis with an index for each indexed axis")
    count = indices[-1]
    if not isinstance(count, int):
        raise context.error(
            "needs a known size of the last axis, because the rank depends on this size", operand=1, got=count
        )
    if not 1 <= count <= rank:
        raise context.error(
            f"axis {len(indices) - 1} has size {count}",
            operand=1,
            expected=f"1 to {rank}, the number of axes",
        )
    return count


def _infer_gather_elements(context: TypeContext) -> tuple[Type, ...]:
    return (TensorType(paired_indices(context), context.tensor(0).dtype),)


def _infer_gather_nd(context: TypeContext) -> tuple[Type, ...]:
    shape, indices, batch_dims = context.shape(0), context.shape(1), context.attrs["batch_dims"]
    most = min(len(shape), len(indices)) - 1
    if not 0 <= batch_dims <= max(most, 0):
        raise context.error("attribute `batch_dims` is out of range", got=batch_dims, expected=f"0 to {max(most, 0)}")
    count = count_coordinates(context, batch_dims)
    for axis in range(batch_dims):
        require_equal(context, 1, axis, shape[axis], "as operand `x`")
    batch = map(known_size, shape[:batch_dims], indices)
    result = (*batch, *indices[batch_dims:-1], *shape[batch_dims + count :])
    return (TensorType(result, context.tensor(0).dtype),)


def _infer_one_hot(context: TypeContext) -> tuple[Type, ...]:
    require_kind(context, 0, INTEGER_KINDS)
    for index in (1, 2):
        require_rank(context, index, 0, "one value")
    dtype = require_same_dtype(context, 1, 2)
    indices, depth = context.shape(0), context.attrs["depth"]
    if isinstance(depth, int) and depth < 0:
        raise context.error("attribute `depth` is negative", got=depth, expected="0 or more")
    axis = resolve_axis(context, context.attrs["axis"], len(indices) + 1)
    return (TensorType((*indices[:axis], depth, *indices[axis:]), dtype),)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "gather_elements",
        (OperandSpec("x"), OperandSpec("indices")),
        _infer_gather_elements,
        attrs=(AttrSpec("axis", AttrKind.INT, 0, doc="The indexed axis."),),
        nbytes=gathered_nbytes,
        flops=no_flops,
        kernel=NumpyKernel(_gather_elements, gives=dtype_of(0)),
        cases=lambda: (example((4, 3), integers((5, 3), 0, 3)),),
        doc="Return for each index the element of ``x`` at the index along ``axis``, and at the position of the index "
        f"along the other axes. {INDICES_DOC}\n\n"
        "Shapes: the result has the shape of ``indices``; ``indices`` has the rank of ``x`` and is no larger than "
        "``x`` along the other axes.",
    ),
    OpDef(
        "gather_nd",
        (OperandSpec("x"), OperandSpec("indices")),
        _infer_gather_nd,
        attrs=(AttrSpec("batch_dims", AttrKind.INT, 0, doc="The number of leading axes shared by both operands."),),
        nbytes=gathered_nbytes,
        flops=no_flops,
        kernel=NumpyKernel(_gather_nd, gives=dtype_of(0)),
        cases=lambda: (
            example((4, 3), integers((5, 1), 0, 3)),
            example((2, 4, 3), integers((2, 5, 1), 0, 3), batch_dims=1),
        ),
        doc="Return the slices of ``x`` at tuples of integers, given by the last axis of ``indices``. "
        f"{INDICES_DOC}\n\n"
        "Shapes: ``(B..., N1, ..., NK, S...), (B..., I..., K) -> (B..., I..., S...)``.",
    ),
    OpDef(
        "one_hot",
        (OperandSpec("indices"), OperandSpec("on_value"), OperandSpec("off_value")),
        _infer_one_hot,
        attrs=(
            AttrSpec("depth", AttrKind.DIM, doc="The size of the new axis."),
            AttrSpec("axis", AttrKind.INT, -1, doc="The position of the new axis in the result."),
        ),
        flops=no_flops,
        kernel=NumpyKernel(_one_hot),
        cases=lambda: (example(integers((2, 3), 0, 4), (), (), depth=5),),
        doc="Return ``on_value`` at each index along a new axis and ``off_value`` elsewhere. Negative indices count "
        "from the end; an index out of range yields ``off_value`` everywhere.\n\n"
        "Shapes: ``(A..., B...), (), () -> (A..., depth, B...)``.",
    ),
)
"""The family's ops."""
