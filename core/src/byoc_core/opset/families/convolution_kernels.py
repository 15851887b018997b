"""Kernels of convolution over one, two or three axes: image to columns, then a matrix product per group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product as product_of
from typing import Any

import numpy as np

from byoc_core.dims import Dim, product
from byoc_core.errors import ExecutionError
from byoc_core.kernels.memory import BLOCK_BYTES, Scratch
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.kernels.windows import (
    ChannelsFirst,
    blocks_of_channels,
    channels_first,
    channels_first_layout,
    channels_restored,
    num_windows,
    part_of,
    parts_of_channels,
    spatial_axes,
    tap_view,
    window_view,
)

__all__ = ["conv", "conv_transpose", "scratch_nbytes"]


@dataclass(frozen=True)
class _Geometry:
    """The sizes of a convolution, channels first, and the sizes of its blocks.

    Attributes:
        batch: the number of images.
        channels: the number of channels of an image.
        size: the size of an image, by spatial axis.
        window: the window of the filters.
        strides: the step between windows.
        dilation: the step between taps.
        begin: the width of the padding before each axis.
        out_size: the number of windows along each axis.
    """

    batch: int
    channels: int
    size: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]
    out_size: tuple[int, ...]

    @property
    def depth(self) -> int:
        """The number of elements of a window, over all channels."""
        return self.channels * math.prod(self.window)

    def is_pointwise(self, padding: Sequence[int]) -> bool:
        """Return whether the windows of an image are its elements, so the columns are the image itself."""
        return set(self.window) | set(self.strides) == {1} and not any(padding)

    def reach(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Return the number of elements covered by ``counts`` windows along each axis."""
        return tuple(
            (count - 1) * stride + dilation * (window - 1) + 1
            for count, stride, dilation, window in zip(counts, self.strides, self.dilation, self.window, strict=True)
        )

    def unfolded_at_once(self, itemsize: int, filter_nbytes: int) -> tuple[int, tuple[int, ...]]:
        """Return how many images are unfolded at once, and how many windows along each axis.

        These windows are consecutive in the result. The columns take :data:`BLOCK_BYTES`, or as much as the filters,
        because the filters are read again for each block.
        """
        room = max(1, max(BLOCK_BYTES, filter_nbytes) // max(1, self.depth * itemsize))
        pixels = math.prod(self.out_size)
        if pixels <= room:
            return max(1, min(self.batch, room // max(1, pixels))), self.out_size
        extents: list[int] = []
        for size in reversed(self.out_size):
            num_blocks = -(-size // min(size, room))
            extents.insert(0, -(-size // num_blocks))
            room = room // size if num_blocks == 1 else 1
        return 1, tuple(extents)

    def channels_at_once(self, itemsize: int) -> tuple[int, int]:
        """Return how many images, and how many of their channels, are padded and multiplied at once."""
        nbytes = (math.prod(self.out_size) + math.prod(self.reach(self.out_size))) * itemsize
        return blocks_of_channels(self.batch, self.channels, nbytes)

    def read(self, image: NDArray, first: Sequence[int], counts: Sequence[int], memory: NDArray) -> NDArray:
        """Return the windows of images from the first window along each axis, like :func:`window_view`.

        Args:
            image: the images and channels to read.
            first: the first window.
            counts: the number of windows along each axis.
            memory: memory for a padded copy; also determines the dtype of a copy.
        """
        reach = self.reach(counts)
        starts = [index * stride - begin for index, stride, begin in zip(first, self.strides, self.begin, strict=True)]
        part = part_of(image, starts, reach, 0, memory)
        return window_view(part, self.window, self.strides, self.dilation, counts)


def conv(
    x: NDArray,
    weight: NDArray,
    *,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out: NDArray | None = None,
    scratch: NDArray | None = None,
) -> NDArray:
    """Return the cross-correlation of images with filters.

    Shapes: ``(N, C, H, W), (O, C/groups, KH, KW) -> (N, O, OH, OW)`` in the layouts ``NCHW`` and ``OIHW``; likewise
    with one or three spatial axes.

    Cost: ``2 * N * O * OH * OW * C/groups * KH * KW`` operations. Memory beside the result: columns of 1 MiB (or the
    size of the filters, if larger) and the corresponding part of the padded image; in another layout, or for floats
    below 32 bits, the result once more.

    Raises:
        ExecutionError: the channels do not fit the filter and the groups, or the padded image is smaller than the
            filter.
    """
    wide = working_dtype(x.dtype)
    image = channels_first(x, data_layout)
    filters = _ordered(weight, kernel_layout, "OI").astype(wide, copy=False)
    _require_groups("operand `x`", "input channels", image.shape[1], groups)
    _require_groups("operand `weight`", "output channels", filters.shape[0], groups)
    _require_input_channels(filters.shape[1], image.shape[1] // groups)
    geometry = _geometry(image.shape, filters.shape[2:], strides, padding, dilation)
    shape = (geometry.batch, filters.shape[0], *geometry.out_size)
    memory = ChannelsFirst(shape, data_layout, wide, x.dtype, out)
    result, workspace = memory.array, Scratch(scratch)
    if _is_depthwise(filters.shape, groups):
        _depthwise(image, filters, geometry, result, workspace)
    elif geometry.is_pointwise(padding) and image.dtype == wide and image.flags.c_contiguous:
        columns = image.reshape(geometry.batch, groups, geometry.depth // groups, math.prod(geometry.out_size))
        np.matmul(_matrix(filters, groups), columns, out=_by_groups(result, groups))
    else:
        _by_columns(image, filters, geometry, groups, result, workspace)
    return memory.restored()


def scratch_nbytes(shapes: Sequence[Sequence[Dim]], dtypes: Sequence[np.dtype[Any]], attrs: Mapping[str, Any]) -> Dim:
    """Return the bytes of scratch memory of :func:`conv`; for symbolic sizes, the bytes needed with padding."""
    layout, kernel_layout, groups = attrs["data_layout"], attrs["kernel_layout"], attrs["groups"]
    strides, padding, dilation = attrs["strides"], attrs["padding"], attrs["dilation"]
    image = [shapes[0][layout.index(axis)] for axis in channels_first_layout(layout)]
    filters = [shapes[1][kernel_layout.index(axis)] for axis in "OI" + spatial_axes(kernel_layout)]
    wide = working_dtype(dtypes[0])
    filter_sizes = [size for size in filters if isinstance(size, int)]
    if len(filter_sizes) < len(filters) or not isinstance(image[1], int):
        return 0
    filter_nbytes = math.prod(filter_sizes) * wide.itemsize
    sizes = [size for size in image if isinstance(size, int)]
    if len(sizes) < len(image):
        rank = len(image) - 2
        padded = [size + padding[axis] + padding[rank + axis] for axis, size in enumerate(image[2:])]
        return max(BLOCK_BYTES, filter_nbytes) + product([image[1], *padded]) * wide.itemsize
    geometry = _geometry(sizes, filter_sizes[2:], strides, padding, dilation)
    if _is_depthwise(filter_sizes, groups):
        images, channels = geometry.channels_at_once(wide.itemsize)
        columns, reach = images * channels * math.prod(geometry.out_size), geometry.reach(geometry.out_size)
    elif geometry.is_pointwise(padding) and wide == dtypes[0] and layout == channels_first_layout(layout):
        return 0
    else:
        images, extents = geometry.unfolded_at_once(wide.itemsize, filter_nbytes)
        channels = geometry.channels
        columns, reach = images * geometry.depth * math.prod(extents), geometry.reach(extents)
    return Scratch.nbytes([columns, images * channels * math.prod(reach)], wide)


def _geometry(
    shape: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> _Geometry:
    batch, channels, *size = shape
    rank = len(size)
    out_size = tuple(
        num_windows(size[axis], window[axis], strides[axis], dilation[axis], *padding[axis::rank])
        for axis in range(rank)
    )
    return _Geometry(
        batch, channels, tuple(size), tuple(window), tuple(strides), tuple(dilation), tuple(padding[:rank]), out_size
    )


def _ordered(weight: NDArray, layout: str, channels: str) -> NDArray:
    """Return filters with the two channel axes in a given order, then the spatial axes."""
    return weight.transpose([layout.index(axis) for axis in channels + spatial_axes(layout)])


def _require_groups(operand: str, channels: str, count: int, groups: int) -> None:
    if count % groups:
        raise ExecutionError(
            operand, f"the {channels} are not divisible into the groups", got=count, expected=f"a multiple of {groups}"
        )


def _require_input_channels(found: int, expected: int) -> None:
    if found != expected:
        raise ExecutionError(
            "operand `weight`", "the number of input channels does not fit operand `x`", got=found, expected=expected
        )


def _is_depthwise(filters: Sequence[int], groups: int) -> bool:
    """Return whether each channel has a separate filter."""
    return groups > 1 and filters[1] == 1 and filters[0] == groups


def _matrix(filters: NDArray, groups: int) -> NDArray:
    """Return the filters of each group as rows."""
    return np.ascontiguousarray(filters).reshape(groups, len(filters) // groups, math.prod(filters.shape[1:]))


def _by_groups(result: NDArray, groups: int) -> NDArray:
    """Return a view of images with channels split by groups and pixels in a single axis."""
    batch, channels, *size = result.shape
    return result.reshape(batch, groups, channels // groups, math.prod(size))


def _by_columns(
    image: NDArray, filters: NDArray, geometry: _Geometry, groups: int, result: NDArray, scratch: Scratch
) -> None:
    """Unfold the image block by block and multiply each block with the filters."""
    num_images, extents = geometry.unfolded_at_once(result.itemsize, filters.nbytes)
    matrix, targets = _matrix(filters, groups), _by_groups(result, groups)
    columns = scratch.take([num_images * geometry.depth * math.prod(extents)], result.dtype)
    memory = scratch.take([num_images * geometry.channels * math.prod(geometry.reach(extents))], result.dtype)
    starts = list(product_of(*(range(0, size, step) for size, step in zip(geometry.out_size, extents, strict=True))))
    for first in range(0, geometry.batch, num_images):
        images, pixel = image[first : first + num_images], 0
        for start in starts:
            counts = [
                min(step, size - index) for step, size, index in zip(extents, geometry.out_size, start, strict=True)
            ]
            windows = geometry.read(images, start, counts, memory)
            block = columns[: windows.size].reshape(windows.shape)
            block[...] = windows
            num_pixels = math.prod(counts)
            np.matmul(
                matrix,
                block.reshape(len(images), groups, geometry.depth // groups, num_pixels),
                out=targets[first : first + num_images, :, :, pixel : pixel + num_pixels],
            )
            pixel += num_pixels


def _depthwise(image: NDArray, filters: NDArray, geometry: _Geometry, result: NDArray, scratch: Scratch) -> None:
    """Sum over the few taps of each channel's only filter, without unfolding."""
    num_images, num_channels = geometry.channels_at_once(result.itemsize)
    out_size = geometry.out_size
    products = scratch.take([num_images * num_channels * math.prod(out_size)], result.dtype)
    memory = scratch.take([num_images * num_channels * math.prod(geometry.reach(out_size))], result.dtype)
    result[...] = 0
    for part in parts_of_channels(geometry.batch, geometry.channels, num_images, num_channels):
        windows = geometry.read(image[part], [0] * len(out_size), out_size, memory)
        target, taps = result[part], filters[part[1]]
        block = products[: target.size].reshape(target.shape)
        for tap in np.ndindex(*geometry.window):
            np.multiply(tap_view(windows, tap), tap_view(taps, tap).reshape(-1, *[1] * len(out_size)), out=block)
            target += block


def conv_transpose(
    x: NDArray,
    weight: NDArray,
    *,
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    output_padding: tuple[int, ...],
    dilation: tuple[int, ...],
    groups: int,
    data_layout: str,
    kernel_layout: str,
) -> NDArray:
    """Return the transposed convolution: every element of the image adds a scaled filter to the result.

    Shapes: ``(N, C, H, W), (C, O/groups, KH, KW) -> (N, O, OH, OW)`` in the layouts ``NCHW`` and ``IOHW``; likewise
    with one or three spatial axes.

    Cost: ``2 * N * C * H * W * O/groups * KH * KW`` operations, and memory for the products of a batch beside the
    result.

    Raises:
        ExecutionError: the channels do not fit the filter and the groups, or the padding leaves nothing.
    """
    wide = working_dtype(x.dtype)
    image = channels_first(x, data_layout).astype(wide, copy=False)
    filters = _ordered(weight, kernel_layout, "IO").astype(wide, copy=False)
    batch, channels, *size = image.shape
    rank, window, per_group = len(size), filters.shape[2:], filters.shape[1]
    _require_groups("operand `x`", "input channels", channels, groups)
    _require_input_channels(filters.shape[0], channels)
    full_size = [
        (size[axis] - 1) * strides[axis] + (window[axis] - 1) * dilation[axis] + 1 + output_padding[axis]
        for axis in range(rank)
    ]
    for axis, extent in enumerate(full_size):
        if extent <= padding[axis] + padding[rank + axis]:
            raise ExecutionError(
                "operand `x`",
                f"the padding leaves nothing of spatial axis {axis}",
                got=padding[axis] + padding[rank + axis],
                expected=f"less than {extent}",
            )
    depth = per_group * math.prod(window)
    matrix = np.ascontiguousarray(filters).reshape(groups, channels // groups, depth).swapaxes(1, 2)
    products = np.matmul(matrix, image.reshape(batch, groups, channels // groups, math.prod(size)))
    products = products.reshape(batch, groups, per_group, *window, *size)
    result = np.zeros((batch, groups, per_group, *full_size), wide)
    for tap in np.ndindex(*window):
        reached: list[Any] = [
            slice(first, first + (count - 1) * stride + 1 if count else first, stride)
            for first, count, stride in zip(np.multiply(tap, dilation), size, strides, strict=True)
        ]
        result[(..., *reached)] += products[(slice(None), slice(None), slice(None), *tap)]
    cut: list[Any] = [slice(padding[axis], full_size[axis] - padding[rank + axis]) for axis in range(rank)]
    cropped = result[(..., *cut)]
    restored = cropped.reshape(batch, groups * per_group, *cropped.shape[3:])
    return channels_restored(restored.astype(x.dtype, copy=False), data_layout)
