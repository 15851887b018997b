"""Resizing by factors, sizes or regions computed at run time: the neighbours of each sampled position are gathered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from byoc_core.dtypes import is_float, to_numpy
from byoc_core.frontend.onnx.node_context import NodeContext
from byoc_core.frontend.onnx.ops.data_dependent import emit_range
from byoc_core.frontend.onnx.ops.data_sizes import elements, number, size_value, sizes_value
from byoc_core.ir.module import Value

__all__ = [
    "BY_GROWTH",
    "ComputedTarget",
    "Sampling",
    "cast_to_image_dtype",
    "interpolation_operand",
    "resize_axes",
    "target_by_factors",
    "target_by_sizes",
]

BY_GROWTH = "by_growth"
"""The rounding before operator set 11: down if the axis grows, else up."""

_INTERPOLATED_INTEGERS = {
    "int8": (-(2.0**7), 2.0**7 - 1),
    "uint8": (0.0, 2.0**8 - 1),
    "int16": (-(2.0**15), 2.0**15 - 1),
    "uint16": (0.0, 2.0**16 - 1),
    "int32": (-(2.0**31), 2.0**31 - 1),
    "uint32": (0.0, 2.0**32 - 1),
}
"""The least and the greatest number of the integers weighed as float64 by linear interpolation, by dtype."""

_ROUNDING = 2.0**-40
"""More than the relative error of a mean in float64."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampled positions and the interpolation, in the terms of ``nn.resize``.

    Attributes:
        method: ``nearest``, ``linear`` or ``cubic``.
        coordinates: the position of an index; ``region`` for positions in a region of the axis.
        rounding: the neighbour of ``nearest``; also :data:`BY_GROWTH`.
        cubic_coefficient: the slope parameter of ``cubic``.
        exclude_outside: whether ``cubic`` leaves out neighbours beyond the ends.
        outside: the value beyond the ends of the axis, for positions in a region.
        antialias: whether ``linear`` and ``cubic`` are stretched by the step between positions above 1.
    """

    method: str
    coordinates: str
    rounding: str
    cubic_coefficient: float = -0.75
    exclude_outside: bool = False
    outside: float = 0.0
    antialias: bool = False


@dataclass(frozen=True, slots=True)
class ComputedTarget:
    """The new size of each axis, an int64 scalar, and the factor for positions, a float64 scalar."""

    sizes: Sequence[Value]
    factors: Sequence[Value]


def target_by_factors(node: NodeContext, factors: Value, axes: Sequence[int]) -> ComputedTarget:
    """Return the target of axes of the first input scaled by float32 factors: ``floor(size * factor)``."""
    lengths = _cast(node, _lengths(node, axes), "float32")
    sizes = node.emit("floor", node.emit("multiply", lengths, factors))
    return _target(node, _cast(node, sizes, "int64"), _cast(node, factors, "float64"), len(axes))


def target_by_sizes(node: NodeContext, sizes: Value, axes: Sequence[int], policy: str) -> ComputedTarget:
    """Return the target of axes of the first input resized to int64 sizes.

    With the policies ``not_larger`` and ``not_smaller`` the smallest or largest factor is that of all axes.
    """
    lengths = _lengths(node, axes)
    if policy == "stretch":
        factors = node.emit("divide", _cast(node, sizes, "float64"), _cast(node, lengths, "float64"))
        return _target(node, sizes, factors, len(axes))
    ratios = node.emit("divide", _cast(node, sizes, "float32"), _cast(node, lengths, "float32"))
    extreme = node.emit("min" if policy == "not_larger" else "max", ratios, axis=(0,), keepdims=True)
    factors = node.emit("broadcast_to", _cast(node, extreme, "float64"), shape=(len(axes),))
    scaled = node.emit("multiply", _cast(node, lengths, "float64"), factors)
    rounded = node.emit("floor", node.emit("add", scaled, _real(node, 0.5)))
    return _target(node, _cast(node, rounded, "int64"), factors, len(axes))


def resize_axes(
    node: NodeContext,
    axes: Sequence[int],
    target: ComputedTarget,
    sampling: Sampling,
    regions: Sequence[tuple[Value, Value]] = (),
) -> Value:
    """Return the first input resized axis by axis.

    Args:
        node: the node.
        axes: the axes, from the front.
        target: the new sizes, and the factors.
        sampling: the positions and the interpolation.
        regions: start and end of each axis, as float64 shares of the axis; for positions in a region.
    """
    dtype, value = node.type(0).dtype, interpolation_operand(node, sampling.method, antialias=sampling.antialias)
    is_narrow = sampling.method != "nearest" and is_float(dtype) and dtype not in ("float32", "float64")
    value = _cast(node, value, "float32") if is_narrow else value
    for index, axis in enumerate(axes):
        region = regions[index] if regions else None
        value = _Axis(node, value, axis, target.sizes[index], target.factors[index], sampling).resized(region)
    return cast_to_image_dtype(node, value)


def interpolation_operand(node: NodeContext, method: str, *, antialias: bool = False) -> Value:
    """Return the first input; integers as float64 for linear interpolation."""
    dtype, value = node.type(0).dtype, node.value(0)
    is_weighed = method == "linear" and not antialias and dtype in _INTERPOLATED_INTEGERS
    return _cast(node, value, "float64") if is_weighed else value


def cast_to_image_dtype(node: NodeContext, value: Value) -> Value:
    """Return a value in the dtype of the first input; integers lose their fraction, as in ONNX Runtime.

    A mean of equal integers is this integer: a mean below by the rounding of float64 is raised first. ONNX Runtime
    weighs in float32: a mean near an integer may be cut to the integer below there.
    """
    dtype, found = node.type(0).dtype, node.tensor_type(value).dtype
    if found == dtype or is_float(dtype):
        return value if found == dtype else _cast(node, value, dtype)
    if found != "float64":
        return _cast(node, value, dtype)
    least, greatest = _INTERPOLATED_INTEGERS[dtype]
    raised = node.emit("multiply", value, _real(node, 1.0 + _ROUNDING))
    within = node.emit("minimum", node.emit("maximum", raised, _real(node, least)), _real(node, greatest))
    return _cast(node, within, dtype)


class _Axis:
    """An axis of a tensor being resized."""

    def __init__(
        self, node: NodeContext, value: Value, axis: int, size: Value, factor: Value, sampling: Sampling
    ) -> None:
        self._node, self._value, self._axis, self._sampling = node, value, axis, sampling
        self._size, self._factor = size, factor
        self._length = _cast(node, size_value(node, node.shape_of(value)[axis]), "float64")
        self._last = node.emit("subtract", self._length, _real(node, 1.0))

    def resized(self, region: tuple[Value, Value] | None) -> Value:
        """Return the tensor with the axis resized."""
        node, sampling = self._node, self._sampling
        positions = self._positions(region)
        if sampling.method == "nearest":
            result = self._gather(self._rounded(positions))
        elif sampling.antialias:
            result = self._filtered(positions)
        elif sampling.method == "linear":
            result = self._linear(node.emit("maximum", node.emit("minimum", positions, self._last), _real(node, 0.0)))
        else:
            result = self._cubic(positions)
        if region is None:
            return result
        is_outside = node.emit("logical_not", self._is_inside(positions))
        fill = node.constant(np.asarray(sampling.outside).astype(to_numpy(node.tensor_type(result).dtype)))
        return node.emit("where", self._column(is_outside), fill, result)

    def _positions(self, region: tuple[Value, Value] | None) -> Value:
        """Return the sampled position of each index, in float64."""
        node, coordinates = self._node, self._sampling.coordinates
        indices = _cast(node, emit_range(node, number(node, 0), self._size, number(node, 1)), "float64")
        size, half = _cast(node, self._size, "float64"), _real(node, 0.5)
        steps = node.emit("maximum", node.emit("subtract", size, _real(node, 1.0)), _real(node, 1.0))
        is_single = node.emit("equal", self._size, number(node, 1))
        if region is not None:
            start, end = (node.emit("multiply", share, self._last) for share in region)
            step = node.emit("divide", node.emit("subtract", end, start), steps)
            positions = node.emit("add", start, node.emit("multiply", indices, step))
            middle = node.emit("multiply", half, node.emit("add", start, end))
            return node.emit("where", is_single, middle, positions)
        if coordinates == "asymmetric":
            return node.emit("divide", indices, self._factor)
        if coordinates == "align_corners":
            return node.emit("divide", node.emit("multiply", indices, self._last), steps)
        centres = node.emit("divide", node.emit("add", indices, half), self._factor)
        if coordinates == "half_pixel_for_nearest":
            return centres
        positions = node.emit("subtract", centres, half)
        if coordinates == "half_pixel_or_first":
            return node.emit("where", is_single, _real(node, 0.0), positions)
        if coordinates == "half_pixel_symmetric":
            rest = node.emit("subtract", self._length, node.emit("divide", size, self._factor))
            return node.emit("add", positions, node.emit("multiply", rest, half))
        return positions

    def _rounded(self, positions: Value) -> Value:
        node, half = self._node, _real(self._node, 0.5)
        floor, ceil = (node.emit(op, positions) for op in ("floor", "ceil"))
        if self._sampling.rounding == BY_GROWTH:
            return node.emit("where", node.emit("greater", self._factor, _real(node, 1.0)), floor, ceil)
        if self._sampling.rounding == "half_down":
            return node.emit("ceil", node.emit("subtract", positions, half))
        if self._sampling.rounding == "half_up":
            return node.emit("floor", node.emit("add", positions, half))
        return floor if self._sampling.rounding == "floor" else ceil

    def _linear(self, positions: Value) -> Value:
        node = self._node
        first = node.emit("floor", positions)
        share = node.emit("subtract", positions, first)
        rest = node.emit("subtract", _real(node, 1.0), share)
        following = node.emit("add", first, _real(node, 1.0))
        return node.emit("add", self._weighed(first, rest), self._weighed(following, share))

    def _cubic(self, positions: Value) -> Value:
        """Return sums of four neighbours by Keys' cubic convolution (1981)."""
        node = self._node
        floor = node.emit("floor", positions)
        neighbours = [node.emit("add", floor, _real(node, float(step))) for step in (-1, 0, 1, 2)]
        weights = [self._cubic_weight(node.emit("subtract", positions, neighbour)) for neighbour in neighbours]
        if self._sampling.exclude_outside:
            zero = _real(node, 0.0)
            pairs = zip(neighbours, weights, strict=True)
            weights = [node.emit("where", self._is_inside(neighbour), weight, zero) for neighbour, weight in pairs]
            total = _sum(node, weights)
            weights = [node.emit("divide", weight, total) for weight in weights]
        return _sum(node, [self._weighed(*pair) for pair in zip(neighbours, weights, strict=True)])

    def _filtered(self, positions: Value) -> Value:
        """Return weighted sums of all elements, as a matrix product; the last element is repeated beyond the ends.

        The weight of an element is the interpolation's at the distance times the factor, if the factor is below 1.
        """
        node, sampling = self._node, self._sampling
        width, unit = 1 if sampling.method == "linear" else 2, _real(node, 1.0)
        shrinking = node.emit("minimum", self._factor, unit)
        support = _cast(node, node.emit("ceil", node.emit("divide", _real(node, float(width)), shrinking)), "int64")
        end = node.emit("add", _cast(node, self._length, "int64"), support)
        elements = emit_range(node, node.emit("subtract", number(node, 0), support), end, number(node, 1))
        elements = _cast(node, elements, "float64")
        (count,) = node.shape_of(elements)
        column = node.reshape(elements, (count, 1))
        distance = node.emit("multiply", node.emit("abs", node.emit("subtract", column, positions)), shrinking)
        if sampling.method == "linear":
            weights: Value = node.emit("maximum", node.emit("subtract", unit, distance), _real(node, 0.0))
        else:
            is_near = node.emit("less", distance, _real(node, 2.0))
            weights = node.emit("where", is_near, self._cubic_weight(distance), _real(node, 0.0))
        if sampling.exclude_outside:
            weights = node.emit("where", self._is_inside(column), weights, _real(node, 0.0))
        weights = node.emit("divide", weights, node.emit("sum", weights, axis=(0,), keepdims=True))
        weights = _cast(node, weights, node.tensor_type(self._value).dtype)
        values, rank = self._gather(elements), len(node.shape_of(self._value))
        order = [*(axis for axis in range(rank) if axis != self._axis), self._axis]
        result = node.emit("matmul", node.emit("permute_dims", values, axes=order), weights)
        return node.emit("permute_dims", result, axes=[order.index(axis) for axis in range(rank)])

    def _cubic_weight(self, distance: Value) -> Value:
        """Return the weight of a neighbour less than two elements away."""
        node, a = self._node, self._sampling.cubic_coefficient
        d = node.emit("abs", distance)

        def horner(*coefficients: float) -> Value:
            value: Value = _real(node, coefficients[0])
            for coefficient in coefficients[1:]:
                value = node.emit("add", node.emit("multiply", value, d), _real(node, coefficient))
            return value

        near, far = horner(a + 2, -(a + 3), 0.0, 1.0), horner(a, -5 * a, 8 * a, -4 * a)
        return node.emit("where", node.emit("less_equal", d, _real(node, 1.0)), near, far)

    def _is_inside(self, positions: Value) -> Value:
        node = self._node
        ends = node.emit("less_equal", _real(node, 0.0), positions), node.emit("less_equal", positions, self._last)
        return node.emit("logical_and", *ends)

    def _weighed(self, positions: Value, weights: Value) -> Value:
        """Return the elements at positions along the axis times their weights."""
        node = self._node
        weights = _cast(node, weights, node.tensor_type(self._value).dtype)
        return node.emit("multiply", self._gather(positions), self._column(weights))

    def _gather(self, positions: Value) -> Value:
        """Return the elements at whole positions along the axis; beyond the ends the last."""
        node = self._node
        clipped = node.emit("maximum", node.emit("minimum", positions, self._last), _real(node, 0.0))
        return node.emit("take", self._value, _cast(node, clipped, "int64"), axis=self._axis)

    def _column(self, vector: Value) -> Value:
        """Return a vector along the axis, for broadcasting."""
        (size,) = self._node.shape_of(vector)
        trailing = len(self._node.shape_of(self._value)) - 1 - self._axis
        return self._node.reshape(vector, (size, *(1 for _ in range(trailing))))


def _lengths(node: NodeContext, axes: Sequence[int]) -> Value:
    shape = node.shape(0)
    return sizes_value(node, [shape[axis] for axis in axes])


def _target(node: NodeContext, sizes: Value, factors: Value, count: int) -> ComputedTarget:
    return ComputedTarget(elements(node, sizes, count), elements(node, factors, count))


def _sum(node: NodeContext, values: Sequence[Value]) -> Value:
    total, *rest = values
    for value in rest:
        total = node.emit("add", total, value)
    return total


def _real(node: NodeContext, value: float) -> Value:
    return node.constant(np.float64(value))


def _cast(node: NodeContext, value: Value, dtype: str) -> Value:
    return value if node.tensor_type(value).dtype == dtype else node.emit("cast", value, dtype=dtype)
