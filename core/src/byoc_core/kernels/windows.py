"""Windows over images of one, two or three spatial axes, shared by convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = ["channels_first", "channels_restored", "num_windows", "pad_image", "spatial_axes", "tap_view", "window_view"]


def spatial_axes(layout: str) -> str:
    """Gives the letters of a layout's spatial axes in their fixed order: ``W``, ``HW`` or ``DHW``."""
    return "".join(axis for axis in "DHW" if axis in layout)


def channels_first(x: NDArray, layout: str) -> NDArray:
    """Gives an image with its axes in the order batch, channels, spatial axes: a view."""
    return x.transpose([layout.index(axis) for axis in "NC" + spatial_axes(layout)])


def channels_restored(x: NDArray, layout: str) -> NDArray:
    """Gives an image from :func:`channels_first` in its layout again, contiguous."""
    order = "NC" + spatial_axes(layout)
    return np.ascontiguousarray(x.transpose([order.index(axis) for axis in layout]))


def num_windows(
    size: int, window: int, stride: int, dilation: int, begin: int, end: int, *, ceil_mode: bool = False
) -> int:
    """Gives how many windows fit along one axis.

    With ``ceil_mode`` a last, partial window counts too if it starts inside the image or its leading padding.

    Raises:
        ExecutionError: the window is larger than the padded image.
    """
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


def pad_image(image: NDArray, padding: Sequence[int], value: object) -> NDArray:
    """Gives ``(N, C, ...)`` with ``value`` around it: first all widths before each spatial axis, then those after.

    Without padding it is the image itself, not a copy.
    """
    if not any(padding):
        return image
    rank = image.ndim - 2
    sides = list(zip(image.shape[2:], padding[:rank], padding[rank:], strict=True))
    padded = np.full((*image.shape[:2], *(size + begin + end for size, begin, end in sides)), value, image.dtype)
    inside: tuple[Any, ...] = (..., *(slice(begin, begin + size) for size, begin, _ in sides))
    padded[inside] = image
    return padded


def window_view(
    image: NDArray, window: Sequence[int], strides: Sequence[int], dilation: Sequence[int], out_size: Sequence[int]
) -> NDArray:
    """Gives a read-only view of all windows: batch, channels, the axes of a window, the axes of the result.

    The caller has made the image large enough for ``out_size`` windows along each axis.
    """
    steps = image.strides[2:]
    return as_strided(
        image,
        (*image.shape[:2], *window, *out_size),
        (
            *image.strides[:2],
            *(step * apart for step, apart in zip(steps, dilation, strict=True)),
            *(step * stride for step, stride in zip(steps, strides, strict=True)),
        ),
        writeable=False,
    )


def tap_view(windows: NDArray, tap: Sequence[int]) -> NDArray:
    """Gives the elements at one place of every window, from the view of all windows."""
    index: tuple[Any, ...] = (slice(None), slice(None), *tap)
    return np.asarray(windows[index])
