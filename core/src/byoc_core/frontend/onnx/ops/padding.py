"""Importers for ops padding and cropping."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.dims import Dim, is_nonnegative, product
from byoc_core.dtypes import is_float
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_dependent import emit_range
from byoc_core.frontend.onnx.ops.data_sizes import (
    as_sizes,
    count_of,
    elements,
    int_vector,
    is_computed,
    number,
    size_value,
)
from byoc_core.frontend.onnx.ops.data_slices import by_axis, take_range
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value
from byoc_core.opset.types import TensorType

__all__ = ["IMPORTERS", "surround"]

# Beyond the end of every axis, in the notation of Slice.
_OPEN_END = np.iinfo(np.int64).max


def _import_pad(node: NodeContext) -> Sequence[Imported]:
    """Import padding; negative widths crop before the remaining elements are padded."""
    modes = ("constant", "reflect", "edge", *(("wrap",) if node.opset >= 19 else ()))
    mode = node.attr_string("mode", "constant")
    if mode not in modes:
        raise node.error("attribute `mode` is unknown", got=mode, expected=" or ".join(modes))
    if node.opset < 11:
        node.ignore_attrs("value")  # unused in other modes
    elif is_computed(node, 1) or (node.has_input(3) and is_computed(node, 3)):
        return (_pad_by_data(node, mode),)
    declared = _declared_widths(node)
    widths = [width for width in declared if isinstance(width, int)]
    if len(widths) < len(declared):
        is_growth = all(map(is_nonnegative, declared))
        return (_pad_by_sizes(node, mode, declared) if is_growth else _pad_by_data(node, mode),)
    cropped = _crop(node, widths)
    grown = [max(width, 0) for width in widths]
    if not any(grown):
        return (cropped,)
    if mode != "constant":
        return (node.emit("nn.border_pad", cropped, pad_width=grown, mode=mode),)
    number = _padding_number(node)
    if number is None:
        return (surround(node, cropped, grown, node.value(2)),)
    return (node.emit("nn.pad", cropped, pad_width=grown, pad_value=number),)


def _pad_by_sizes(node: NodeContext, mode: str, widths: Sequence[Dim]) -> Value:
    """Return the first input padded by symbolic widths that are not negative."""
    value = node.value(0)
    if mode == "constant":
        return surround(node, value, widths, node.value(2) if node.has_input(2) else node.scalar(0.0, 0))
    for axis, size in enumerate(_shape(value)):
        before, after = widths[2 * axis : 2 * axis + 2]
        if before != 0 or after != 0:
            positions = node.emit("arange", start=-before, stop=size + after)
            value = node.emit("take", value, _mirrored(node, mode, size, positions), axis=axis)
    return value


def _pad_by_data(node: NodeContext, mode: str) -> Value:
    """Return the first input padded by widths computed at run time; negative widths crop first."""
    rank, zero, unit, value = len(node.shape(0)), number(node, 0), number(node, 1), node.value(0)
    fill = node.value(2) if node.has_input(2) else node.scalar(0.0, 0)
    for axis, (before, after) in _computed_widths(node, rank).items():
        size = size_value(node, _shape(value)[axis])
        first = node.emit("maximum", node.emit("subtract", zero, before), zero)
        last = node.emit("add", size, node.emit("minimum", after, zero))
        value = take_range(node, value, axis, first, last, unit)
        before, after = node.emit("maximum", before, zero), node.emit("maximum", after, zero)
        if mode == "constant":
            value = _surround_axis(node, value, axis, (before, after), fill)
        else:
            length = size_value(node, _shape(value)[axis])
            first, last = node.emit("subtract", zero, before), node.emit("add", length, after)
            positions = emit_range(node, first, last, unit)
            value = node.emit("take", value, _mirrored(node, mode, _shape(value)[axis], positions), axis=axis)
    return value


def _computed_widths(node: NodeContext, rank: int) -> dict[int, tuple[Value, Value]]:
    """Return the widths before and after each padded axis, as int64 scalars."""
    num_axes = count_of(node, 3) if node.has_input(3) else rank
    count = count_of(node, 1, 2 * num_axes)
    pads = int_vector(node, 1, count)
    if count != 2 * num_axes:
        raise node.error("the padding does not fit the axes", got=count, expected=f"{2 * num_axes} values")
    sides = node.emit_all("split", (pads,), {"sections": (num_axes, num_axes), "axis": 0})
    if node.has_input(3) and is_computed(node, 3):
        columns = [by_axis(node, int_vector(node, 3), side, 0) for side in sides]
        axes: Sequence[int] = range(rank)
    else:
        columns = [elements(node, side, num_axes) for side in sides]
        axes = [node.axis(axis, rank) for axis in node.ints(3)] if node.has_input(3) else range(rank)
    return dict(zip(axes, zip(*columns, strict=True), strict=True))


def _mirrored(node: NodeContext, mode: str, size: Dim, positions: Value) -> Value:
    """Return positions in an axis, some beyond its ends: reflected, wrapped around, or moved to the nearest end."""
    length, zero, unit = size_value(node, size), number(node, 0), number(node, 1)
    last = node.emit("subtract", length, unit)
    if mode == "edge":
        return node.emit("minimum", node.emit("maximum", positions, zero), last)
    if mode == "wrap":
        return node.emit("mod", positions, length, fmod=False)
    period = node.emit("maximum", node.emit("add", last, last), unit)
    index = node.emit("mod", positions, period, fmod=False)
    return node.emit("minimum", index, node.emit("subtract", period, index))


def _declared_widths(node: NodeContext) -> list[Dim]:
    """Return (before, after) for each axis in turn; the axes are an input since opset 18."""
    rank = len(node.shape(0))
    pads: Sequence[Dim] = node.attr_ints("pads") if node.opset < 11 else node.dims(1)
    axes = tuple(range(rank))
    if node.has_input(3):
        axes = tuple(node.axis(axis, rank) for axis in node.ints(3))
    if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes):
        found = f"({', '.join(map(str, pads))}) for {axes}"
        raise node.error("the padding does not fit the axes", got=found, expected=f"{2 * len(axes)} values")
    widths: list[Dim] = [0] * (2 * rank)
    for position, axis in enumerate(axes):
        widths[2 * axis], widths[2 * axis + 1] = pads[position], pads[position + len(axes)]
    return widths


def _crop(node: NodeContext, widths: Sequence[int]) -> Value:
    """Return the input without the elements removed by negative widths."""
    shape = node.shape(0)
    cropped = [max(-width, 0) for width in widths]
    axes = [axis for axis in range(len(shape)) if any(cropped[2 * axis : 2 * axis + 2])]
    for axis in axes:
        rest = shape[axis] - cropped[2 * axis] - cropped[2 * axis + 1]
        if isinstance(rest, int) and rest < 0:
            raise node.error(
                f"crops more than the size of axis {axis}", got=tuple(widths), expected=f"at most {shape[axis]}"
            )
    if not axes:
        return node.value(0)
    ends = [-cropped[2 * axis + 1] or _OPEN_END for axis in axes]
    begins = [cropped[2 * axis] for axis in axes]
    return node.emit("strided_slice", node.value(0), axes=axes, begin=begins, end=ends, strides=[1] * len(axes))


def _padding_number(node: NodeContext) -> float | None:
    """Return the padding value, or ``None`` if not constant or not equal to any float."""
    if node.opset < 11:
        return node.attr_float("value", 0.0)
    if not node.has_input(2):
        return 0.0
    array = node.array(2)
    shape = node.shape(2) if array is None else array.shape
    if product(shape) != 1:
        raise node.error("the padding value is not a scalar", got=ShapeValue(shape))
    if array is None:
        return None
    if is_float(array.dtype.name):
        return float(array.astype(np.float64).item())
    number = int(array.astype(object).item())
    return float(number) if int(float(number)) == number else None


def surround(node: NodeContext, value: Value, widths: Sequence[Dim], fill: Value) -> Value:
    """Return a value surrounded by copies of a scalar, joined axis by axis: exact for every dtype.

    Args:
        node: the node.
        value: the value.
        widths: the number of elements before and after each axis in turn.
        fill: the scalar.
    """
    scalar = node.reshape(fill, ())
    shape = list(_shape(value))
    for axis in range(len(shape)):
        before, after = widths[2 * axis : 2 * axis + 2]
        parts: list[Value] = [value]
        if before != 0:
            parts.insert(0, node.emit("broadcast_to", scalar, shape=(*shape[:axis], before, *shape[axis + 1 :])))
        if after != 0:
            parts.append(node.emit("broadcast_to", scalar, shape=(*shape[:axis], after, *shape[axis + 1 :])))
        if len(parts) > 1:
            value = node.emit("concat", *parts, axis=axis)
            shape[axis] = shape[axis] + before + after
    return value


def _surround_axis(node: NodeContext, value: Value, axis: int, sides: Sequence[Value], fill: Value) -> Value:
    """Surround a value along an axis with as many copies of a scalar as two int64 scalars say."""
    widths: list[Dim] = [0] * (2 * len(_shape(value)))
    widths[2 * axis : 2 * axis + 2] = as_sizes(node, node.stack(sides), 2)
    return surround(node, value, widths, fill)


def _shape(value: Value) -> tuple[Dim, ...]:
    assert isinstance(value.type, TensorType)
    assert value.type.shape is not None
    return value.type.shape


def _centred(node: NodeContext, axes: Sequence[int]) -> Value:
    """Return the middle of the first input along axes, of sizes computed at run time, with zeros around."""
    value, zero, two = node.value(0), number(node, 0), number(node, 2)
    fill = node.scalar(0.0, 0)
    for axis, target in zip(axes, elements(node, int_vector(node, 1, len(axes)), len(axes)), strict=True):
        size = size_value(node, _shape(value)[axis])
        missing = node.emit("subtract", target, size)
        removed = node.emit("maximum", node.emit("subtract", zero, missing), zero)
        first = node.emit("divide", removed, two)
        last = node.emit("add", first, node.emit("minimum", size, target))
        value = take_range(node, value, axis, first, last, number(node, 1))
        added = node.emit("maximum", missing, zero)
        before = node.emit("divide", added, two)
        value = _surround_axis(node, value, axis, (before, node.emit("subtract", added, before)), fill)
    return value


def _import_center_crop_pad(node: NodeContext) -> Sequence[Imported]:
    """Import centred cropping and padding; of an odd difference, the larger half is at the end."""
    shape = node.shape(0)
    axes = node.attr_ints("axes", range(len(shape)))
    if is_computed(node, 1) and count_of(node, 1, len(axes)) == len(axes):
        return (_centred(node, [node.axis(axis, len(shape)) for axis in axes]),)
    target = node.dims(1)
    if len(target) != len(axes):
        raise node.error("the shape does not fit the axes", got=ShapeValue(target), expected=f"{len(axes)} sizes")
    widths = [0] * (2 * len(shape))
    for axis, size in zip((node.axis(axis, len(shape)) for axis in axes), target, strict=True):
        missing = size - shape[axis]
        if not isinstance(missing, int):
            return (_centred(node, [node.axis(axis, len(shape)) for axis in axes]),)
        before = abs(missing) // 2
        after = abs(missing) - before
        widths[2 * axis : 2 * axis + 2] = (before, after) if missing > 0 else (-before, -after)
    cropped = _crop(node, widths)
    grown = [max(width, 0) for width in widths]
    return (node.emit("nn.pad", cropped, pad_width=grown) if any(grown) else cropped,)


IMPORTERS: dict[str, NodeImporter] = {
    "CenterCropPad": _import_center_crop_pad,
    "Pad": _import_pad,
}
"""The family's importers, by ONNX name."""
