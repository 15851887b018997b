"""Slices between bounds given as data: a range of positions, and the elements at these positions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.data_dependent import emit_range
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value

__all__ = ["read_bounds", "slice_between"]


def read_bounds(node: NodeContext, index: int) -> list[Value]:
    """Return the elements of an input, a vector of a known number of integers, as int64 scalars.

    Raises:
        FrontendError: the number of elements is unknown.
    """
    if node.shape_value(index) is not None:
        return [_size(node, dim) for dim in node.dims(index)]
    shape = node.shape(index)
    if len(shape) != 1 or not isinstance(shape[0], int):
        raise node.error("has an unknown number of starts or ends", got=ShapeValue(shape))
    bounds = node.value(index)
    if node.type(index).dtype != "int64":
        bounds = node.emit("cast", bounds, dtype="int64")
    return [node.emit("take", bounds, node.constant(np.int64(position)), axis=0) for position in range(shape[0])]


def slice_between(
    node: NodeContext, axes: Sequence[int], steps: Sequence[int], starts: Sequence[Value], stops: Sequence[Value]
) -> Value:
    """Return the slice of the first input between int64 scalars, clipped at the ends of their axes.

    Raises:
        FrontendError: a step is 0, or there is no such axis.
    """
    shape, value = node.shape(0), node.value(0)
    for axis, step, start, stop in zip(axes, steps, starts, stops, strict=True):
        if step == 0:
            raise node.error("has a step of 0")
        axis = node.axis(axis, len(shape))
        size = _size(node, shape[axis])
        lowest, highest = _size(node, 0 if step > 0 else -1), _size(node, shape[axis] - (step < 0))
        first = _cut(node, start, size, _size(node, 0), highest)
        last = _cut(node, stop, size, lowest, highest)
        value = node.emit("take", value, emit_range(node, first, last, _size(node, step)), axis=axis)
    return value


def _cut(node: NodeContext, bound: Value, size: Value, lowest: Value, highest: Value) -> Value:
    """Return a bound within limits; a negative bound counts from the end of the axis."""
    is_negative = node.emit("less", bound, _size(node, 0))
    position = node.emit("where", is_negative, node.emit("add", bound, size), bound)
    return node.emit("minimum", node.emit("maximum", position, lowest), highest)


def _size(node: NodeContext, dim: Dim) -> Value:
    return node.to_value(ShapeValue.scalar(dim), "a size")
