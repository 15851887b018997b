"""Kernels of pooling over one, two or three axes, by sliding windows."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from byoc_core.kernels.precision import NDArray, lowest, working_dtype
from byoc_core.kernels.windows import channels_first, channels_restored, num_windows, pad_image, tap_view, window_view

__all__ = ["KERNELS", "avg_pool", "lp_pool", "max_pool"]


def max_pool(
    x: NDArray,
    *,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    layout: str,
) -> NDArray:
    """Gives the largest element of every window; a window of nothing but padding gives the type's lowest value.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.
    """
    image = channels_first(x, layout).astype(working_dtype(x.dtype), copy=False)
    windows = _windows(image, pool_size, strides, padding, dilation, ceil_mode, lowest(x.dtype))
    result = _over_taps(np.maximum, windows, pool_size, tap_view(windows, [0] * len(pool_size)).copy())
    return channels_restored(result.astype(x.dtype, copy=False), layout)


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
) -> NDArray:
    """Gives the mean of every window.

    Padding counts as zeros with ``count_include_pad``, else not at all; what ``ceil_mode`` adds beyond the padding
    never counts. A window without any element gives 0.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.
    """
    wide = working_dtype(x.dtype)
    image = channels_first(x, layout).astype(wide, copy=False)
    windows = _windows(image, pool_size, strides, padding, dilation, ceil_mode, 0)
    rank = len(pool_size)
    total = _total(windows, pool_size)
    counts = [
        _counts(
            image.shape[2 + axis],
            pool_size[axis],
            strides[axis],
            dilation[axis],
            padding[axis],
            padding[rank + axis] if count_include_pad else 0,
            total.shape[2 + axis],
            count_leading=count_include_pad,
        )
        for axis in range(rank)
    ]
    result = total / np.maximum(reduce(np.multiply.outer, counts), 1).astype(wide)
    return channels_restored(result.astype(x.dtype, copy=False), layout)


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
    """Gives ``sum(|x| ** p) ** (1/p)`` of every window; padding counts as zeros.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.
    """
    wide = working_dtype(x.dtype)
    powers = np.abs(channels_first(x, layout).astype(wide, copy=False)) ** p
    windows = _windows(powers, pool_size, strides, padding, dilation, ceil_mode, 0)
    total = _total(windows, pool_size)
    result = np.sqrt(total) if p == 2 else total ** np.asarray(1.0 / p, wide)
    return channels_restored(np.asarray(result).astype(x.dtype, copy=False), layout)


def _total(windows: NDArray, pool_size: tuple[int, ...]) -> NDArray:
    return _over_taps(np.add, windows, pool_size, np.zeros_like(tap_view(windows, [0] * len(pool_size))))


def _over_taps(combine: np.ufunc, windows: NDArray, pool_size: tuple[int, ...], result: NDArray) -> NDArray:
    """Combines each tap of all windows into ``result``: one pass per tap keeps memory at the result's size."""
    for tap in np.ndindex(*pool_size):
        combine(result, tap_view(windows, tap), out=result)
    return result


def _windows(
    image: NDArray,
    pool_size: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    ceil_mode: bool,
    value: object,
) -> NDArray:
    rank = len(pool_size)
    out_size, reach = [], []
    for axis in range(rank):
        size, begin, end = image.shape[2 + axis], padding[axis], padding[rank + axis]
        count = num_windows(size, pool_size[axis], strides[axis], dilation[axis], begin, end, ceil_mode=ceil_mode)
        needed = (count - 1) * strides[axis] + dilation[axis] * (pool_size[axis] - 1) + 1
        out_size.append(count)
        reach.append(max(end, needed - size - begin))
    padded = pad_image(image, (*padding[:rank], *reach), value)
    return window_view(padded, pool_size, strides, dilation, out_size)


def _counts(
    size: int, window: int, stride: int, dilation: int, begin: int, end: int, count: int, *, count_leading: bool
) -> NDArray:
    """Gives how many taps of each window along one axis lie where elements count."""
    taps = np.arange(count)[:, np.newaxis] * stride + np.arange(window) * dilation - begin
    first = -begin if count_leading else 0
    return np.asarray(((taps >= first) & (taps < size + end)).sum(axis=1))


KERNELS: dict[str, Callable[..., NDArray]] = {
    f"nn.{name}_pool{rank}d": kernel
    for name, kernel in (("max", max_pool), ("avg", avg_pool), ("lp", lp_pool))
    for rank in (1, 2, 3)
}
