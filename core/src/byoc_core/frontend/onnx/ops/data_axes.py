"""Ops along axes computed at run time: the tensor is viewed with the named axes at known positions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.data_dependent import emit_sized
from byoc_core.frontend.onnx.ops.data_sizes import (
    as_sizes,
    count_of,
    elements,
    int_vector,
    number,
    size_value,
    sizes_value,
)
from byoc_core.ir.module import Value

__all__ = ["along_axis", "from_front", "marked", "reduce_axes", "shape_with_axes", "shape_without_axes"]


def from_front(node: NodeContext, axes: Value, rank: int) -> Value:
    """Return axes counted from the front; negative axes count from the end, and a missing axis is an error when run."""
    return node.emit("take", node.constant(np.arange(rank, dtype=np.int64)), axes, axis=0)


def marked(node: NodeContext, axes: Value, rank: int) -> Value:
    """Return a bool for each axis of a tensor: whether axes, from the front, name the axis."""
    (count,) = node.shape_of(axes)
    indices = node.constant(np.arange(rank, dtype=np.int64).reshape(rank, 1))
    return node.emit("any", node.emit("equal", node.reshape(axes, (1, count)), indices), axis=(1,), keepdims=False)


def reduce_axes(
    node: NodeContext,
    index: int,
    reduce: Callable[[Value, tuple[int, ...]], Value],
    *,
    keepdims: bool,
    is_noop: bool = False,
) -> Value:
    """Return the first input reduced along the axes in another input.

    Each axis is viewed as two, of which one has size 1: the second is reduced, and has the size of a named axis.

    Args:
        node: the node.
        index: the input with the axes.
        reduce: reduces a tensor along axes, and removes these.
        keepdims: whether the reduced axes stay with size 1.
        is_noop: whether no axis is reduced, in place of all, if the input with the axes has no elements.
    """
    shape = node.shape(0)
    rank = len(shape)
    axes = from_front(node, int_vector(node, index), rank)
    is_reduced = marked(node, axes, rank)
    (count,) = node.shape_of(axes)
    if not (isinstance(count, int) or is_noop):
        is_empty = node.emit("equal", size_value(node, count), number(node, 0))
        is_reduced = node.emit("logical_or", is_reduced, is_empty)
    sizes, unit = sizes_value(node, shape), number(node, 1)
    outer_sizes = as_sizes(node, node.emit("where", is_reduced, unit, sizes), rank)
    inner_sizes = as_sizes(node, node.emit("where", is_reduced, sizes, unit), rank)
    pairs = [size for pair in zip(outer_sizes, inner_sizes, strict=True) for size in pair]
    result = reduce(node.reshape(node.value(0), pairs), tuple(range(1, 2 * rank, 2)))
    return result if keepdims else node.reshape(result, _without(node, is_reduced, sizes, rank - count_of(node, index)))


def shape_without_axes(node: NodeContext, index: int) -> tuple[Dim, ...]:
    """Return the shape of the first input without the axes in another input."""
    shape = node.shape(0)
    is_removed = marked(node, from_front(node, int_vector(node, index), len(shape)), len(shape))
    return _without(node, is_removed, sizes_value(node, shape), len(shape) - count_of(node, index))


def shape_with_axes(node: NodeContext, index: int) -> tuple[Dim, ...]:
    """Return the shape of the first input with new axes of size 1, at the positions in another input."""
    shape = node.shape(0)
    rank = len(shape) + count_of(node, index)
    is_new = marked(node, from_front(node, int_vector(node, index), rank), rank)
    # Each old axis is at the position of its number among the old axes.
    old = node.emit("cast", node.emit("logical_not", is_new), dtype="int64")
    indices = node.emit("subtract", node.emit("cumsum", old, axis=0), number(node, 1))
    indices = node.emit("maximum", indices, number(node, 0))
    sizes = node.emit("take", sizes_value(node, (*shape, 1)), indices, axis=0)
    return as_sizes(node, node.emit("where", is_new, number(node, 1), sizes), rank)


def along_axis(node: NodeContext, index: int, compute: Callable[[Value], Value]) -> Value:
    """Return the result of a computation along the axis in another input: the middle of three axes of a view.

    The result has the shape of the first input.
    """
    shape = node.shape(0)
    rank = len(shape)
    (axis,) = elements(node, from_front(node, int_vector(node, index, 1), rank), 1)
    indices, sizes = node.constant(np.arange(rank, dtype=np.int64)), sizes_value(node, shape)

    def total(relation: str) -> Value:
        factors = node.emit("where", node.emit(relation, indices, axis), sizes, number(node, 1))
        return node.emit("prod", factors, axis=(0,), keepdims=True)

    parts = [total(relation) for relation in ("less", "equal", "greater")]
    view = as_sizes(node, node.emit("concat", *parts, axis=0), 3)
    return node.reshape(compute(node.reshape(node.value(0), view)), shape)


def _without(node: NodeContext, is_removed: Value, sizes: Value, count: int) -> tuple[Dim, ...]:
    if count < 0:
        raise node.error("names more axes than the tensor has")
    (rest,) = emit_sized(node, "compress", sizes, node.emit("logical_not", is_removed), axis=0)
    return as_sizes(node, node.reshape(rest, (count,)), count)
