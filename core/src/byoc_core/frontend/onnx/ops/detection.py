"""Importers for ops of detectors, and of sampled images."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from byoc_core.dims import Dim
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx.node_context import Imported, NodeContext, NodeImporter
from byoc_core.frontend.onnx.ops.data_dependent import emit_sized
from byoc_core.frontend.onnx.ops.data_sizes import read_sizes, size_value
from byoc_core.frontend.onnx.shape_value import ShapeValue
from byoc_core.ir.module import Value

__all__ = ["IMPORTERS"]


def _import_non_max_suppression(node: NodeContext) -> Sequence[Imported]:
    """Import non-maximum suppression; without a maximum there are no boxes, without a least score all count."""
    center = node.attr_int("center_point_box", 0)
    if center not in (0, 1):
        raise node.error("attribute `center_point_box` is unknown", got=center, expected="0 or 1")
    dtype = node.type(0).dtype

    def scalar(index: int, default: float, dtype: str) -> Value:
        if not node.has_input(index):
            return node.constant(np.asarray(default).astype(to_numpy(dtype)))
        value = node.reshape(node.value(index), ())
        return value if node.type(index).dtype == dtype else node.emit("cast", value, dtype=dtype)

    limits = scalar(2, 0, "int64"), scalar(3, 0.0, dtype), scalar(4, -np.inf, dtype)
    return emit_sized(
        node, "nn.non_max_suppression", node.value(0), node.value(1), *limits, center_point_box=bool(center)
    )


_METHODS = {
    "bilinear": "linear",
    "bicubic": "cubic",
    "nearest": "nearest",
    "linear": "linear",
    "cubic": "cubic",
}
"""Interpolation by name: before opset 20 the names of images, then of any number of axes."""


def _choice(node: NodeContext, name: str, default: str, choices: Collection[str]) -> str:
    value = node.attr_string(name, default)
    if value not in choices:
        raise node.error(f"attribute `{name}` is unknown", got=value, expected=" or ".join(choices))
    return value


def _import_grid_sample(node: NodeContext) -> Sequence[Imported]:
    mode = _choice(node, "mode", "bilinear" if node.opset < 20 else "linear", _METHODS)
    attrs = {
        "method": _METHODS[mode],
        "border": _choice(node, "padding_mode", "zeros", ("zeros", "border", "reflection")),
        "align_corners": node.attr_flag("align_corners"),
    }
    return (node.emit("nn.grid_sample", node.value(0), node.value(1), **attrs),)


def _import_affine_grid(node: NodeContext) -> Sequence[Imported]:
    """Import a grid of positions by affine maps: sums of a column of the map times a coordinate, for each axis.

    An axis of a single element has the position -1 with ``align_corners``.
    """
    sizes, dtype = read_sizes(node, 1), node.type(0).dtype
    rank = len(sizes) - 2
    if rank not in (2, 3):
        raise node.error(
            "has a size of the wrong number of axes", got=ShapeValue(tuple(sizes)), expected="4 or 5 sizes"
        )
    shape = node.shape(0)
    if len(shape) != 3 or any(
        isinstance(size, int) and size != own for size, own in zip(shape[1:], (rank, rank + 1), strict=True)
    ):
        raise node.error("has maps of the wrong shape", got=ShapeValue(shape), expected=f"(N, {rank}, {rank + 1})")
    is_narrow = dtype not in ("float32", "float64")
    work = "float32" if is_narrow else dtype
    maps = node.emit("cast", node.value(0), dtype=work) if is_narrow else node.value(0)

    def column(index: int) -> Value:
        part = node.emit("take", maps, node.constant(np.int64(index)), axis=2)
        return node.reshape(part, (shape[0], *[1] * rank, rank))

    result, align_corners = column(rank), node.attr_flag("align_corners")
    for axis, size in enumerate(sizes[2:]):
        coordinates = _coordinates(node, size, work, align_corners=align_corners)
        own = [size if other == axis else 1 for other in range(rank)]
        term = node.emit("multiply", node.reshape(coordinates, (1, *own, 1)), column(rank - 1 - axis))
        result = node.emit("add", result, term)
    return (node.emit("cast", result, dtype=dtype) if is_narrow else result,)


def _coordinates(node: NodeContext, size: Dim, dtype: str, *, align_corners: bool) -> Value:
    """Return as many numbers from -1 to 1, a step apart: the centres of equal parts, or both ends and between."""
    length = node.emit("cast", size_value(node, size), dtype=dtype)
    unit, two = (node.constant(np.asarray(value).astype(to_numpy(dtype))) for value in (1, 2))
    indices = node.emit("cast", node.emit("arange", stop=size), dtype=dtype)
    if align_corners:
        step = node.emit("divide", two, node.emit("maximum", node.emit("subtract", length, unit), unit))
        return node.emit("subtract", node.emit("multiply", indices, step), unit)
    step = node.emit("divide", two, length)
    start = node.emit("subtract", node.emit("divide", step, two), unit)
    return node.emit("add", start, node.emit("multiply", indices, step))


def _import_roi_align(node: NodeContext) -> Sequence[Imported]:
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    mode = default
    if node.opset >= 16:
        modes = ("half_pixel", "output_half_pixel")
        mode = _choice(node, "coordinate_transformation_mode", default, modes)
    attrs = {
        "size": (node.attr_int("output_height", 1), node.attr_int("output_width", 1)),
        "samples": node.attr_int("sampling_ratio", 0),
        "scale": node.attr_float("spatial_scale", 1.0),
        "method": _choice(node, "mode", "avg", ("avg", "max")),
        "half_pixel": mode == "half_pixel",
    }
    return (node.emit("nn.roi_align", *node.values(), **attrs),)


def _import_max_roi_pool(node: NodeContext) -> Sequence[Imported]:
    size, rois = node.attr_ints("pooled_shape"), node.value(1)
    if len(size) != 2:
        raise node.error("attribute `pooled_shape` is no height and width", got=size)
    (_, *columns) = node.shape(1)
    if len(columns) != 1 or (isinstance(columns[0], int) and columns[0] != 5):
        raise node.error("has regions of the wrong shape", got=ShapeValue(node.shape(1)), expected="(regions, 5)")
    batches = node.emit("cast", node.emit("take", rois, node.constant(np.int64(0)), axis=1), dtype="int64")
    corners = node.emit("strided_slice", rois, axes=(1,), begin=(1,), end=(5,), strides=(1,))
    scale = node.attr_float("spatial_scale", 1.0)
    return (node.emit("nn.roi_max_pool", node.value(0), corners, batches, size=size, scale=scale),)


IMPORTERS: dict[str, NodeImporter] = {
    "AffineGrid": _import_affine_grid,
    "GridSample": _import_grid_sample,
    "MaxRoiPool": _import_max_roi_pool,
    "NonMaxSuppression": _import_non_max_suppression,
    "RoiAlign": _import_roi_align,
}
"""The family's importers, by ONNX name."""
