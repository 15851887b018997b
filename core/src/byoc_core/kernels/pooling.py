"""Kernels of 2-d pooling, by sliding windows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.precision import NDArray, lowest, working_dtype
from byoc_core.kernels.windows import num_windows, pad_image, window_view

__all__ = ["KERNELS", "avg_pool2d", "max_pool2d"]


def max_pool2d(
    x: NDArray,
    *,
    pool_size: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    ceil_mode: bool,
    layout: str,
) -> NDArray:
    """Gives the largest element of every window; a window of nothing but padding gives the type's lowest value.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``.
    """
    image = (x.transpose(0, 3, 1, 2) if layout == "NHWC" else x).astype(working_dtype(x.dtype), copy=False)
    windows = _windows(image, pool_size, strides, padding, dilation, ceil_mode, lowest(x.dtype))
    result = _over_taps(np.maximum, windows, windows[:, :, 0, 0].copy())
    return _from_nchw(result.astype(x.dtype, copy=False), layout)


def avg_pool2d(
    x: NDArray,
    *,
    pool_size: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    ceil_mode: bool,
    count_include_pad: bool,
    layout: str,
) -> NDArray:
    """Gives the mean of every window.

    Padding counts as zeros with ``count_include_pad``, else not at all; what ``ceil_mode`` adds beyond the padding
    never counts. A window without any element gives 0.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``.
    """
    wide = working_dtype(x.dtype)
    image = (x.transpose(0, 3, 1, 2) if layout == "NHWC" else x).astype(wide, copy=False)
    windows = _windows(image, pool_size, strides, padding, dilation, ceil_mode, 0)
    total = _over_taps(np.add, windows, np.zeros_like(windows[:, :, 0, 0]))
    with np.errstate(all="ignore"):
        rows, columns = (
            _counts(
                image.shape[2 + axis],
                pool_size[axis],
                strides[axis],
                dilation[axis],
                padding[axis],
                padding[2 + axis] if count_include_pad else 0,
                windows.shape[4 + axis],
                count_leading=count_include_pad,
            )
            for axis in (0, 1)
        )
        result = (total / np.maximum(np.outer(rows, columns), 1).astype(wide)).astype(x.dtype, copy=False)
    return _from_nchw(result, layout)


def _over_taps(combine: np.ufunc, windows: NDArray, result: NDArray) -> NDArray:
    """Combines each tap of all windows into ``result``: one pass per tap keeps memory at the result's size."""
    with np.errstate(all="ignore"):
        for row in range(windows.shape[2]):
            for column in range(windows.shape[3]):
                combine(result, windows[:, :, row, column], out=result)
    return result


def _from_nchw(image: NDArray, layout: str) -> NDArray:
    return np.ascontiguousarray(image.transpose(0, 2, 3, 1)) if layout == "NHWC" else image


def _windows(
    image: NDArray,
    pool_size: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    ceil_mode: bool,
    value: object,
) -> NDArray:
    out_size, reach = [], []
    for axis in (0, 1):
        size, begin, end = image.shape[2 + axis], padding[axis], padding[2 + axis]
        count = num_windows(size, pool_size[axis], strides[axis], dilation[axis], begin, end, ceil_mode=ceil_mode)
        needed = (count - 1) * strides[axis] + dilation[axis] * (pool_size[axis] - 1) + 1
        out_size.append(count)
        reach.append(max(end, needed - size - begin))
    padded = pad_image(image, (padding[0], padding[1], reach[0], reach[1]), value)
    return window_view(padded, pool_size, strides, dilation, (out_size[0], out_size[1]))


def _counts(
    size: int, window: int, stride: int, dilation: int, begin: int, end: int, count: int, *, count_leading: bool
) -> NDArray:
    """Gives how many taps of each window along one axis lie where elements count."""
    taps = np.arange(count)[:, np.newaxis] * stride + np.arange(window) * dilation - begin
    first = -begin if count_leading else 0
    return np.asarray(((taps >= first) & (taps < size + end)).sum(axis=1))


KERNELS: dict[str, Callable[..., NDArray]] = {"nn.max_pool2d": max_pool2d, "nn.avg_pool2d": avg_pool2d}
