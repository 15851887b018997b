"""The kernel of 2-d convolution: image to columns, then one matrix product per group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.kernels.windows import num_windows, pad_image, window_view

__all__ = ["KERNELS", "conv2d"]

_TO_OIHW = {"OIHW": (0, 1, 2, 3), "IOHW": (1, 0, 2, 3), "HWIO": (3, 2, 0, 1)}
# Images are unfolded in batches whose columns take at most this many bytes.
_COLUMN_BYTES = 1 << 25


def conv2d(
    x: NDArray,
    weight: NDArray,
    *,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
    data_layout: str,
    kernel_layout: str,
) -> NDArray:
    """Gives the cross-correlation of images with filters.

    Shapes: ``(N, C, H, W), (O, C/groups, KH, KW) -> (N, O, OH, OW)`` in the layouts ``NCHW`` and ``OIHW``.

    Cost: ``2 * N * O * OH * OW * C/groups * KH * KW`` operations, and at most 32 MiB (or one image's columns, where
    that is more) beside the padded input.
    """
    wide = working_dtype(x.dtype)
    image = x.transpose(0, 3, 1, 2) if data_layout == "NHWC" else x
    filters = weight.transpose(_TO_OIHW[kernel_layout]).astype(wide, copy=False)
    height, width = filters.shape[2:]
    out_size = (
        num_windows(image.shape[2], height, strides[0], dilation[0], padding[0], padding[2]),
        num_windows(image.shape[3], width, strides[1], dilation[1], padding[1], padding[3]),
    )
    padded = pad_image(image.astype(wide, copy=False), padding, 0)
    windows = window_view(padded, (height, width), strides, dilation, out_size)
    with np.errstate(all="ignore"):
        depthwise = groups > 1 and filters.shape[1] == 1 and filters.shape[0] == groups
        result = _depthwise(windows, filters) if depthwise else _by_columns(windows, filters, groups)
    if data_layout == "NHWC":
        result = result.transpose(0, 2, 3, 1)
    return np.ascontiguousarray(result.astype(x.dtype, copy=False))


def _by_columns(windows: NDArray, filters: NDArray, groups: int) -> NDArray:
    batch, channels, height, width, out_height, out_width = windows.shape
    out_channels = filters.shape[0]
    depth, pixels = channels // groups * height * width, out_height * out_width
    matrix = np.ascontiguousarray(filters).reshape(groups, out_channels // groups, depth)
    result = np.empty((batch, groups, out_channels // groups, pixels), filters.dtype)
    step = max(1, _COLUMN_BYTES // max(1, groups * depth * pixels * filters.itemsize))
    for start in range(0, batch, step):
        part = windows[start : start + step]
        columns = part.reshape(len(part), groups, depth, pixels)
        np.matmul(matrix, columns, out=result[start : start + step])
    return result.reshape(batch, out_channels, out_height, out_width)


def _depthwise(windows: NDArray, filters: NDArray) -> NDArray:
    """One filter per channel: a sum over the filter's few taps, without unfolding."""
    batch, channels, height, width, out_height, out_width = windows.shape
    result = np.zeros((batch, channels, out_height, out_width), filters.dtype)
    for row in range(height):
        for column in range(width):
            result += windows[:, :, row, column] * filters[:, 0, row, column, np.newaxis, np.newaxis]
    return result


KERNELS: dict[str, Callable[..., NDArray]] = {"nn.conv2d": conv2d}
