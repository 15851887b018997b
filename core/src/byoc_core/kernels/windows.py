"""Windows over images of one, two or three spatial axes, shared by convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from byoc_core.errors import ExecutionError
from byoc_core.kernels.memory import BLOCK_BYTES, result_memory
from byoc_core.kernels.precision import NDArray

__all__ = [
    "ChannelsFirst",
    "blocks_of_channels",
    "channels_first",
    "channels_first_layout",
    "channels_restored",
    "num_windows",
    "part_of",
    "parts_of_channels",
    "spatial_axes",
    "tap_view",
    "window_view",
]


def spatial_axes(layout: str) -> str:
    """Return the letters of a layout's spatial axes in their fixed order: ``W``, ``HW`` or ``DHW``."""
    return "".join(axis for axis in "DHW" if axis in layout)


def channels_first(x: NDArray, layout: str) -> NDArray:
    """Return a view of an image with its axes in the order batch, channels, spatial axes."""
    return x.transpose([layout.index(axis) for axis in channels_first_layout(layout)])


def channels_restored(x: NDArray, layout: str) -> NDArray:
    """Return an image from :func:`channels_first` in its layout again, contiguous."""
    return np.ascontiguousarray(x.transpose(_restoring(layout)))


def channels_first_layout(layout: str) -> str:
    """Return the axes of a layout in the order of :func:`channels_first`."""
    return "NC" + spatial_axes(layout)


def _restoring(layout: str) -> list[int]:
    order = channels_first_layout(layout)
    return [order.index(axis) for axis in layout]


class ChannelsFirst:
    """Memory for the result of a kernel computing channels first, possibly in another dtype.

    Args:
        shape: the shape of the result, channels first.
        layout: the layout of the result.
        wide: the dtype of the computation.
        dtype: the dtype of the result.
        out: memory for the result.

    Attributes:
        array: the array filled by the kernel: the result itself if layout and dtype are the same.

    Raises:
        ValueError: ``out`` does not fit.
    """

    def __init__(
        self, shape: Sequence[int], layout: str, wide: np.dtype[Any], dtype: np.dtype[Any], out: NDArray | None
    ) -> None:
        self._order = _restoring(layout)
        self._result = result_memory(out, [shape[axis] for axis in self._order], dtype)
        self._is_direct = wide == dtype and layout == channels_first_layout(layout)
        self.array = self._result if self._is_direct else np.empty(shape, wide)

    def restored(self) -> NDArray:
        """Return the result, in its layout and dtype."""
        if not self._is_direct:
            self._result[...] = self.array.transpose(self._order)
        return self._result


def num_windows(
    size: int, window: int, stride: int, dilation: int, begin: int, end: int, *, ceil_mode: bool = False
) -> int:
    """Return the number of windows along an axis.

    With ``ceil_mode`` a last, partial window counts too if the window starts inside the image or the leading padding.

    Raises:
        ExecutionError: the window is larger than the padded image, or a number is too small to make windows.
    """
    if min(size, begin, end) < 0 or min(window, stride, dilation) < 1:
        raise ExecutionError(
            "operand `x`",
            "the windows cannot be counted",
            got=f"window {window}, stride {stride}, dilation {dilation}, padding {begin} and {end}",
            expected="padding of 0 or more; window, stride and dilation of 1 or more",
        )
    reach = dilation * (window - 1) + 1
    room = size + begin + end - reach
    if room < 0:
        raise ExecutionError(
            "operand `x`",
            "an axis of the padded image is smaller than the window",
            got=size + begin + end,
            expected=f"{reach} or more",
        )
    if not ceil_mode:
        return room // stride + 1
    return min(-(-room // stride) + 1, -(-(size + begin) // stride))


def part_of(image: NDArray, starts: Sequence[int], sizes: Sequence[int], value: object, memory: NDArray) -> NDArray:
    """Return a box of ``(N, C, ...)``, filled with ``value`` beyond the image.

    A box inside an image of the right dtype is returned as a view of the image.

    Args:
        image: the images.
        starts: the first element along each spatial axis; negative before the image.
        sizes: the sizes of the box.
        value: the value around the image.
        memory: memory for a padded box: elements of the right dtype in one axis, at least as many as the box has.
    """
    limits = image.shape[2:]
    first = [min(max(start, 0), limit) for start, limit in zip(starts, limits, strict=True)]
    last = [min(max(start + size, 0), limit) for start, size, limit in zip(starts, sizes, limits, strict=True)]
    inside: tuple[Any, ...] = (..., *map(slice, first, last))
    if image.dtype == memory.dtype and all(
        high - low == size for low, high, size in zip(first, last, sizes, strict=True)
    ):
        return np.asarray(image[inside])
    shape = (*image.shape[:2], *sizes)
    padded = memory[: math.prod(shape)].reshape(shape)
    padded[...] = value
    target: tuple[Any, ...] = (
        ...,
        *(slice(low - start, high - start) for low, high, start in zip(first, last, starts, strict=True)),
    )
    padded[target] = image[inside]
    return padded


def blocks_of_channels(batch: int, channels: int, channel_nbytes: int) -> tuple[int, int]:
    """Return how many images, and how many of their channels, take about :data:`BLOCK_BYTES`, or one channel."""
    num_channels = max(1, min(channels, BLOCK_BYTES // max(1, channel_nbytes)))
    if num_channels < channels:
        return 1, num_channels
    return max(1, min(batch, BLOCK_BYTES // max(1, channels * channel_nbytes))), num_channels


def parts_of_channels(batch: int, channels: int, num_images: int, num_channels: int) -> Iterator[tuple[slice, slice]]:
    """Yield the blocks of images and their channels, as indices of the first two axes."""
    for image in range(0, batch, num_images):
        for channel in range(0, channels, num_channels):
            yield slice(image, image + num_images), slice(channel, channel + num_channels)


def window_view(
    image: NDArray, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int], out_size: Sequence[int]
) -> NDArray:
    """Return a read-only view of all windows: batch, channels, the axes of a window, the axes of the result.

    Raises:
        ExecutionError: a window would lie outside the image. The view addresses memory by these numbers, and numpy
            does not check them.
    """
    tap_strides: list[int] = []
    window_strides: list[int] = []
    for axis, (extent, stride, apart, count) in enumerate(
        zip(window, strides, dilation, out_size, strict=True), start=2
    ):
        size, step = image.shape[axis], image.strides[axis]
        reach = max(extent - 1, 0) * apart + max(count - 1, 0) * stride + 1
        if min(extent, count) < 0 or min(apart, stride) < 1 or reach > max(size, 1 if 0 in (extent, count) else 0):
            raise ExecutionError(
                "operand `x`",
                "the windows do not lie inside the image",
                got=f"{count} windows of {extent}, stride {stride}, dilation {apart}",
                expected=f"windows inside {size} elements",
            )
        tap_strides.append(step * apart if extent > 1 else step)
        window_strides.append(step * stride if count > 1 else step)
    return as_strided(
        image,
        (*image.shape[:2], *window, *out_size),
        (*image.strides[:2], *tap_strides, *window_strides),
        writeable=False,
    )


def tap_view(windows: NDArray, tap: Sequence[int]) -> NDArray:
    """Return the elements at a fixed position of every window, from the view of all windows."""
    index: tuple[Any, ...] = (slice(None), slice(None), *tap)
    return np.asarray(windows[index])
