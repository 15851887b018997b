"""Importers for resizing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from byoc_core.dims import Dim
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_sizes import read_sizes
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]

_COORDINATES = {
    "align_corners": "align_corners",
    "asymmetric": "asymmetric",
    "half_pixel": "half_pixel",
    "half_pixel_symmetric": "half_pixel_symmetric",
    "pytorch_half_pixel": "half_pixel_or_first",
    "tf_half_pixel_for_nn": "half_pixel_for_nearest",
}
_ROUNDINGS = {"round_prefer_floor": "half_down", "round_prefer_ceil": "half_up", "floor": "floor", "ceil": "ceil"}
_MAX_DENOMINATOR = 256


def _import_upsample(node: NodeContext) -> Sequence[Imported]:
    """Import upsampling; before opset 9 the scales are an attribute."""
    scales = node.attr_floats("scales") if node.opset < 9 else _read_scales(node, 1)
    return (_resize_by_scales(node, scales),)


def _resize_by_scales(node: NodeContext, scales: Sequence[float]) -> Value:
    """Resize by the rule before opset 11: positions ``i / scale``, rounded down if growing, up if shrinking."""
    method = _read_method(node, ("nearest", "linear"))
    shape = node.shape(0)
    _check_count(node, "scales", scales, len(shape))
    result = node.value(0)
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
    return result


def _import_resize(node: NodeContext) -> Sequence[Imported]:
    if node.opset < 11:
        return (_resize_by_scales(node, _read_scales(node, 1)),)
    shape = node.shape(0)
    axes = [node.axis(axis, len(shape)) for axis in node.attr_ints("axes", range(len(shape)))]
    method = _read_method(node, ("nearest", "linear", "cubic"))
    coordinates = _read_choice(node, "coordinate_transformation_mode", "half_pixel", _COORDINATES)
    rounding = _read_choice(node, "nearest_mode", "round_prefer_floor", _ROUNDINGS)
    if node.attr_flag("antialias"):
        raise node.error("attribute `antialias` has an unsupported value", expected="0")
    node.ignore_attrs("extrapolation_value")  # concerns an unsupported coordinate mode
    scales, sizes = _read_target(node, [shape[axis] for axis in axes])
    changed = [
        position
        for position, axis in enumerate(axes)
        if sizes[position] != shape[axis] or (scales is not None and scales[position] != 1.0)
    ]
    cubic = node.attr_float("cubic_coeff_a", -0.75)
    exclude = node.attr_flag("exclude_outside")
    if not changed:
        return (node.imported(0),)
    resized = node.emit(
        "nn.resize",
        node.value(0),
        axes=[axes[position] for position in changed],
        sizes=[sizes[position] for position in changed],
        scales=None if scales is None else [scales[position] for position in changed],
        method=method,
        coordinates=coordinates,
        rounding=rounding,
        cubic_coefficient=cubic,
        exclude_outside=exclude,
    )
    return (resized,)


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
    sizes = list(read_sizes(node, 3))
    _check_count(node, "sizes", sizes, len(old))
    if policy == "stretch":
        return None, sizes
    if policy not in ("not_larger", "not_smaller"):
        raise node.error("attribute `keep_aspect_ratio_policy` is unknown", got=policy)
    size_pairs = [
        (size, new) for size, new in zip(old, sizes, strict=True) if isinstance(size, int) and isinstance(new, int)
    ]
    if len(size_pairs) != len(old):
        raise node.error("attribute `keep_aspect_ratio_policy` needs known sizes", got=policy)
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
