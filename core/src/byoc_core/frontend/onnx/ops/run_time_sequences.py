"""Sequences whose length or positions only running tells, as ops on the tensors of a :class:`RunTimeSequence`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim, dim_max, product
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.data_dependent import emit_range
from byoc_core.frontend.onnx.ops.data_sizes import as_sizes, number, size_value, sizes_value
from byoc_core.frontend.onnx.ops.strings import Movement, element_dtype, join
from byoc_core.frontend.onnx.sequence_value import RunTimeSequence
from byoc_core.frontend.onnx.string_tensor import StringTensor
from byoc_core.ir.module import Value

__all__ = ["concatenated", "element_at", "erased", "inserted", "length_of", "split"]


def length_of(node: NodeContext, sequence: RunTimeSequence) -> Dim:
    """Return the number of tensors."""
    return node.shape_of(sequence.shapes)[0]


def element_at(node: NodeContext, sequence: RunTimeSequence, position: Value) -> Value | StringTensor:
    """Return the tensor at a position; a negative position counts from the end.

    Raises:
        FrontendError: the rank of the tensors is not known during import.
    """
    rank = _rank(node, sequence)
    starts = _starts(node, sequence)
    index = _from_front(node, position, length_of(node, sequence))
    shape = node.emit("take", sequence.shapes, index, axis=0)  # a position out of range is an error of this op
    stop = node.emit("take", starts, node.emit("add", index, number(node, 1)), axis=0)
    movement = Movement(node, [sequence.elements])
    (elements,) = movement.values
    part = _part(node, elements, node.emit("take", starts, index, axis=0), stop)
    return movement.result(node.emit("reshape", part, shape=as_sizes(node, shape, rank)))


def inserted(
    node: NodeContext, sequence: RunTimeSequence, tensor: Value | StringTensor, position: Value | None
) -> RunTimeSequence:
    """Return the sequence with a further tensor in front of a position, at the end by default.

    Raises:
        FrontendError: the dtype of the tensor is another.
    """
    dtype, own_dtype = element_dtype(node, tensor), element_dtype(node, sequence.elements)
    if dtype != own_dtype:
        raise node.error("inserts a tensor of another dtype", got=dtype, expected=own_dtype)
    dims = node.shape_of(tensor)
    length, rank = node.shape_of(sequence.shapes)
    rank = dim_max(rank, len(dims))
    row = _filled(node, node.reshape(sizes_value(node, dims), (1, len(dims))), rank)
    shapes = _filled(node, sequence.shapes, rank)
    if position is None:
        return RunTimeSequence(join(node, [sequence.elements, tensor]), node.emit("concat", shapes, row, axis=0))
    index = _from_front(node, position, length)
    start = node.emit("take", _starts(node, sequence), index, axis=0)
    movement = Movement(node, [sequence.elements, tensor])
    elements, inserted_elements = movement.values
    before, after = _around(node, elements, start, start)
    flat = node.reshape(inserted_elements, (product(dims),))
    rows_before, rows_after = _around(node, shapes, index, index)
    return RunTimeSequence(
        movement.result(node.emit("concat", before, flat, after, axis=0)),
        node.emit("concat", rows_before, row, rows_after, axis=0),
    )


def erased(node: NodeContext, sequence: RunTimeSequence, position: Value) -> RunTimeSequence:
    """Return the sequence without the tensor at a position."""
    starts = _starts(node, sequence)
    index = _from_front(node, position, length_of(node, sequence))
    following = node.emit("add", index, number(node, 1))
    start, stop = (node.emit("take", starts, bound, axis=0) for bound in (index, following))
    movement = Movement(node, [sequence.elements])
    (elements,) = movement.values
    return RunTimeSequence(
        movement.result(node.emit("concat", *_around(node, elements, start, stop), axis=0)),
        node.emit("concat", *_around(node, sequence.shapes, index, following), axis=0),
    )


def concatenated(node: NodeContext, sequence: RunTimeSequence, axis: int, *, is_new: bool) -> Value | StringTensor:
    """Return the tensors joined along an axis, or stacked along a new axis; their other sizes must be equal.

    Raises:
        FrontendError: the rank of the tensors is not known during import, or has no such axis.
    """
    rank = _rank(node, sequence)
    axis = node.axis(axis, rank + is_new)
    first = node.emit("take", sequence.shapes, number(node, 0), axis=0)
    dims = as_sizes(node, first, rank)
    movement = Movement(node, [sequence.elements])
    (elements,) = movement.values
    if is_new:
        stacked = node.emit("reshape", elements, shape=(length_of(node, sequence), *dims))
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
        return movement.result(node.emit("permute_dims", stacked, axes=tuple(order)))
    sizes = _column(node, sequence, axis)
    (total,) = as_sizes(node, node.reshape(node.emit("sum", sizes, axis=(0,)), (1,)), 1)
    outer, inner = dims[:axis], dims[axis + 1 :]
    if product(outer) == 1:
        return movement.result(node.emit("reshape", elements, shape=(*outer, total, *inner)))
    positions = _positions(node, sizes, product(outer), total, product(inner))
    joined = node.emit("take", elements, positions, axis=0)
    return movement.result(node.reshape(joined, (*outer, total, *inner)))


def split(node: NodeContext, tensor: Value | StringTensor, axis: int, sizes: Value) -> RunTimeSequence:
    """Return the parts of a tensor along an axis.

    Args:
        node: the node.
        tensor: the tensor.
        axis: the axis, counted from the front.
        sizes: int64 of shape ``(length,)``: the size of each part; the sum is the size of the axis.
    """
    dims = node.shape_of(tensor)
    outer, inner = product(dims[:axis]), product(dims[axis + 1 :])
    movement = Movement(node, [tensor])
    (elements,) = movement.values
    flat = node.reshape(elements, (product(dims),))
    if outer != 1:
        positions = node.reshape(_positions(node, sizes, outer, dims[axis], inner), (product(dims),))
        flat = node.emit("scatter_elements", flat, positions, flat, axis=0)
    length = node.shape_of(sizes)[0]
    columns = [
        node.reshape(sizes, (length, 1))
        if index == axis
        else node.emit("broadcast_to", size_value(node, dim), shape=(length, 1))
        for index, dim in enumerate(dims)
    ]
    return RunTimeSequence(movement.result(flat), node.emit("concat", *columns, axis=1))


def _positions(node: NodeContext, sizes: Value, outer: Dim, total: Dim, inner: Dim) -> Value:
    """Return the position of each element of a tensor ``(outer, total, inner)`` among the elements of its parts.

    The tensor is joined along the middle axis from parts of the given sizes; the elements of a part lie together.
    """
    length = node.shape_of(sizes)[0]
    ends = node.emit("cumsum", sizes, axis=0)
    rows = node.emit("arange", stop=total)
    ended = node.emit("less_equal", node.reshape(ends, (1, length)), node.reshape(rows, (total, 1)))
    part = node.emit("sum", node.emit("cast", ended, dtype="int64"), axis=(1,))  # the part of each row
    size = node.emit("take", sizes, part, axis=0)
    first = node.emit("subtract", node.emit("take", ends, part, axis=0), size)
    outer_rows = size_value(node, outer)
    # All outer indices of the earlier parts, then the rows of this part for each outer index.
    base = node.emit("multiply", first, outer_rows)
    local = node.emit("subtract", rows, first)
    index = node.reshape(node.emit("arange", stop=outer), (outer, 1))
    row = node.emit("add", node.emit("multiply", index, size), node.emit("add", base, local))
    scaled = node.emit("multiply", row, size_value(node, inner))
    columns = node.emit("arange", stop=inner)
    return node.emit("add", node.reshape(scaled, (outer, total, 1)), columns)


def _rank(node: NodeContext, sequence: RunTimeSequence) -> int:
    rank = node.shape_of(sequence.shapes)[1]
    if not isinstance(rank, int):
        raise node.error(
            "needs the rank of the tensors in a sequence, but the rank is only known at run time",
            hint="State the element type of the sequence with its axes in the model's input.",
        )
    return rank


def _starts(node: NodeContext, sequence: RunTimeSequence) -> Value:
    """Return the position of the first element of each tensor, and the number of all elements: ``(length + 1,)``."""
    counts = node.emit("abs", node.emit("prod", sequence.shapes, axis=(1,)))  # without the signs of absent axes
    ends = node.emit("cumsum", counts, axis=0)
    return node.emit("concat", node.constant(np.zeros(1, np.int64)), ends, axis=0)


def _filled(node: NodeContext, shapes: Value, rank: Dim) -> Value:
    """Return shapes with -1 for the axes that tensors of a lower rank lack."""
    count, own_rank = node.shape_of(shapes)
    if own_rank == rank:
        return shapes
    absent = node.emit("broadcast_to", number(node, -1), shape=(count, rank - own_rank))
    return node.emit("concat", shapes, absent, axis=1)


def _column(node: NodeContext, sequence: RunTimeSequence, axis: int) -> Value:
    return node.emit("take", sequence.shapes, number(node, axis), axis=1)


def _from_front(node: NodeContext, position: Value, length: Dim) -> Value:
    """Return a position as an int64 scalar counted from the front, out of range if the position is."""
    scalar = node.reshape(position, ())
    if node.tensor_type(scalar).dtype != "int64":
        scalar = node.emit("cast", scalar, dtype="int64")
    zero, size = number(node, 0), size_value(node, length)
    index = node.emit("where", node.emit("less", scalar, zero), node.emit("add", scalar, size), scalar)
    beyond = node.emit("add", size, number(node, 1))  # a position still negative would count from the end again
    return node.emit("where", node.emit("less", index, zero), beyond, index)


def _part(node: NodeContext, rows: Value, start: Value, stop: Value) -> Value:
    return node.emit("take", rows, emit_range(node, start, stop, number(node, 1)), axis=0)


def _around(node: NodeContext, rows: Value, start: Value, stop: Value) -> Sequence[Value]:
    """Return the rows before ``start`` and the rows from ``stop`` on."""
    end = size_value(node, node.shape_of(rows)[0])
    return _part(node, rows, number(node, 0), start), _part(node, rows, stop, end)
