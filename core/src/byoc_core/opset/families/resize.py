"""Resizing of images and other tensors by interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from byoc_core.dims import Dim
from byoc_core.kernels.numpy_kernel import NumpyKernel
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORM
from byoc_core.opset.type_rules import FLOAT_KINDS, NUMBER_KINDS, require_kind, resolve_axes
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import ValueFacts, bound_towards_zero, summed

__all__ = ["OPS"]


def _resize(
    x: NDArray,
    *,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    scales: tuple[float, ...] | None,
    method: str,
    coordinates: str,
    rounding: str,
    cubic_coefficient: float,
    exclude_outside: bool,
) -> NDArray:
    """Return ``x`` resampled along axes to other sizes.

    Cost: for each axis, a pass over the result (nearest), two (linear) or four (cubic). Positions are computed in
    float64 for every dtype.
    """
    if x.size == 0:
        return np.zeros(
            [dict(zip(axes, sizes, strict=True)).get(axis, size) for axis, size in enumerate(x.shape)], x.dtype
        )
    wide = x.dtype if method == "nearest" else working_dtype(x.dtype)
    result = x.astype(wide, copy=False)
    for position, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        length = x.shape[axis]
        scale = size / length if scales is None else scales[position]
        if size == length and scale == 1.0:
            continue
        positions = _sample_positions(size, length, scale, coordinates)
        if method == "nearest":
            result = result.take(np.clip(_ROUNDINGS[rounding](positions), 0, length - 1).astype(np.int64), axis)
        elif method == "linear":
            result = _weigh(result, axis, *_linear_taps(np.clip(positions, 0, length - 1)))
        else:
            taps, weights = _cubic_taps(positions, cubic_coefficient)
            if exclude_outside:
                weights = np.where((taps >= 0) & (taps < length), weights, 0.0)
                weights /= weights.sum(axis=0)
            result = _weigh(result, axis, taps, weights)
    return np.ascontiguousarray(result.astype(x.dtype, copy=False))


def _antialias_resize(
    x: NDArray,
    *,
    axes: tuple[int, ...],
    sizes: tuple[int, ...],
    scales: tuple[float, ...] | None,
    method: str,
    coordinates: str,
    cubic_coefficient: float,
    exclude_outside: bool,
) -> NDArray:
    """Return ``x`` resampled along axes by a filter as wide as the step between sampled positions.

    Cost: for each axis, a pass over the result for each element under the filter: ``2 / scale`` (linear) or
    ``4 / scale`` (cubic). Positions and weights are computed in float64 for every dtype.
    """
    if x.size == 0:
        return np.zeros(
            [dict(zip(axes, sizes, strict=True)).get(axis, size) for axis, size in enumerate(x.shape)], x.dtype
        )
    result = x.astype(working_dtype(x.dtype), copy=False)
    for position, (axis, size) in enumerate(zip(axes, sizes, strict=True)):
        length = x.shape[axis]
        scale = size / length if scales is None else scales[position]
        if size == length and scale == 1.0:
            continue
        positions = _sample_positions(size, length, scale, coordinates)
        shrinking = min(scale, 1.0)
        support = (1 if method == "linear" else 2) / shrinking
        taps = np.ceil(positions - support) + np.arange(math.floor(2 * support) + 1)[:, np.newaxis]
        distance = np.abs(taps - positions) * shrinking
        weights = np.maximum(1 - distance, 0) if method == "linear" else _cubic_weights(distance, cubic_coefficient)
        if exclude_outside:
            weights = np.where((taps >= 0) & (taps < length), weights, 0.0)
        result = _weigh(result, axis, taps.astype(np.int64), weights / weights.sum(axis=0))
    return np.ascontiguousarray(result.astype(x.dtype, copy=False))


def _sample_positions(size: int, length: int, scale: float, coordinates: str) -> NDArray:
    """Return for each index of the result the sampled position in the operand."""
    index = np.arange(size, dtype=np.float64)
    if coordinates == "asymmetric":
        return np.asarray(index / scale)
    if coordinates == "align_corners":
        return np.asarray(index * (length - 1) / max(size - 1, 1))
    if coordinates == "half_pixel_for_nearest":
        return np.asarray((index + 0.5) / scale)
    if coordinates == "half_pixel_or_first" and size == 1:
        return np.zeros(1)
    positions = (index + 0.5) / scale - 0.5
    if coordinates == "half_pixel_symmetric":
        positions += (length - size / scale) / 2
    return np.asarray(positions)


_ROUNDINGS: dict[str, Callable[[NDArray], NDArray]] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "half_down": lambda positions: np.ceil(positions - 0.5),
    "half_up": lambda positions: np.floor(positions + 0.5),
}


def _linear_taps(positions: NDArray) -> tuple[NDArray, NDArray]:
    first = np.floor(positions)
    part = positions - first
    return np.stack([first, first + 1]).astype(np.int64), np.stack([1 - part, part])


def _cubic_taps(positions: NDArray, coefficient: float) -> tuple[NDArray, NDArray]:
    """Return four neighbours and their weights by Keys' cubic convolution (1981)."""
    first = np.floor(positions) - 1
    taps = first + np.arange(4)[:, np.newaxis]
    return taps.astype(np.int64), _cubic_weights(np.abs(positions - taps), coefficient)


def _cubic_weights(distance: NDArray, coefficient: float) -> NDArray:
    """Return the weights of elements at distances from the sampled position; 0 from the distance 2 on."""
    near = ((coefficient + 2) * distance - (coefficient + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * coefficient - 4 * coefficient
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))


def _weigh(x: NDArray, axis: int, taps: NDArray, weights: NDArray) -> NDArray:
    """Return the weighted sum of neighbours along an axis; neighbours outside are replaced by the nearest inside."""
    column = [-1, *[1] * (x.ndim - 1 - axis)]
    inside = np.clip(taps, 0, x.shape[axis] - 1)
    result = x.take(inside[0], axis) * weights[0].astype(x.dtype).reshape(column)
    for tap, weight in zip(inside[1:], weights[1:], strict=True):
        result += x.take(tap, axis) * weight.astype(x.dtype).reshape(column)
    return np.asarray(result)


_FLOPS_PER_AXIS = {"nearest": 0, "linear": 3, "cubic": 7}


def _infer_resize(context: TypeContext) -> tuple[Type, ...]:
    attrs = context.attrs
    type_ = require_kind(context, 0, (*NUMBER_KINDS, "bool") if attrs["method"] == "nearest" else FLOAT_KINDS)
    result = list(context.shape(0))
    axes = resolve_axes(context, attrs["axes"], len(result), attribute="axes")
    if list(axes) != list(attrs["axes"]):
        raise context.error("attribute `axes` counts from the end", got=attrs["axes"], expected=axes)
    for name in ("sizes", "scales"):
        values = attrs[name]
        if values is not None and len(values) != len(axes):
            raise context.error(
                f"attribute `{name}` has {len(values)} values",
                got=values,
                expected=f"a value for each of {len(axes)} axes",
            )
    if attrs["scales"] is not None and min(attrs["scales"], default=1.0) <= 0:
        problem = "attribute `scales` has a value out of range"
        raise context.error(problem, got=attrs["scales"], expected="above 0")
    for axis, size in zip(axes, attrs["sizes"], strict=True):
        if isinstance(size, int) and size < 1:
            raise context.error("attribute `sizes` has a value out of range", got=size, expected="1 or more")
        result[axis] = size
    return (TensorType(tuple(result), type_.dtype),)


def _resize_flops(context: OpContext) -> Dim:
    return context.elements() * (_FLOPS_PER_AXIS[context.attrs["method"]] * len(context.attrs["axes"]))


def _antialias_flops(context: OpContext) -> Dim:
    """Return two operations for each element under the filter of each axis; the filter of an axis grown if unknown."""
    attrs, shape = context.attrs, context.operand_shape()
    total, width = 0, 2 if attrs["method"] == "linear" else 4
    for axis, size in zip(attrs["axes"], attrs["sizes"], strict=True):
        old = shape[axis] if axis < len(shape) else 1
        shrinks = isinstance(old, int) and isinstance(size, int) and old > size
        total += 2 * (-(-width * old // size) if shrinks else width)
    return context.elements() * total


def _resize_bound(facts: ValueFacts) -> float:
    """Return the bound of means of neighbours. Infinity for ``cubic``, with possibly negative weights."""
    return math.inf if facts.context.attrs["method"] == "cubic" else bound_towards_zero(facts)


def _antialias_bound(facts: ValueFacts) -> float:
    """Return the bound of means of the elements under a filter; infinity where weights may be negative or undefined.

    Weights are undefined where ``exclude_outside`` leaves out all elements under the filter.
    """
    attrs = facts.context.attrs
    if attrs["method"] == "cubic" or attrs["exclude_outside"]:
        return math.inf
    lengths = facts.sizes(0)
    scales = attrs["scales"] or [size / lengths[axis] for axis, size in zip(attrs["axes"], attrs["sizes"], strict=True)]
    taps = sum(math.floor(2 / min(scale, 1.0)) + 1 for scale in scales)
    return summed(bound_towards_zero(facts), 2 * taps)  # a weight is rounded, too


_TARGET = (
    AttrSpec("axes", AttrKind.INTS, doc="The resized axes, counted from the front."),
    AttrSpec("sizes", AttrKind.DIMS, doc="The new size of each axis."),
    AttrSpec(
        "scales",
        AttrKind.FLOATS,
        None,
        doc="The factor of each axis for computing positions; ``None``: the new size divided by the old size.",
    ),
)
_COORDINATES = AttrSpec(
    "coordinates",
    AttrKind.STR,
    "half_pixel",
    (
        "half_pixel",
        "half_pixel_symmetric",
        "half_pixel_or_first",
        "half_pixel_for_nearest",
        "align_corners",
        "asymmetric",
    ),
    doc="The position sampled for an index ``i`` of the result: ``(i + 0.5) / scale - 0.5``; the same "
    "around the middle of the axis; the same but 0 for a single index; ``(i + 0.5) / scale``; "
    "``i * (old - 1) / (new - 1)``; ``i / scale``.",
)
_COEFFICIENT = AttrSpec("cubic_coefficient", AttrKind.FLOAT, -0.75, doc="The slope parameter of ``cubic``.")


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.resize",
        (OperandSpec("x"),),
        _infer_resize,
        attrs=(
            *_TARGET,
            AttrSpec(
                "method", AttrKind.STR, "nearest", tuple(_FLOPS_PER_AXIS), doc="The interpolation between elements."
            ),
            _COORDINATES,
            AttrSpec(
                "rounding",
                AttrKind.STR,
                "half_down",
                ("half_down", "half_up", "floor", "ceil"),
                doc="The neighbour chosen by ``nearest``.",
            ),
            _COEFFICIENT,
            AttrSpec(
                "exclude_outside",
                AttrKind.BOOL,
                False,
                doc="Whether ``cubic`` leaves out neighbours beyond the ends, instead of repeating the last element.",
            ),
        ),
        flops=_resize_flops,
        kernel=NumpyKernel(_resize),
        rounding=NORM,  # `nearest` counts no operations, and computes nothing; other methods do
        bound=_resize_bound,
        cases=lambda: (
            example((2, 16, 9, 8), axes=(2, 3), sizes=(18, 16)),
            example((2, 16, 9, 8), axes=(2, 3), sizes=(18, 16), method="linear"),
            example((2, 16, 9, 8), axes=(2, 3), sizes=(5, 4), method="cubic"),
        ),
        doc="Return ``x`` resampled along axes to other sizes, axis by axis.\n\n"
        "Shapes: the shape of ``x``, with ``sizes[i]`` in place of the size of ``axes[i]``.",
    ),
    OpDef(
        "nn.antialias_resize",
        (OperandSpec("x"),),
        _infer_resize,
        attrs=(
            *_TARGET,
            AttrSpec("method", AttrKind.STR, "linear", ("linear", "cubic"), doc="The filter: a triangle, or Keys'."),
            _COORDINATES,
            _COEFFICIENT,
            AttrSpec(
                "exclude_outside",
                AttrKind.BOOL,
                False,
                doc="Whether to leave out elements beyond the ends, instead of repeating the last element.",
            ),
        ),
        flops=_antialias_flops,
        kernel=NumpyKernel(_antialias_resize),
        rounding=NORM,
        bound=_antialias_bound,
        cases=lambda: (
            example((2, 16, 9, 8), axes=(2, 3), sizes=(4, 3)),
            example((2, 16, 9, 8), axes=(2, 3), sizes=(5, 4), method="cubic"),
            example((2, 16, 9, 8), axes=(2, 3), sizes=(5, 12), exclude_outside=True),
        ),
        doc="Return ``x`` resampled along axes to other sizes, axis by axis, without aliasing: an axis made smaller is "
        "filtered by the interpolation stretched by the factor ``1 / scale``, so all elements count. An axis made "
        "larger is interpolated as by ``nn.resize``. The weights of a sample sum to 1.\n\n"
        "Shapes: the shape of ``x``, with ``sizes[i]`` in place of the size of ``axes[i]``.",
    ),
)
"""The family's ops."""
