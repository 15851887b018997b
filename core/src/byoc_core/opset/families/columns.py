"""Columns: the elements under each position of a window, as a matrix for products, and back as an image."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from byoc_core.dims import Dim
from byoc_core.errors import IRTypeError
from byoc_core.kernels.indices import check_array_shape
from byoc_core.kernels.numpy_kernel import NumpyKernel, dtype_of
from byoc_core.kernels.precision import NDArray, native_dtype, working_dtype
from byoc_core.kernels.windows import num_windows
from byoc_core.opset.attributes import AttrKind, AttrSpec, AttrValue
from byoc_core.opset.cases import example
from byoc_core.opset.contexts import OpContext, TypeContext
from byoc_core.opset.opdef import OpDef, OperandSpec
from byoc_core.opset.rounding import NORM, SUM
from byoc_core.opset.type_rules import (
    FLOAT_KINDS,
    NUMBER_KINDS,
    require_equal,
    require_kind,
    require_rank,
    require_sizes,
)
from byoc_core.opset.types import TensorType, Type

__all__ = ["OPS"]


def _col2im(
    x: NDArray,
    *,
    image_size: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
) -> NDArray:
    """Return images with each element of the columns added at its position.

    Cost: a pass over the columns, a numpy call for each position of a window.

    Raises:
        ExecutionError: the columns have another number of windows than the image.
    """
    rank = len(image_size)
    window = x.shape[2 : 2 + rank]
    axes = zip(image_size, window, strides, dilation, padding[:rank], padding[rank:], strict=True)
    counts = tuple(num_windows(*axis) for axis in axes)
    check_array_shape("nn.col2im", "x", x.shape, (*x.shape[:2], *window, *counts))
    wide = native_dtype(x.dtype)
    padded_size = [size + padding[axis] + padding[rank + axis] for axis, size in enumerate(image_size)]
    padded = np.zeros((*x.shape[:2], *padded_size), wide)
    for tap in np.ndindex(*window):
        part: list[Any] = [
            slice(at * step, at * step + (count - 1) * stride + 1, stride)
            for at, step, count, stride in zip(tap, dilation, counts, strides, strict=True)
        ]
        padded[(..., *part)] += x[(slice(None), slice(None), *tap)]
    inside: list[Any] = [slice(padding[axis], padding[axis] + size) for axis, size in enumerate(image_size)]
    return np.ascontiguousarray(padded[(..., *inside)]).astype(x.dtype, copy=False)


def _deformable_im2col(
    x: NDArray,
    offsets: NDArray,
    *,
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[int, ...],
) -> NDArray:
    """Return the samples of images at the positions of all windows, each moved by an offset.

    Positions are computed in float64. A neighbour outside the image, or of weight 0, counts as zero.

    Raises:
        ExecutionError: the offsets do not fit the images or the windows.
    """
    rank, taps = len(window), math.prod(window)
    batch, channels, *spatial = x.shape
    groups, out_size = offsets.shape[1], offsets.shape[4:]
    axes = zip(spatial, window, strides, dilation, padding[:rank], padding[rank:], strict=True)
    counts = tuple(num_windows(*axis) for axis in axes)
    check_array_shape("nn.deformable_im2col", "offsets", offsets.shape, (batch, groups, taps, rank, *counts))
    check_array_shape("nn.deformable_im2col", "x", x.shape, (batch, channels // groups * groups, *spatial))
    work = np.result_type(working_dtype(x.dtype), np.float32)
    columns = taps * math.prod(out_size)
    neighbours = [
        _neighbours(
            offsets[:, :, :, axis].astype(np.float64)
            + _positions(axis, window, counts, strides[axis], dilation[axis], padding[axis]),
            spatial[axis],
        )
        for axis in range(rank)
    ]
    images = x.reshape(batch, groups, channels // groups, math.prod(spatial))
    result = np.zeros((batch, groups, channels // groups, columns), work)
    for combination in itertools.product(*neighbours):
        index: NDArray = np.zeros((), np.int64)
        weight: NDArray = np.ones((), np.float64)
        for (at, share), size in zip(combination, spatial, strict=True):
            index, weight = index * size + at, weight * share
        index, weight = (part.reshape(batch, groups, 1, columns) for part in (index, weight))
        values = np.take_along_axis(images, index, axis=3) if images.size else np.zeros((), work)
        result += np.where(weight != 0, values.astype(work, copy=False), work.type(0)) * weight.astype(work)
    return result.astype(x.dtype, copy=False).reshape(batch, channels, taps, *out_size)


def _positions(
    axis: int, window: Sequence[int], counts: Sequence[int], stride: int, dilation: int, begin: int
) -> NDArray:
    """Return the position along an axis of each tap of each window: ``(K, O1, ..., Or)``, some sizes 1."""
    taps = np.indices(tuple(window))[axis].reshape(-1, *[1] * len(counts)) * dilation
    starts = np.arange(counts[axis]) * stride - begin
    return np.asarray(taps + starts.reshape([-1 if other == axis else 1 for other in range(len(counts))]))


def _neighbours(positions: NDArray, length: int) -> list[tuple[NDArray, NDArray]]:
    """Return index and weight of both neighbours of each position; outside the axis the weight is 0."""
    first = np.floor(positions)
    share = positions - first
    found = []
    for index, weight in ((first, 1 - share), (first + 1, share)):
        is_inside = (index >= 0) & (index < length)  # NaN is outside
        at = np.clip(np.nan_to_num(index), 0, max(length - 1, 0)).astype(np.int64)
        found.append((at, np.where(is_inside, weight, 0.0)))
    return found


def _canonicalise(op: str, size: str) -> Callable[[Mapping[str, AttrValue]], Mapping[str, AttrValue]]:
    """Return the check of the attributes: a value for each spatial axis, as many as in the attribute ``size``."""

    def canonicalise(attrs: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
        result = dict(attrs)
        sizes = attrs[size]
        rank = len(sizes) if isinstance(sizes, tuple) else 0
        for name, count, minimum in (("strides", rank, 1), ("dilation", rank, 1), ("padding", 2 * rank, 0)):
            values = result[name]
            if values is None:
                values = result[name] = (minimum,) * count
            numbers = [item for item in values if isinstance(item, int)] if isinstance(values, tuple) else []
            if len(numbers) != count or min(numbers, default=minimum) < minimum:
                raise IRTypeError(
                    f"op `{op}`, attribute `{name}`",
                    "does not fit the spatial axes",
                    got=values,
                    expected=f"{count} values of {minimum} or more",
                )
        return result

    return canonicalise


def _window_counts(context: TypeContext, image: Sequence[Dim], window: Sequence[Dim]) -> list[Dim]:
    """Return the number of windows along each spatial axis.

    Raises:
        IRTypeError: the window is larger than the padded image along an axis.
    """
    attrs, rank = context.attrs, len(image)
    counts: list[Dim] = []
    for axis, (size, extent, stride) in enumerate(zip(image, window, attrs["strides"], strict=True)):
        reach = (extent - 1) * attrs["dilation"][axis] + 1
        padded = size + attrs["padding"][axis] + attrs["padding"][rank + axis]
        room = padded - reach
        if isinstance(room, int) and room < 0:
            raise context.error(
                f"spatial axis {axis} of the padded image is smaller than the window",
                got=padded,
                expected=f"{reach} or more",
            )
        counts.append(room // stride + 1)
    return counts


def _infer_col2im(context: TypeContext) -> tuple[Type, ...]:
    type_, size = require_kind(context, 0, NUMBER_KINDS), context.attrs["image_size"]
    rank = len(size)
    if not rank:
        raise context.error("attribute `image_size` has no sizes", expected="a size for each spatial axis")
    require_sizes(context, size, attribute="image_size")
    shape = require_rank(context, 0, 2 + 2 * rank, "(N, C, window, windows)")
    for axis, count in enumerate(_window_counts(context, size, shape[2 : 2 + rank])):
        require_equal(context, 0, 2 + rank + axis, count, "the number of windows")
    return (TensorType((*shape[:2], *size), type_.dtype),)


def _infer_deformable(context: TypeContext) -> tuple[Type, ...]:
    type_, window = require_kind(context, 0, FLOAT_KINDS), context.attrs["window"]
    rank, taps = len(window), math.prod(window)
    if not window or min(window) < 1:
        raise context.error("attribute `window` is no window", got=window, expected="sizes of 1 or more")
    shape = require_rank(context, 0, 2 + rank, "(N, C, spatial axes)")
    require_kind(context, 1, FLOAT_KINDS)
    offsets = require_rank(context, 1, 4 + rank, "(N, groups, K, coordinates, windows)")
    require_equal(context, 1, 0, shape[0], "as operand `x`")
    require_equal(context, 1, 2, taps, "the positions of a window")
    require_equal(context, 1, 3, rank, "a coordinate for each spatial axis")
    if isinstance(shape[1], int) and isinstance(offsets[1], int) and (offsets[1] < 1 or shape[1] % offsets[1]):
        raise context.error("has groups that do not divide the channels", operand=1, got=offsets[1], expected=shape[1])
    counts = _window_counts(context, shape[2:], window)
    for axis, count in enumerate(counts):
        require_equal(context, 1, 4 + axis, count, "the number of windows")
    return (TensorType((*shape[:2], taps, *counts), type_.dtype),)


def _col2im_flops(context: OpContext) -> Dim:
    return context.operand_elements(0)


def _deformable_flops(context: OpContext) -> Dim:
    """Return two operations for each of ``2**r`` neighbours of each sample."""
    return context.elements() * (2 << len(context.attrs["window"]))


def _col2im_taps(context: OpContext) -> int:
    rank = len(context.attrs["image_size"])
    return math.prod(size for size in context.operand_shape()[2 : 2 + rank] if isinstance(size, int))


_ATTRS = (
    AttrSpec("strides", AttrKind.INTS, None, doc="Step between windows along each axis; ``None``: 1."),
    AttrSpec("dilation", AttrKind.INTS, None, doc="Step between the positions of a window; ``None``: 1."),
    AttrSpec("padding", AttrKind.INTS, None, doc="Padding before all axes, then after all axes; ``None``: 0."),
)


OPS: tuple[OpDef, ...] = (
    OpDef(
        "nn.col2im",
        (OperandSpec("x"),),
        _infer_col2im,
        attrs=(AttrSpec("image_size", AttrKind.DIMS, doc="The sizes of the spatial axes of the image."), *_ATTRS),
        flops=_col2im_flops,
        kernel=NumpyKernel(_col2im, gives=dtype_of(0)),
        rounds=_col2im_taps,
        canonicalise=_canonicalise("nn.col2im", "image_size"),
        rounding=SUM,
        cases=lambda: (
            example((2, 3, 2, 3, 4, 5), image_size=(5, 7)),
            example((2, 3, 2, 3, 4, 5), image_size=(7, 9), strides=(2, 2), padding=(0, 1, 1, 1), dilation=(1, 1)),
            example((2, 3, 2, 6), image_size=(9,), dilation=(3,)),
        ),
        doc="Return images with each element of columns added at its position: the inverse rearrangement of the "
        "windows of a convolution, with overlapping elements summed. Elements in the padding are dropped.\n\n"
        "Shapes: ``x`` ``(N, C, K1, ..., Kr, O1, ..., Or)``: window positions ``K``, windows ``O``; the result is "
        "``(N, C, *image_size)``. ``O = (size + before + after - (dilation * (K - 1) + 1)) // stride + 1``.",
    ),
    OpDef(
        "nn.deformable_im2col",
        (OperandSpec("x"), OperandSpec("offsets")),
        _infer_deformable,
        attrs=(AttrSpec("window", AttrKind.INTS, doc="The sizes of a window."), *_ATTRS),
        flops=_deformable_flops,
        kernel=NumpyKernel(_deformable_im2col, gives=dtype_of(0)),
        canonicalise=_canonicalise("nn.deformable_im2col", "window"),
        rounding=NORM,
        cases=lambda: (
            example((2, 6, 7, 9), (2, 2, 6, 2, 6, 7), window=(2, 3)),
            example((2, 6, 7, 9), (2, 1, 4, 2, 4, 5), window=(2, 2), strides=(2, 2), padding=(1, 1, 1, 1)),
            example((2, 6, 9), (2, 3, 3, 1, 5), window=(3,), dilation=(2,)),
        ),
        doc="Return the columns of a deformable convolution: the elements of images at the positions of windows, each "
        "position moved by an offset, by linear interpolation with zeros around the image (Dai et al. 2017, "
        "Deformable Convolutional Networks). The convolution is the product of the filters and the columns.\n\n"
        "Shapes: ``x`` ``(N, C, D1, ..., Dr)``; ``offsets`` ``(N, G, K, r, O1, ..., Or)`` in elements, ``K`` the "
        "positions of a window in row-major order, for ``G`` groups of channels; the result is "
        "``(N, C, K, O1, ..., Or)``.",
    ),
)
"""The family's ops."""
