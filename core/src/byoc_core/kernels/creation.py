"""Kernels that make tensors of sizes: ranges, filled tensors, and shapes as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray

__all__ = ["KERNELS", "arange", "full", "shape_of", "shape_to_tensor", "size"]


def arange(*, start: int, stop: int, step: int, dtype: str) -> NDArray:
    """Gives ``start``, ``start + step``, ... up to (not with) ``stop``, each rounded once to ``dtype``."""
    return np.asarray(np.arange(start, stop, step, dtype="int64").astype(to_numpy(dtype)))


def full(fill_value: NDArray, *, shape: Sequence[int]) -> NDArray:
    """Gives a tensor of equal elements (a read-only view)."""
    return np.broadcast_to(fill_value, tuple(shape))


def shape_of(x: NDArray) -> NDArray:
    """Gives the sizes of ``x``."""
    return np.array(x.shape, np.int64)


def size(x: NDArray) -> NDArray:
    """Gives the number of elements of ``x``."""
    return np.array(x.size, np.int64)


def shape_to_tensor(*, sizes: Sequence[int]) -> NDArray:
    """Gives sizes as a vector."""
    return np.array(sizes, np.int64)


KERNELS: dict[str, Callable[..., NDArray]] = {
    "arange": NumpyKernel(arange, gives=fixed_dtype(None)),
    "full": full,
    "shape_of": NumpyKernel(shape_of, gives=fixed_dtype("int64")),
    "size": NumpyKernel(size, gives=fixed_dtype("int64")),
    "shape_to_tensor": NumpyKernel(shape_to_tensor, gives=fixed_dtype("int64")),
}
