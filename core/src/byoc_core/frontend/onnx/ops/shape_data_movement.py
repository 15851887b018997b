"""Ops moving the elements of known shapes, and ranges of sizes.

The functions apply the reference kernels of the ops to arrays of dimensions. Each function returns the node's results,
or ``None`` for unknown results; in this case the node is imported in the ordinary way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from byoc_core.dims import Dim, ceildiv
from byoc_core.dtypes import dtype_info, is_float
from byoc_core.frontend.onnx.node_context import NodeContext, ShapeImporter
from byoc_core.frontend.onnx.ops.data_movement import read_axes, read_slice
from byoc_core.frontend.onnx.ops.shape_arithmetic import Results, wrapped
from byoc_core.frontend.onnx.shape_value import MAX_ELEMENTS, Element, Objects, Ratio, ShapeValue

__all__ = ["IMPORTERS"]

_MAX_CONSTANT_RANGE_NBYTES = 1 << 20  # a longer range stays an op


def _run(node: NodeContext, op: str, *arrays: npt.NDArray[Any], **attrs: object) -> Objects:
    opdef = node.find_op(op)
    assert opdef.kernel is not None
    result = opdef.kernel(*arrays, **opdef.normalise_attrs(attrs))
    return np.asarray(result, object)


def _identity(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    return tuple(inputs)


def _concat(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    axis, rank = node.attr_int("axis"), len(inputs[0].shape)
    if any(len(value.shape) != rank or value.dtype != inputs[0].dtype for value in inputs):
        return None  # the ordinary import reports the error
    return wrapped(
        _run(node, "concat", *(value.objects for value in inputs), axis=node.axis(axis, rank)), inputs[0].dtype
    )


def _gather(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    data, positions = inputs
    if positions.ints is None or not data.shape:
        return None
    axis = node.axis(node.attr_int("axis", 0), len(data.shape))
    size = data.shape[axis]
    for position in positions.ints:
        if not -size <= position < size:
            raise node.error(f"the index is outside a shape of {size} sizes", got=position)
    indices = np.array(positions.ints, np.int64).reshape(positions.shape)
    return wrapped(_run(node, "take", data.objects, indices, axis=axis), data.dtype)


def _slice(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    data = inputs[0]
    if any(value.ints is None for value in inputs[1:]):
        return None
    axes, begin, end, strides = read_slice(node)
    axes = tuple(node.axis(axis, len(data.shape)) for axis in axes)
    if 0 in strides:
        return None
    return wrapped(
        _run(node, "strided_slice", data.objects, axes=axes, begin=begin, end=end, strides=strides), data.dtype
    )


def _reshaped(value: ShapeValue, shape: Sequence[int]) -> Results:
    return wrapped(value.objects.reshape(tuple(shape)), value.dtype)


def _unsqueeze(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    axes = read_axes(node) or ()
    rank = len(inputs[0].shape) + len(axes)
    new_axes = {node.axis(axis, rank) for axis in axes}
    if len(new_axes) != len(axes):
        return None
    rest = iter(inputs[0].shape)
    return _reshaped(inputs[0], [1 if axis in new_axes else next(rest) for axis in range(rank)])


def _squeeze(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    shape, axes = inputs[0].shape, read_axes(node)
    ones = {axis for axis, size in enumerate(shape) if size == 1}
    removed = ones if axes is None else {node.axis(axis, len(shape)) for axis in axes}
    if not removed <= ones:
        return None
    return _reshaped(inputs[0], [size for axis, size in enumerate(shape) if axis not in removed])


def _reshape(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    data, target = inputs[0], inputs[1].ints
    copies_zeros = not node.attr_flag("allowzero")
    if target is None or (copies_zeros and any(s == 0 and a >= len(data.shape) for a, s in enumerate(target))):
        return None
    shape = [data.shape[axis] if size == 0 and copies_zeros else size for axis, size in enumerate(target)]
    rest = prod(size for size in shape if size != -1)
    if shape.count(-1) == 1 and rest and len(data.elements) % rest == 0:
        shape[shape.index(-1)] = len(data.elements) // rest
    return _reshaped(data, shape) if min(shape, default=1) >= 0 and prod(shape) == len(data.elements) else None


def _transpose(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    axes = node.attr_ints("perm") if node.has_attr("perm") else None
    if axes is not None and sorted(axes) != list(range(len(inputs[0].shape))):
        return None
    return wrapped(_run(node, "permute_dims", inputs[0].objects, axes=axes), inputs[0].dtype)


def _expand(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    data, target = inputs[0], inputs[1].ints
    if target is None or prod(target) > MAX_ELEMENTS:
        return None
    try:
        shape = np.broadcast_shapes(data.shape, target)
    except ValueError:
        return None
    return wrapped(np.broadcast_to(data.objects, shape), data.dtype)


def _split(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    data = inputs[0]
    sections = inputs[1].ints if len(inputs) > 1 else None
    if node.opset < 13 and node.has_attr("split"):
        sections = node.attr_ints("split")
    if len(data.shape) != 1 or node.attr_int("axis", 0) not in (0, -1):
        return None
    if sections is None:
        count = node.attr_int("num_outputs", node.num_outputs) if node.opset >= 18 else node.num_outputs
        node.check_count(count)
        step = -(-data.shape[0] // count) if count > 0 else 0
        sections = (*(step for _ in range(count - 1)), data.shape[0] - step * (count - 1))
    if sum(sections) != data.shape[0] or min(sections, default=0) < 0:
        return None
    starts = np.cumsum([0, *sections[:-1]])
    return tuple(
        ShapeValue(data.elements[start : start + size], data.dtype)
        for start, size in zip(starts.tolist(), sections, strict=True)
    )


def _range(node: NodeContext, inputs: Sequence[ShapeValue]) -> Results:
    dtype = inputs[0].dtype
    if any(value.shape not in ((), (1,)) or value.dtype != dtype for value in inputs):
        return None
    start, stop, step = (_as_integer(value.elements[0]) for value in inputs)
    if start is None or stop is None or step is None or step == 0:
        return None
    op = node.find_op("arange")
    attrs = {"start": start, "stop": stop, "step": step, "dtype": dtype}
    count = ceildiv(stop - start, step)
    if isinstance(count, int) and count <= MAX_ELEMENTS:
        sizes = [start + index * step for index in range(count)]
        return wrapped([Ratio(number) for number in sizes] if is_float(dtype) else sizes, dtype)
    constants = [number for number in (start, stop, step) if isinstance(number, int)]
    is_short = isinstance(count, int) and count * dtype_info(dtype).itemsize <= _MAX_CONSTANT_RANGE_NBYTES
    if len(constants) < 3 or not is_short or op.kernel is None:
        return (node.emit(op.name, **attrs),)
    return (np.asarray(op.kernel(**attrs)),)


def _as_integer(element: Element) -> Dim | None:
    if isinstance(element, Ratio):
        return element.numerator if element.denominator == 1 else None
    return element


IMPORTERS: dict[str, ShapeImporter] = {
    "Concat": _concat,
    "Expand": _expand,
    "Gather": _gather,
    "Identity": _identity,
    "Range": _range,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
"""The ops moving the elements of known shapes, by ONNX name."""
