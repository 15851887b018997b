"""Kernels that combine elements along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray, highest, lowest, working_dtype

__all__ = [
    "KERNELS",
    "logsumexp",
    "reduce_all",
    "reduce_any",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_prod",
    "reduce_sum",
]


def _axes(axis: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if axis is None else tuple(axis)


def _reduce(ufunc: Any, x: NDArray, axis: Sequence[int] | None, *, keepdims: bool, **options: Any) -> NDArray:
    """Combines along axes by a function of numpy; ``np.sum`` and its like do the same, with more overhead."""
    return np.asarray(ufunc.reduce(x, axis=_axes(axis), keepdims=keepdims, **options))


def reduce_sum(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the sum along axes (all where ``None``); integers wrap around; the sum of nothing is 0."""
    total = _reduce(np.add, x, axis, keepdims=keepdims, dtype=working_dtype(x.dtype))
    return total.astype(x.dtype, copy=False)


def reduce_mean(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the mean along axes (all where ``None``); the mean of nothing is NaN."""
    axes = tuple(range(x.ndim)) if axis is None else _axes(axis) or ()
    count = math.prod([x.shape[a] for a in axes])
    wide = working_dtype(x.dtype)
    total = _reduce(np.add, x, axes, keepdims=keepdims, dtype=wide)
    return np.asarray(total / np.asarray(count, wide)).astype(x.dtype, copy=False)


def reduce_max(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the largest element along axes (all where ``None``); of nothing, the type's lowest value."""
    largest = _reduce(np.maximum, x, axis, keepdims=keepdims, initial=lowest(x.dtype))
    return largest.astype(x.dtype, copy=False)


def reduce_min(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the smallest element along axes (all where ``None``); of nothing, the type's highest value."""
    smallest = _reduce(np.minimum, x, axis, keepdims=keepdims, initial=highest(x.dtype))
    return smallest.astype(x.dtype, copy=False)


def reduce_prod(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the product along axes (all where ``None``); integers wrap around; the product of nothing is 1."""
    total = _reduce(np.multiply, x, axis, keepdims=keepdims, dtype=working_dtype(x.dtype))
    return total.astype(x.dtype, copy=False)


def logsumexp(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the logarithm of the sum of exponentials along axes; no finite ``x`` overflows; of nothing, -inf."""
    axes = _axes(axis)
    wide = x.astype(working_dtype(x.dtype), copy=False)
    top = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, np.zeros_like(top))
    total = np.log(np.sum(np.exp(wide - top), axis=axes, keepdims=True)) + top
    result = total if keepdims else np.squeeze(total, tuple(range(x.ndim)) if axes is None else axes)
    return np.asarray(result).astype(x.dtype, copy=False)


def _place(op: str, search: Callable[..., Any]) -> NumpyKernel:
    """Gives the kernel of the index (int64) of the first, or last, extreme element along one axis."""

    def kernel(x: NDArray, *, axis: int, keepdims: bool, select_last_index: bool = False) -> NDArray:
        if not x.shape[axis]:
            raise ExecutionError(f"op `{op}`", f"axis {axis % x.ndim} is empty and has no element to find")
        walked = np.flip(x, axis) if select_last_index else x
        index = np.asarray(search(walked, axis=axis, keepdims=keepdims)).astype(np.int64, copy=False)
        return np.asarray(x.shape[axis] - 1 - index) if select_last_index else index

    return NumpyKernel(kernel, gives=fixed_dtype("int64"))


def reduce_all(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Tells whether all elements hold along axes (all where ``None``); of nothing, they do."""
    return _reduce(np.logical_and, x, axis, keepdims=keepdims)


def reduce_any(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Tells whether at least one element holds along axes (all where ``None``); of nothing, none does."""
    return _reduce(np.logical_or, x, axis, keepdims=keepdims)


KERNELS: dict[str, Callable[..., NDArray]] = {
    "sum": reduce_sum,
    "mean": reduce_mean,
    "max": reduce_max,
    "argmax": _place("argmax", np.argmax),
    "min": reduce_min,
    "prod": reduce_prod,
    "logsumexp": logsumexp,
    "argmin": _place("argmin", np.argmin),
    "all": reduce_all,
    "any": reduce_any,
}
