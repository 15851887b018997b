"""Importers for resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from byoc_core.dims import Dim, product
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_resize import (
    BY_GROWTH,
    ComputedTarget,
    Sampling,
    cast_to_image_dtype,
    interpolation_operand,
    resize_axes,
    target_by_factors,
    target_by_sizes,
)
from byoc_core.frontend.onnx.ops.data_sizes import count_of, elements, int_vector, is_computed, read_sizes
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_COORDINATES = {
    "align_corners": "align_corners",
    "asymmetric": "asymmetric",
    "half_pixel": "half_pixel",
    "half_pixel_symmetric": "half_pixel_symmetric",
    "pytorch_half_pixel": "half_pixel_or_first",
    "tf_half_pixel_for_nn": "half_pixel_for_nearest",
    "tf_crop_and_resize": "region",
}
_ROUNDINGS = {"round_prefer_floor": "half_down", "round_prefer_ceil": "half_up", "floor": "floor", "ceil": "ceil"}
_MAX_DENOMINATOR = 256


def _import_upsample(node: NodeContext) -> Sequence[Imported]:
    """Import upsampling; before opset 9 the scales are an attribute."""
    if node.opset >= 9 and node.array(1) is None:
        return (_resize_by_computed_scales(node),)
    scales = node.attr_floats("scales") if node.opset < 9 else _read_scales(node, 1)
    return (_resize_by_scales(node, scales),)


def _resize_by_computed_scales(node: NodeContext) -> Value:
    """Resize by the rule before opset 11, with scales computed at run time."""
    axes = range(len(node.shape(0)))
    _check_count(node, "scales", range(count_of(node, 1, len(axes))), len(axes))
    sampling = Sampling(_read_method(node, ("nearest", "linear")), "asymmetric", BY_GROWTH)
    return resize_axes(node, axes, target_by_factors(node, node.reshape(node.value(1), (len(axes),)), axes), sampling)


def _resize_by_scales(node: NodeContext, scales: Sequence[float]) -> Value:
    """Resize by the rule before opset 11: positions ``i / scale``, rounded down if growing, up if shrinking."""
    method = _read_method(node, ("nearest", "linear"))
    shape = node.shape(0)
    _check_count(node, "scales", scales, len(shape))
    result = interpolation_operand(node, method)
    for rounding, axes in (
        ("floor", [axis for axis, scale in enumerate(scales) if scale > 1]),
        ("ceil", [axis for axis, scale in enumerate(scales) if scale < 1]),
    ):
        if axes:
            result = node.emit(
                "nn.resize",
                result,
                axes=axes,
                sizes=[_scaled(node, shape[axis], scales[axis]) for axis in axes],
                scales=[scales[axis] for axis in axes],
                method=method,
                coordinates="asymmetric",
                rounding=rounding,
            )
    return cast_to_image_dtype(node, result)


def _import_resize(node: NodeContext) -> Sequence[Imported]:
    if node.opset < 11:
        is_known = node.array(1) is not None
        return (_resize_by_scales(node, _read_scales(node, 1)) if is_known else _resize_by_computed_scales(node),)
    shape = node.shape(0)
    axes = [node.axis(axis, len(shape)) for axis in node.attr_ints("axes", range(len(shape)))]
    method = _read_method(node, ("nearest", "linear", "cubic"))
    coordinates = _read_choice(node, "coordinate_transformation_mode", "half_pixel", _COORDINATES)
    rounding = _read_choice(node, "nearest_mode", "round_prefer_floor", _ROUNDINGS)
    antialias = node.attr_flag("antialias")
    if antialias and method == "nearest":
        raise node.error("attribute `antialias` has no meaning for the mode", got=method, expected="linear or cubic")
    outside = node.attr_float("extrapolation_value", 0.0)
    cubic = node.attr_float("cubic_coeff_a", -0.75)
    exclude = node.attr_flag("exclude_outside")
    target = _computed_target(node, axes, is_region=coordinates == "region")
    if target is not None:
        sampling = Sampling(method, coordinates, rounding, cubic, exclude, outside, antialias)
        regions = _read_regions(node, axes) if coordinates == "region" else ()
        return (resize_axes(node, axes, target, sampling, regions),)
    scales, sizes = _read_target(node, [shape[axis] for axis in axes])
    changed = [
        position
        for position, axis in enumerate(axes)
        if sizes[position] != shape[axis] or (scales is not None and scales[position] != 1.0)
    ]
    if not changed:
        return (node.imported(0),)
    attrs: dict[str, object] = {
        "axes": [axes[position] for position in changed],
        "sizes": [sizes[position] for position in changed],
        "scales": None if scales is None else [scales[position] for position in changed],
        "method": method,
        "coordinates": coordinates,
        "cubic_coefficient": cubic,
        "exclude_outside": exclude,
    }
    if antialias:
        return (node.emit("nn.antialias_resize", node.value(0), **attrs),)
    resized = node.emit("nn.resize", interpolation_operand(node, method), rounding=rounding, **attrs)
    return (cast_to_image_dtype(node, resized),)


def _computed_target(node: NodeContext, axes: Sequence[int], *, is_region: bool) -> ComputedTarget | None:
    """Return the target if computed at run time, or needed at run time: for regions, and factors of unknown sizes."""
    policy, shape = node.attr_string("keep_aspect_ratio_policy", "stretch"), node.shape(0)
    if policy not in ("stretch", "not_larger", "not_smaller"):
        raise node.error("attribute `keep_aspect_ratio_policy` is unknown", got=policy)
    if node.has_input(2) and product(node.shape(2)) != 0:
        _check_count(node, "scales", range(count_of(node, 2, len(axes))), len(axes))
        is_needed = is_region or node.array(2) is None
        return target_by_factors(node, node.reshape(node.value(2), (len(axes),)), axes) if is_needed else None
    if not node.has_input(3):
        return None
    _check_count(node, "sizes", range(count_of(node, 3, len(axes))), len(axes))
    is_unknown = is_computed(node, 3) or not all(isinstance(size, int) for size in (*node.dims(3), *shape))
    if is_region or (policy != "stretch" and is_unknown):
        return target_by_sizes(node, int_vector(node, 3, len(axes)), axes, policy)
    return None


def _read_regions(node: NodeContext, axes: Sequence[int]) -> Sequence[tuple[Value, Value]]:
    """Return start and end of each axis, as float64 shares of the axis."""
    count = 2 * len(axes)
    if not node.has_input(1) or count_of(node, 1, count) != count:
        raise node.error("has no region of the axes in input `roi`", expected=f"{count} numbers")
    numbers = elements(node, node.reshape(node.emit("cast", node.value(1), dtype="float64"), (count,)), count)
    return list(zip(numbers[: len(axes)], numbers[len(axes) :], strict=True))


def _read_target(node: NodeContext, old: Sequence[Dim]) -> tuple[list[float] | None, list[Dim]]:
    """Return the scales (``None`` if sizes are given) and the new sizes of the axes."""
    policy = node.attr_string("keep_aspect_ratio_policy", "stretch")
    array = node.array(2) if node.has_input(2) else None
    if node.has_input(2) and (array is None or array.size):
        scales = _read_scales(node, 2)
        _check_count(node, "scales", scales, len(old))
        return scales, [_scaled(node, size, scale) for size, scale in zip(old, scales, strict=True)]
    if not node.has_input(3):
        raise node.error("has neither scales nor sizes")
    sizes = list(read_sizes(node, 3, len(old)))
    _check_count(node, "sizes", sizes, len(old))
    if policy == "stretch":
        return None, sizes
    size_pairs = [
        (size, new) for size, new in zip(old, sizes, strict=True) if isinstance(size, int) and isinstance(new, int)
    ]
    factors = [np.float32(new) / np.float32(size) for size, new in size_pairs]
    factor = float(min(factors) if policy == "not_larger" else max(factors))
    return [factor] * len(old), [math.floor(factor * size + 0.5) for size, _ in size_pairs]


def _read_scales(node: NodeContext, index: int) -> list[float]:
    array = node.array(index)
    if array is None:
        raise node.error("the scales are computed at run time", expected="a constant")
    return [float(scale) for scale in array.astype(np.float64).reshape(-1)]


def _scaled(node: NodeContext, size: Dim, scale: float) -> Dim:
    """Return ``floor(size * scale)``; a dynamic size needs a scale with a small denominator, to be free of rounding."""
    if scale <= 0:
        raise node.error("has a too small scale", got=scale, expected="above 0")
    if isinstance(size, int):
        return math.floor(np.float32(size) * np.float32(scale))
    fraction = Fraction(scale)
    if fraction.denominator > _MAX_DENOMINATOR:
        raise node.error(
            f"scales a dynamic size by a factor other than a fraction with a denominator up to {_MAX_DENOMINATOR}",
            got=scale,
        )
    return size * fraction.numerator // fraction.denominator


def _check_count(node: NodeContext, name: str, values: Sequence[object], count: int) -> None:
    if len(values) != count:
        raise node.error(f"has the wrong number of {name}", got=len(values), expected=count)


def _read_method(node: NodeContext, methods: Sequence[str]) -> str:
    return _read_choice(node, "mode", "nearest", {method: method for method in methods})


def _read_choice(node: NodeContext, name: str, default: str, choices: dict[str, str]) -> str:
    value = node.attr_string(name, default)
    if value not in choices:
        raise node.error(f"attribute `{name}` has an unsupported value", got=value, expected=" or ".join(choices))
    return choices[value]


IMPORTERS: dict[str, NodeImporter] = {"Resize": _import_resize, "Upsample": _import_upsample}
"""The family's importers, by ONNX name."""
