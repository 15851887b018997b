"""Kernels of pooling over one, two or three axes: by sliding windows, and by a given number of windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import sub
from typing import Any

import numpy as np

from byoc_core.dims import Dim, dim_max, dim_min, product
from byoc_core.errors import ExecutionError
from byoc_core.kernels.memory import BLOCK_BYTES, Scratch
from byoc_core.kernels.precision import NDArray, lowest, working_dtype
from byoc_core.kernels.windows import (
    ChannelsFirst,
    blocks_of_channels,
    channels_first,
    channels_first_layout,
    channels_restored,
    num_windows,
    part_of,
    parts_of_channels,
    tap_view,
    window_view,
)

__all__ = [
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "argmax_pool",
    "avg_pool",
    "lp_pool",
    "max_pool",
    "scratch_nbytes",
]


@dataclass(frozen=True)
class _Pooling:
    """The common attributes of all kinds of pooling, and shared computations."""

    pool_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool
    layout: str

    @property
    def begin(self) -> tuple[int, ...]:
        """The width of the padding before each axis."""
        return self.padding[: len(self.pool_size)]

    def out_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Return the number of windows along each axis of an image."""
        rank = len(self.pool_size)
        return tuple(
            num_windows(
                size[axis],
                self.pool_size[axis],
                self.strides[axis],
                self.dilation[axis],
                *self.padding[axis::rank],
                ceil_mode=self.ceil_mode,
            )
            for axis in range(rank)
        )

    def reach(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Return the number of elements covered by ``counts`` windows along each axis."""
        return tuple(
            (count - 1) * stride + dilation * (window - 1) + 1
            for count, stride, dilation, window in zip(counts, self.strides, self.dilation, self.pool_size, strict=True)
        )

    def compute(
        self,
        x: NDArray,
        combine: Callable[[NDArray, NDArray], None],
        value: object,
        out: NDArray | None,
        scratch: NDArray | None,
    ) -> NDArray:
        """Return the pooled images.

        Args:
            x: the images, in the layout.
            combine: called with the windows of some channels (see :func:`window_view`) and the memory of their result.
            value: the value around the images.
            out: memory for the result.
            scratch: memory for padded channels.
        """
        image = channels_first(x, self.layout)
        wide = working_dtype(x.dtype)
        result = ChannelsFirst((*image.shape[:2], *self.out_size(image.shape[2:])), self.layout, wide, x.dtype, out)
        for part, windows in self.windows(image, value, scratch):
            combine(windows, result.array[part])
        return result.restored()

    def windows(
        self, image: NDArray, value: object, scratch: NDArray | None
    ) -> Iterator[tuple[tuple[slice, slice], NDArray]]:
        """Yield blocks of images and channels, with the block's windows (see :func:`window_view`).

        Args:
            image: the images, channels first.
            value: the value around the images.
            scratch: memory for padded channels.
        """
        batch, channels, *size = image.shape
        out_size = self.out_size(size)
        reach = self.reach(out_size)
        wide = working_dtype(image.dtype)
        starts = [-width for width in self.begin]
        is_view = wide == image.dtype and not any(map(max, self.begin, map(sub, reach, size)))
        nbytes = math.prod(reach) * wide.itemsize
        at_once = (max(1, batch), max(1, channels)) if is_view else blocks_of_channels(batch, channels, nbytes)
        num_padded = 0 if is_view else min(batch, at_once[0]) * min(channels, at_once[1])
        memory = Scratch(scratch).take([num_padded * math.prod(reach)], wide)
        for part in parts_of_channels(batch, channels, *at_once):
            padded = part_of(image[part], starts, reach, value, memory)
            yield part, window_view(padded, self.pool_size, self.strides, self.dilation, out_size)


def scratch_nbytes(shapes: Sequence[Sequence[Dim]], dtypes: Sequence[np.dtype[Any]], attrs: Mapping[str, Any]) -> Dim:
    """Return the bytes of the channels padded at once, or slightly more."""
    pooling = _Pooling(*(attrs[field.name] for field in fields(_Pooling)))
    batch, channels, *size = (shapes[0][pooling.layout.index(axis)] for axis in channels_first_layout(pooling.layout))
    wide = working_dtype(dtypes[0])
    if wide == dtypes[0] and not any(pooling.padding) and not pooling.ceil_mode:
        return 0
    # With `ceil_mode` a window reaches beyond the padding by less than a stride.
    rank, extra = len(size), pooling.strides if pooling.ceil_mode else [0] * len(size)
    padded = [size[axis] + pooling.padding[axis] + pooling.padding[rank + axis] + extra[axis] for axis in range(rank)]
    nbytes = product(padded) * wide.itemsize
    return dim_min(batch * channels * nbytes, dim_max(nbytes, BLOCK_BYTES))


def max_pool(
    x: NDArray,
    *,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    layout: str,
    out: NDArray | None = None,
    scratch: NDArray | None = None,
) -> NDArray:
    """Return the largest element of every window; the type's lowest value for a window of padding alone.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.
    """

    def largest(windows: NDArray, result: NDArray) -> None:
        result[...] = tap_view(windows, [0] * len(pool_size))
        _over_taps(np.maximum, windows, pool_size, result)

    pooling = _Pooling(pool_size, strides, padding, dilation, ceil_mode, layout)
    return pooling.compute(x, largest, lowest(x.dtype), out, scratch)


def argmax_pool(
    x: NDArray,
    *,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    column_major: bool,
) -> NDArray:
    """Return the index of the largest element of every window in ``x``; -1 for a window of padding alone.

    NaN is the largest; of equal elements, the first of the window in row-major order counts. Images and channels are
    counted in row-major order, the elements of a channel in row-major or column-major order.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)``; likewise with one or three spatial axes.

    Cost: two passes over the windows for each position of a window.
    """
    rank = len(pool_size)
    pooling = _Pooling(pool_size, strides, padding, dilation, ceil_mode, "NC" + "DHW"[-rank:])
    batch, channels, *size = x.shape
    out_size = pooling.out_size(size)
    order = range(rank) if column_major else reversed(range(rank))
    steps, step = [0] * rank, 1
    for axis in order:
        steps[axis], step = step, step * size[axis]
    result = np.full((batch, channels, *out_size), -1, np.int64)
    for part, windows in pooling.windows(x, lowest(x.dtype), None):
        index = result[part]
        largest = np.empty(index.shape, windows.dtype)
        for tap in np.ndindex(*pool_size):
            values = tap_view(windows, tap)
            at, is_inside = np.zeros((), np.int64), np.ones((), np.bool_)
            for axis in range(rank):
                column = [-1 if other == axis else 1 for other in range(rank)]
                along = np.arange(out_size[axis]) * strides[axis] + tap[axis] * dilation[axis] - padding[axis]
                is_inside = is_inside & ((along >= 0) & (along < size[axis])).reshape(column)
                at = at + (along * steps[axis]).reshape(column)
            is_larger = is_inside & ((index < 0) | (values > largest) | ((values != values) & (largest == largest)))
            np.copyto(largest, values, where=is_larger)
            np.copyto(index, at, where=is_larger)
    channel = np.arange(batch * channels).reshape(batch, channels, *[1] * rank) * math.prod(size)
    return np.where(result < 0, -1, result + channel)


def avg_pool(
    x: NDArray,
    *,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    count_include_pad: bool,
    layout: str,
    out: NDArray | None = None,
    scratch: NDArray | None = None,
) -> NDArray:
    """Return the mean of every window.

    Padding counts as zeros with ``count_include_pad``, else not at all; elements added by ``ceil_mode`` beyond the
    padding never count. A window without any element yields 0.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.
    """
    pooling = _Pooling(pool_size, strides, padding, dilation, ceil_mode, layout)
    size = channels_first(x, layout).shape[2:]
    rank = len(pool_size)
    counts = [
        _counts(
            size[axis],
            pool_size[axis],
            strides[axis],
            dilation[axis],
            padding[axis],
            padding[rank + axis] if count_include_pad else 0,
            count,
            count_leading=count_include_pad,
        )
        for axis, count in enumerate(pooling.out_size(size))
    ]
    divisors = np.maximum(reduce(np.multiply.outer, counts), 1).astype(working_dtype(x.dtype))

    def mean(windows: NDArray, result: NDArray) -> None:
        result[...] = 0
        _over_taps(np.add, windows, pool_size, result)
        if result.dtype.kind == "f":
            np.divide(result, divisors, out=result)
        else:
            result[...] = result / divisors

    return pooling.compute(x, mean, 0, out, scratch)


def lp_pool(
    x: NDArray,
    *,
    p: int,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    layout: str,
) -> NDArray:
    """Return ``sum(|x| ** p) ** (1/p)`` of every window; padding counts as zeros.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.
    """

    def norm(windows: NDArray, result: NDArray) -> None:
        result[...] = 0
        _over_taps(np.add, windows, pool_size, result)
        result[...] = np.sqrt(result) if p == 2 else result ** np.asarray(1.0 / p, result.dtype)

    powers = np.abs(x.astype(working_dtype(x.dtype), copy=False)) ** p
    pooling = _Pooling(pool_size, strides, padding, dilation, ceil_mode, layout)
    return pooling.compute(powers, norm, 0, None, None).astype(x.dtype, copy=False)


def _over_taps(combine: np.ufunc, windows: NDArray, pool_size: tuple[int, ...], result: NDArray) -> None:
    """Combine each tap of all windows into ``result``: a pass per tap limits memory to the result's size."""
    for tap in np.ndindex(*pool_size):
        combine(result, tap_view(windows, tap), out=result)


def _counts(
    size: int, window: int, stride: int, dilation: int, begin: int, end: int, count: int, *, count_leading: bool
) -> NDArray:
    """Return the number of counted taps of each window along an axis."""
    taps = np.arange(count)[:, np.newaxis] * stride + np.arange(window) * dilation - begin
    first = -begin if count_leading else 0
    return np.asarray(((taps >= first) & (taps < size + end)).sum(axis=1))


def adaptive_avg_pool(x: NDArray, *, output_size: tuple[int, ...], layout: str) -> NDArray:
    """Return the mean of every window.

    Window ``i`` of ``OW`` begins at ``i * W // OW`` and ends before ``ceil((i + 1) * W / OW)``.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.

    Source: the adaptive pooling of PyTorch.

    Raises:
        ExecutionError: a spatial axis is empty.
    """
    image = channels_first(x, layout).astype(working_dtype(x.dtype), copy=False)
    for axis, count in enumerate(output_size, start=2):
        image = _combine_windows(np.add, image, axis, count) / _window_sizes(image.shape[axis], count, image, axis)
    return channels_restored(image.astype(x.dtype, copy=False), layout)


def adaptive_max_pool(x: NDArray, *, output_size: tuple[int, ...], layout: str) -> NDArray:
    """Return the largest element of every window, NaN if any; windows are the windows of :func:`adaptive_avg_pool`.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.

    Raises:
        ExecutionError: a spatial axis is empty.
    """
    image = channels_first(x, layout).astype(working_dtype(x.dtype), copy=False)
    for axis, count in enumerate(output_size, start=2):
        image = _combine_windows(np.maximum, image, axis, count)
    return channels_restored(image.astype(x.dtype, copy=False), layout)


def _window_bounds(size: int, count: int) -> list[tuple[int, int]]:
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def _window_sizes(size: int, count: int, image: NDArray, axis: int) -> NDArray:
    sizes = np.array([stop - start for start, stop in _window_bounds(size, count)], image.dtype)
    return sizes.reshape([-1 if other == axis else 1 for other in range(image.ndim)])


def _combine_windows(combine: np.ufunc, image: NDArray, axis: int, count: int) -> NDArray:
    """Return a combined slice for each window along an axis."""
    size = image.shape[axis]
    if size == 0:
        raise ExecutionError("op `adaptive pooling`", f"spatial axis {axis} is empty", got=image.shape)
    starts = np.array(_window_bounds(size, count)).reshape(-1)
    # Every second slice is a window; slices between windows, from a stop to the next start, are left out.
    padded = np.concatenate([image, image.take([0], axis=axis)], axis=axis)
    return np.asarray(combine.reduceat(padded, starts, axis=axis).take(range(0, 2 * count, 2), axis=axis))
