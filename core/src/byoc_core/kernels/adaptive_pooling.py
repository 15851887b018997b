"""Kernels of adaptive pooling: as many windows along each spatial axis as are asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray, working_dtype
from byoc_core.kernels.windows import channels_first, channels_restored

__all__ = ["KERNELS", "adaptive_avg_pool", "adaptive_max_pool"]


def adaptive_avg_pool(x: NDArray, *, output_size: tuple[int, ...], layout: str) -> NDArray:
    """Gives the mean of every window.

    Window ``i`` of ``OW`` begins at ``i * W // OW`` and ends before ``ceil((i + 1) * W / OW)``.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.

    Source: the adaptive pooling of PyTorch.

    Raises:
        ExecutionError: a spatial axis is empty.
    """
    image = channels_first(x, layout).astype(working_dtype(x.dtype), copy=False)
    for axis, count in enumerate(output_size, start=2):
        image = _reduce(np.add, image, axis, count) / _window_sizes(image.shape[axis], count, image, axis)
    return channels_restored(image.astype(x.dtype, copy=False), layout)


def adaptive_max_pool(x: NDArray, *, output_size: tuple[int, ...], layout: str) -> NDArray:
    """Gives the largest element of every window, NaN where it holds one; windows are those of the mean.

    Shapes: ``(N, C, H, W) -> (N, C, OH, OW)`` in the layout ``NCHW``; likewise with one or three spatial axes.

    Raises:
        ExecutionError: a spatial axis is empty.
    """
    image = channels_first(x, layout).astype(working_dtype(x.dtype), copy=False)
    for axis, count in enumerate(output_size, start=2):
        image = _reduce(np.maximum, image, axis, count)
    return channels_restored(image.astype(x.dtype, copy=False), layout)


def _bounds(size: int, count: int) -> list[tuple[int, int]]:
    return [(index * size // count, -(-(index + 1) * size // count)) for index in range(count)]


def _window_sizes(size: int, count: int, image: NDArray, axis: int) -> NDArray:
    sizes = np.array([stop - start for start, stop in _bounds(size, count)], image.dtype)
    return sizes.reshape([-1 if other == axis else 1 for other in range(image.ndim)])


def _reduce(combine: np.ufunc, image: NDArray, axis: int, count: int) -> NDArray:
    """Gives one combined slice for each window along an axis."""
    size = image.shape[axis]
    if size == 0:
        raise ExecutionError("op `adaptive pooling`", f"spatial axis {axis} is empty", got=image.shape)
    starts = np.array(_bounds(size, count)).reshape(-1)
    # Every second slice is a window; the ones between them, from a stop to the next start, are left out.
    padded = np.concatenate([image, image.take([0], axis=axis)], axis=axis)
    return np.asarray(combine.reduceat(padded, starts, axis=axis).take(range(0, 2 * count, 2), axis=axis))


KERNELS: dict[str, Callable[..., NDArray]] = {
    f"nn.adaptive_{name}_pool{rank}d": kernel
    for name, kernel in (("max", adaptive_max_pool), ("avg", adaptive_avg_pool))
    for rank in (1, 2, 3)
}
