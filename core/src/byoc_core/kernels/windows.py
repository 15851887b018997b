"""Two-dimensional windows over images, shared by convolution and pooling."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import as_strided

from byoc_core.kernels.precision import NDArray

__all__ = ["num_windows", "pad_image", "window_view"]


def num_windows(
    size: int, window: int, stride: int, dilation: int, begin: int, end: int, *, ceil_mode: bool = False
) -> int:
    """Gives how many windows fit along one axis.

    With ``ceil_mode`` a last, partial window counts too if it starts inside the image or its leading padding.
    """
    room = size + begin + end - (dilation * (window - 1) + 1)
    if not ceil_mode:
        return room // stride + 1
    return min(-(-room // stride) + 1, -(-(size + begin) // stride))


def pad_image(image: NDArray, padding: tuple[int, int, int, int], value: object) -> NDArray:
    """Gives ``(N, C, H, W)`` with ``(top, left, bottom, right)`` rows and columns of ``value`` around it.

    Without padding it is the image itself, not a copy.
    """
    top, left, bottom, right = padding
    if not any(padding):
        return image
    batch, channels, height, width = image.shape
    padded = np.full((batch, channels, height + top + bottom, width + left + right), value, image.dtype)
    padded[:, :, top : top + height, left : left + width] = image
    return padded


def window_view(
    image: NDArray,
    window: tuple[int, int],
    strides: tuple[int, int],
    dilation: tuple[int, int],
    out_size: tuple[int, int],
) -> NDArray:
    """Gives a read-only view of all windows, ``(N, C, kernel row, kernel column, out row, out column)``.

    The caller has made the image large enough for ``out_size`` windows along each axis.
    """
    batch_step, channel_step, row_step, column_step = image.strides
    return as_strided(
        image,
        (*image.shape[:2], *window, *out_size),
        (
            batch_step,
            channel_step,
            row_step * dilation[0],
            column_step * dilation[1],
            row_step * strides[0],
            column_step * strides[1],
        ),
        writeable=False,
    )
