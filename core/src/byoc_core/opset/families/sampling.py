"""Values of images at computed positions: sampling by a grid, and the pooling of regions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import ExecutionError
from byoc_core.kernels.indices import check_array_shape, require_range
from byoc_core.kernels.numpy_kernel import NumpyKernel, dtype_of
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.opset.attributes import AttrKind, AttrSpec
from byoc_core.opset.cases import OperandCase, example, integers
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import EXACT, NORM
from byoc_core.opset.type_rules import FLOAT_KINDS, INTEGER_KINDS, require_equal, require_kind, require_rank
from byoc_core.opset.types import TensorType, Type
from byoc_core.opset.value_bounds import bound_of_first

__all__ = ["OPS"]

_CUBIC = -0.75
"""The slope parameter of cubic interpolation (R. G. Keys, Cubic convolution interpolation, 1981)."""
_MOST_SAMPLES = 1 << 14
"""The most samples of a bin along an axis."""
_FARTHEST = 1 << 40
"""The most distant corner of a region, in elements: beyond all images, and free of overflow in sums."""


def _grid_sample(x: NDArray, grid: NDArray, *, method: str, border: str, align_corners: bool) -> NDArray:
    """Return the values of images at positions between -1 and 1; the last coordinate is along the first axis.

    Raises:
        ExecutionError: there are positions in an image without elements.
    """
    check_array_shape("nn.grid_sample", "grid", grid.shape, (x.shape[0], *grid.shape[1:-1], x.ndim - 2))
    if grid.size and 0 in x.shape[2:]:
        raise ExecutionError("op `nn.grid_sample`", "has positions in an image without elements", got=x.shape)
    work = np.result_type(working_dtype(x.dtype), np.float32) if method != "nearest" else x.dtype
    batch, sizes, spatial = x.shape[0], grid.shape[1:-1], x.shape[2:]
    taps: list[list[tuple[NDArray, NDArray, NDArray | None]]] = []
    for axis, length in enumerate(spatial):
        numbers = grid[..., len(spatial) - 1 - axis].reshape(batch, -1).astype(np.float64)
        ends = (0.0, length - 1.0) if align_corners else (-0.5, length - 0.5)
        positions = (numbers + 1) / 2 * (ends[1] - ends[0]) + ends[0]
        taps.append(_taps(positions, length, ends, method, border))
    rows = np.arange(batch)[:, np.newaxis]
    result = np.zeros((batch, int(np.prod(sizes)), x.shape[1]), work)
    for neighbours in itertools.product(*taps):
        index: tuple[Any, ...] = (rows, slice(None), *(at for at, _, _ in neighbours))
        values = x[index].astype(work, copy=False)
        weight = np.prod([part for _, part, _ in neighbours], axis=0)
        insides = [inside for _, _, inside in neighbours if inside is not None]
        if insides:
            values = np.where(np.logical_and.reduce(insides)[..., np.newaxis], values, work.type(0))
        result += values if method == "nearest" else values * weight[..., np.newaxis].astype(work)
    return np.moveaxis(result, -1, 1).reshape(batch, x.shape[1], *sizes).astype(x.dtype, copy=False)


def _reflected(positions: NDArray, low: float, high: float) -> NDArray:
    """Return positions reflected at two ends until they lie between."""
    span = high - low
    if span <= 0:
        return np.full_like(positions, low)
    offset = np.mod(positions - low, 2 * span)
    return np.minimum(offset, 2 * span - offset) + low


def _taps(
    positions: NDArray, length: int, ends: tuple[float, float], method: str, border: str
) -> list[tuple[NDArray, NDArray, NDArray | None]]:
    """Return index, weight and validity of each neighbour along an axis.

    Neighbours beyond the ends are the nearest element, reflected, or invalid.
    """
    first = np.floor(positions)
    share = positions - first
    if method == "nearest":
        pairs = [(np.rint(positions), np.ones_like(positions))]
    elif method == "linear":
        pairs = [(first, 1 - share), (first + 1, share)]
    else:
        pairs = [(first + tap, _cubic(np.abs(share - tap))) for tap in (-1, 0, 1, 2)]
    found: list[tuple[NDArray, NDArray, NDArray | None]] = []
    for index, weight in pairs:
        inside = (index >= 0) & (index < length) if border == "zeros" else None
        at = np.rint(_reflected(index, *ends)) if border == "reflection" else index
        found.append((np.clip(np.nan_to_num(at), 0, length - 1).astype(np.int64), weight, inside))
    return found


def _cubic(distance: NDArray) -> NDArray:
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * _CUBIC - 4 * _CUBIC
    return np.where(distance <= 1, near, far)


def _roi_align(
    x: NDArray,
    rois: NDArray,
    batches: NDArray,
    *,
    size: tuple[int, int],
    samples: int,
    scale: float,
    method: str,
    half_pixel: bool,
) -> NDArray:
    """Return the pooled samples of each region.

    Raises:
        ExecutionError: a region is in a missing image, in an image without pixels, or far larger than an image.
    """
    check_array_shape("nn.roi_align", "rois", rois.shape, (len(rois), 4))
    check_array_shape("nn.roi_align", "batches", batches.shape, (len(rois),))
    if len(rois) and 0 in x.shape[2:]:
        raise ExecutionError("op `nn.roi_align`", "has a region in an image without pixels", got=x.shape)
    work = working_dtype(x.dtype)
    images, (height, width) = x.astype(work, copy=False), size
    result = np.zeros((len(rois), x.shape[1], height, width), work)
    for number, (roi, batch) in enumerate(zip(rois.astype(np.float64), batches.tolist(), strict=True)):
        if not 0 <= batch < len(x):
            raise ExecutionError(
                "op `nn.roi_align`", "has a region in a missing image", got=batch, expected=f"< {len(x)}"
            )
        left, top, right, bottom = roi * scale - (0.5 if half_pixel else 0.0)
        spans = [bottom - top, right - left]
        if not half_pixel:  # Regions have at least a pixel.
            spans = [max(span, 1.0) for span in spans]
        axes = [
            _roi_taps(start, span, bins, samples, length)
            for start, span, bins, length in zip((top, left), spans, size, x.shape[2:], strict=True)
        ]
        rows, columns = axes
        result[number] = _pool(images[batch], rows, columns, size, method)
    return result.astype(x.dtype, copy=False)


def _roi_taps(start: float, span: float, bins: int, samples: int, length: int) -> tuple[NDArray, NDArray]:
    """Return indices and weights of both neighbours of each sample along an axis, samples of a bin together."""
    count = samples if samples > 0 else max(int(np.ceil(np.nan_to_num(span) / bins)), 1)
    if count > _MOST_SAMPLES:
        raise ExecutionError("op `nn.roi_align`", "has a region far larger than an image", got=span)
    step = span / bins
    offsets = start + np.arange(bins)[:, np.newaxis] * step + (np.arange(count) + 0.5) * (step / count)
    positions = offsets.reshape(-1)
    is_outside = ~((positions >= -1) & (positions <= length))  # NaN is outside
    inside = np.clip(np.nan_to_num(positions), 0, length - 1)
    first = np.floor(inside).astype(np.int64)
    share = inside - first
    weights = np.stack([1 - share, share])
    weights[:, is_outside] = 0
    return np.stack([first, np.minimum(first + 1, length - 1)]), weights


def _pool(
    image: NDArray, rows: tuple[NDArray, NDArray], columns: tuple[NDArray, NDArray], size: tuple[int, int], method: str
) -> NDArray:
    """Return the mean of the samples of each bin; by ``max`` the largest weighted neighbour of the samples.

    A neighbour without weight counts as 0, whatever its value.
    """
    parts = []
    for i, j in itertools.product(range(2), range(2)):
        weights = (rows[1][i][:, np.newaxis] * columns[1][j]).astype(image.dtype)
        weighted = image[:, rows[0][i]][:, :, columns[0][j]] * weights
        parts.append(np.where(weights == 0, image.dtype.type(0), weighted))
    samples = np.maximum.reduce(parts) if method == "max" else np.add.reduce(parts)
    height, width = size
    bins = samples.reshape(len(image), height, samples.shape[1] // height, width, samples.shape[2] // width)
    return np.asarray(bins.max(axis=(2, 4)) if method == "max" else bins.mean(axis=(2, 4)))


def _roi_max_pool(x: NDArray, rois: NDArray, batches: NDArray, *, size: tuple[int, int], scale: float) -> NDArray:
    """Return the largest element of each bin of each region; NaN is the largest, and 0 stands for a bin without any.

    Corners times ``scale`` are rounded to elements, halves away from zero, and belong to the region. Bin ``i`` of ``n``
    begins at ``i * length // n`` and ends before ``ceil((i + 1) * length / n)``.

    Raises:
        ExecutionError: a region is in a missing image.
    """
    check_array_shape("nn.roi_max_pool", "rois", rois.shape, (len(rois), 4))
    check_array_shape("nn.roi_max_pool", "batches", batches.shape, (len(rois),))
    require_range("nn.roi_max_pool", batches, 0, len(x) - 1, "a region is in a missing image")
    scaled = rois.astype(working_dtype(rois.dtype), copy=False) * np.asarray(scale, working_dtype(rois.dtype))
    corners = np.clip(np.nan_to_num(np.trunc(scaled + np.copysign(0.5, scaled))), -_FARTHEST, _FARTHEST)
    images = x.astype(working_dtype(x.dtype), copy=False)
    result = np.zeros((len(rois), x.shape[1], *size), images.dtype)
    if x.size == 0:
        return result.astype(x.dtype, copy=False)
    for number, (roi, batch) in enumerate(zip(corners.astype(np.int64).tolist(), batches.tolist(), strict=True)):
        (left, top, right, bottom), image = roi, images[batch]
        for axis, first, last, count in ((1, top, bottom, size[0]), (2, left, right, size[1])):
            image = _largest_of_bins(image, axis, first, max(last - first + 1, 1), count)
        result[number] = image
    return result.astype(x.dtype, copy=False)


def _largest_of_bins(image: NDArray, axis: int, first: int, length: int, count: int) -> NDArray:
    """Return the largest element of each bin of a span of an axis; 0 for bins without an element."""
    bins = np.arange(count)
    starts, stops = (
        np.clip(first + edges, 0, image.shape[axis])
        for edges in (bins * length // count, -(-(bins + 1) * length // count))
    )
    # Every second slice is a bin. An additional element gives the last slice an end.
    edges = np.stack([starts, stops], axis=1).reshape(-1)
    padded = np.concatenate([image, image.take([0], axis=axis)], axis=axis)
    largest = np.maximum.reduceat(padded, edges, axis=axis).take(range(0, 2 * count, 2), axis=axis)
    is_empty = (starts >= stops).reshape([-1 if other == axis else 1 for other in range(image.ndim)])
    return np.where(is_empty, image.dtype.type(0), largest)


def _infer_grid_sample(context: TypeContext) -> tuple[Type, ...]:
    kinds = ("float", "int", "uint", "bool") if context.attrs["method"] == "nearest" else FLOAT_KINDS
    type_, shape, grid = require_kind(context, 0, kinds), context.shape(0), context.shape(1)
    require_kind(context, 1, FLOAT_KINDS)
    if len(shape) < 3:
        raise context.error("has no spatial axes", operand=0, got=f"rank {len(shape)}", expected="rank 3 or more")
    require_rank(context, 1, len(shape), "as operand `x`")
    require_equal(context, 1, 0, shape[0], "as operand `x`")
    require_equal(context, 1, len(grid) - 1, len(shape) - 2, "a coordinate for each spatial axis")
    return (TensorType((*shape[:2], *grid[1:-1]), type_.dtype),)


def _infer_regions(context: TypeContext) -> tuple[Type, ...]:
    type_ = require_kind(context, 0, FLOAT_KINDS)
    batch_shape = require_rank(context, 0, 4, "images (N, C, H, W)")
    rois = require_rank(context, 1, 2, "(regions, 4)")
    require_equal(context, 1, 1, 4, "two corners")
    require_kind(context, 1, FLOAT_KINDS)
    require_kind(context, 2, INTEGER_KINDS)
    require_rank(context, 2, 1, "(regions,)")
    require_equal(context, 2, 0, rois[0], "as operand `rois`")
    size = context.attrs["size"]
    if len(size) != 2 or min(size) < 1:
        raise context.error("attribute `size` is no height and width", got=size, expected="two sizes of 1 or more")
    return (TensorType((rois[0], batch_shape[1], *size), type_.dtype),)


def _grid_flops(context: OpContext) -> Dim:
    rank = len(context.operand_shape()) - 2
    taps_of_axis: int = {"nearest": 0, "linear": 2, "cubic": 4}[context.attrs["method"]]
    return context.elements() * (2 * int(taps_of_axis**rank))


def _roi_max_flops(context: OpContext) -> Dim:
    """Return one operation for each element of the result: the sizes of the regions are unknown."""
    return context.elements()


def _roi_flops(context: OpContext) -> Dim:
    return context.elements() * (8 * max(int(context.attrs["samples"]), 1) ** 2)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.grid_sample",
        (OperandSpec("x"), OperandSpec("grid")),
        _infer_grid_sample,
        attrs=(
            AttrSpec(
                "method",
                AttrKind.STR,
                "linear",
                ("nearest", "linear", "cubic"),
                doc="The interpolation between elements; `nearest` rounds halves to even indices.",
            ),
            AttrSpec(
                "border",
                AttrKind.STR,
                "zeros",
                ("zeros", "border", "reflection"),
                doc="Values beyond the image: zeros, the nearest element, or the image reflected.",
            ),
            AttrSpec(
                "align_corners",
                AttrKind.BOOL,
                False,
                doc="Whether -1 and 1 are the centres of the first and last element; else their outer edges.",
            ),
        ),
        flops=_grid_flops,
        kernel=NumpyKernel(_grid_sample, gives=dtype_of(0)),
        rounding=NORM,
        cases=lambda: (
            example((2, 3, 5, 6), (2, 4, 7, 2)),
            example((2, 3, 5, 6), (2, 4, 7, 2), method="nearest", border="border"),
            example((2, 3, 5, 6), (2, 4, 7, 2), method="cubic", border="reflection", align_corners=True),
        ),
        doc="Return the values of images at positions of a grid.\n\n"
        "Shapes: ``x`` ``(N, C, D1, ..., Dr)``, ``grid`` ``(N, E1, ..., Er, r)`` with coordinates from -1 to 1, the "
        "last along ``D1``; the result is ``(N, C, E1, ..., Er)``.",
    ),
    OpDef(
        "nn.roi_align",
        (OperandSpec("x"), OperandSpec("rois"), OperandSpec("batches")),
        _infer_regions,
        attrs=(
            AttrSpec("size", AttrKind.INTS, doc="Height and width of the result."),
            AttrSpec(
                "samples",
                AttrKind.INT,
                0,
                doc="The samples of a bin along each axis; 0: one for each pixel of the region's share, rounded up.",
            ),
            AttrSpec("scale", AttrKind.FLOAT, 1.0, doc="The pixels of the image for a unit of the regions."),
            AttrSpec("method", AttrKind.STR, "avg", ("avg", "max"), doc="The pooling of the samples of a bin."),
            AttrSpec(
                "half_pixel",
                AttrKind.BOOL,
                True,
                doc="Whether regions are shifted by half a pixel; else they have at least a pixel.",
            ),
        ),
        flops=_roi_flops,
        kernel=NumpyKernel(_roi_align, gives=dtype_of(0)),
        rounding=NORM,
        cases=lambda: (
            example((2, 3, 8, 9), OperandCase((5, 4)), integers((5,), 0, 1), size=(2, 3), samples=2),
            example((2, 3, 8, 9), OperandCase((5, 4)), integers((5,), 0, 1), size=(2, 2), method="max"),
        ),
        doc="Return regions of images, each divided into bins with pooled samples of bilinear interpolation "
        "(He et al. 2017, Mask R-CNN). A neighbour without weight counts as 0, whatever its value.\n\n"
        "Shapes: ``x`` ``(N, C, H, W)``; ``rois`` ``(R, 4)``: left, top, right, bottom; ``batches`` ``(R,)``: the "
        "image of each region; the result is ``(R, C, *size)``.",
    ),
    OpDef(
        "nn.roi_max_pool",
        (OperandSpec("x"), OperandSpec("rois"), OperandSpec("batches")),
        _infer_regions,
        attrs=(
            AttrSpec("size", AttrKind.INTS, doc="Height and width of the result."),
            AttrSpec("scale", AttrKind.FLOAT, 1.0, doc="The pixels of the image for a unit of the regions."),
        ),
        flops=_roi_max_flops,
        kernel=NumpyKernel(_roi_max_pool, gives=dtype_of(0)),
        rounding=EXACT,
        bound=bound_of_first,
        cases=lambda: (
            example((2, 3, 8, 9), OperandCase((5, 4)), integers((5,), 0, 1), size=(2, 3)),
            example((2, 3, 8, 9), OperandCase((5, 4)), integers((5,), 0, 1), size=(4, 2), scale=3.5),
        ),
        doc="Return the largest element of each bin of regions of images; 0 for a bin outside the image (Girshick "
        "2015, Fast R-CNN). Corners times ``scale`` are rounded to elements, halves away from zero, and belong to the "
        "region; a region has at least one element along each axis. Bin ``i`` of ``n`` begins at ``i * length // n`` "
        "and ends before ``ceil((i + 1) * length / n)``.\n\n"
        "Shapes: ``x`` ``(N, C, H, W)``; ``rois`` ``(R, 4)``: left, top, right, bottom; ``batches`` ``(R,)``: the "
        "image of each region; the result is ``(R, C, *size)``.",
    ),
)
"""The family's ops."""
