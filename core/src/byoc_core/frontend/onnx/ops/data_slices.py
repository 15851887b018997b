"""Slices between bounds given as data: a range of positions, and the elements at these positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim, product
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.data_axes import from_front
from byoc_core.frontend.onnx.ops.data_dependent import emit_range
from byoc_core.frontend.onnx.ops.data_sizes import elements, int_vector, is_computed, number, size_value
from byoc_core.ir.module import Value

__all__ = ["by_axis", "slice_between", "slice_of_data", "take_range"]

_OPEN_END = np.iinfo(np.int64).max


def slice_of_data(node: NodeContext) -> Value:
    """Return the slice of the first input by starts, ends, axes and steps in further inputs, some computed.

    The number of bounds may be known only at run time; then each axis is sliced.

    Raises:
        FrontendError: the inputs have different numbers of elements, a known step is 0, or there is no such axis.
    """
    rank, count = len(node.shape(0)), _count_bounds(node)
    bounds = [int_vector(node, 1, count), int_vector(node, 2, count)]
    if node.has_input(4) and not is_computed(node, 4) and 0 in node.ints(4):
        raise node.error("has a step of 0")
    steps = int_vector(node, 4, count) if node.has_input(4) else _repeated(node, 1, count)
    if isinstance(count, int) and not (node.has_input(3) and is_computed(node, 3)):
        columns = [elements(node, values, count) for values in (*bounds, steps)]
        axes: Sequence[int] = node.ints(3) if node.has_input(3) else range(count)
    else:
        named = int_vector(node, 3, count) if node.has_input(3) else node.emit("arange", stop=count)
        columns = [
            by_axis(node, named, values, other)
            for values, other in zip((*bounds, steps), (0, _OPEN_END, 1), strict=True)
        ]
        axes = range(rank)
    return slice_between(node, [node.axis(axis, rank) for axis in axes], *columns)


def _count_bounds(node: NodeContext) -> Dim:
    """Return the number of bounds: a number known for one of the inputs, else that of the starts."""
    indices = [index for index in (1, 2, 3, 4) if node.has_input(index)]
    counts = [product(node.shape(index)) for index in indices]
    constants = {count for count in counts if isinstance(count, int)}
    if len(constants) > 1:
        raise node.error("axes, starts, ends and steps differ in number")
    return constants.pop() if constants else counts[0]


def _repeated(node: NodeContext, number_: int, count: Dim) -> Value:
    return node.emit("broadcast_to", number(node, number_), shape=(count,))


def by_axis(node: NodeContext, axes: Value, values: Value, other: int) -> list[Value]:
    """Return the value for each axis of the first input, a scalar; ``other`` for axes not named.

    Args:
        node: the node.
        axes: an axis for each value: an int64 vector.
        values: an int64 vector.
        other: the value of other axes.
    """
    rank = len(node.shape(0))
    defaults = node.constant(np.full(rank, other, np.int64))
    return elements(node, node.emit("scatter_elements", defaults, from_front(node, axes, rank), values, axis=0), rank)


def slice_between(
    node: NodeContext, axes: Sequence[int], starts: Sequence[Value], stops: Sequence[Value], steps: Sequence[Value]
) -> Value:
    """Return the slice of the first input between int64 scalars, clipped at the ends of their axes."""
    shape, value = node.shape(0), node.value(0)
    zero, unit = number(node, 0), number(node, 1)
    for axis, start, stop, step in zip(axes, starts, stops, steps, strict=True):
        size = size_value(node, shape[axis])
        is_down = node.emit("less", step, zero)
        lowest = node.emit("where", is_down, number(node, -1), zero)
        highest = node.emit("where", is_down, node.emit("subtract", size, unit), size)
        first, last = _cut(node, start, size, zero, highest), _cut(node, stop, size, lowest, highest)
        value = take_range(node, value, axis, first, last, step)
    return value


def take_range(node: NodeContext, value: Value, axis: int, first: Value, last: Value, step: Value) -> Value:
    """Return the elements along an axis at positions from the first up to but not including the last."""
    return node.emit("take", value, emit_range(node, first, last, step), axis=axis)


def _cut(node: NodeContext, bound: Value, size: Value, lowest: Value, highest: Value) -> Value:
    """Return a bound within limits; a negative bound counts from the end of the axis."""
    is_negative = node.emit("less", bound, number(node, 0))
    position = node.emit("where", is_negative, node.emit("add", bound, size), bound)
    return node.emit("minimum", node.emit("maximum", position, lowest), highest)
