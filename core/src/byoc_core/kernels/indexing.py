"""Kernels that read elements at computed places, or mark them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from byoc_core.kernels.indices import element_places, require_shape, resolve_coordinates, widened
from byoc_core.kernels.numpy_kernel import NumpyKernel, dtype_of
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "gather_elements", "gather_nd", "one_hot"]


def gather_elements(x: NDArray, indices: NDArray, *, axis: int) -> NDArray:
    """Gives for each index the element of ``x`` at that index along ``axis`` and at its own place elsewhere.

    Raises:
        ExecutionError: an index lies outside the axis, or ``indices`` is larger than ``x`` along another axis.
    """
    return np.asarray(np.take(x.reshape(-1), element_places("gather_elements", indices, x.shape, axis % x.ndim)))


def gather_nd(x: NDArray, indices: NDArray, *, batch_dims: int) -> NDArray:
    """Gives the slices of ``x`` at tuples of indices, which lie along the last axis of ``indices``.

    The first ``batch_dims`` axes of both are paired, not indexed.

    Raises:
        ExecutionError: an index lies outside its axis, or the batches differ.
    """
    batch = x.shape[:batch_dims]
    require_shape("gather_nd", "indices", indices.shape, (*batch, *indices.shape[batch_dims:]))
    coordinates = resolve_coordinates("gather_nd", indices, x.shape, batch_dims)
    rank = indices.ndim - 1
    paired = (np.arange(size).reshape([-1] + [1] * (rank - 1 - axis)) for axis, size in enumerate(batch))
    return np.asarray(x[(*paired, *coordinates)])


def one_hot(indices: NDArray, on_value: NDArray, off_value: NDArray, *, depth: int, axis: int) -> NDArray:
    """Gives ``on_value`` where the place along a new axis of size ``depth`` is the index, else ``off_value``.

    Negative indices count from the end; one outside has ``off_value`` everywhere.
    """
    wide = widened(indices)
    index = np.expand_dims(np.where(wide < 0, wide + depth, wide), axis)
    places = np.expand_dims(np.arange(depth), [other for other in range(index.ndim) if other != axis % index.ndim])
    return np.where(index == places, on_value, off_value)


KERNELS: dict[str, Callable[..., NDArray | tuple[NDArray, ...]]] = {
    "gather_elements": NumpyKernel(gather_elements, gives=dtype_of(0)),
    "gather_nd": NumpyKernel(gather_nd, gives=dtype_of(0)),
    "one_hot": one_hot,
}
