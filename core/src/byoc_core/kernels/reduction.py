"""Kernels that combine elements along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

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


def reduce_sum(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the sum along axes (all where ``None``); integers wrap around; the sum of nothing is 0."""
    wide = working_dtype(x.dtype)
    with np.errstate(all="ignore"):
        total = np.sum(x, axis=_axes(axis), dtype=wide, keepdims=keepdims)
        return np.asarray(total).astype(x.dtype, copy=False)


def reduce_mean(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the mean along axes (all where ``None``); the mean of nothing is NaN."""
    axes = tuple(range(x.ndim)) if axis is None else _axes(axis) or ()
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    wide = working_dtype(x.dtype)
    with np.errstate(all="ignore"):
        total = np.sum(x, axis=axes, dtype=wide, keepdims=keepdims)
        return np.asarray(total / np.asarray(count, wide)).astype(x.dtype, copy=False)


def reduce_max(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the largest element along axes (all where ``None``); of nothing, the type's lowest value."""
    with np.errstate(all="ignore"):
        largest = np.max(x, axis=_axes(axis), keepdims=keepdims, initial=lowest(x.dtype))
        return np.asarray(largest).astype(x.dtype, copy=False)


def reduce_min(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the smallest element along axes (all where ``None``); of nothing, the type's highest value."""
    with np.errstate(all="ignore"):
        smallest = np.min(x, axis=_axes(axis), keepdims=keepdims, initial=highest(x.dtype))
        return np.asarray(smallest).astype(x.dtype, copy=False)


def reduce_prod(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the product along axes (all where ``None``); integers wrap around; the product of nothing is 1."""
    with np.errstate(all="ignore"):
        total = np.prod(x, axis=_axes(axis), dtype=working_dtype(x.dtype), keepdims=keepdims)
        return np.asarray(total).astype(x.dtype, copy=False)


def logsumexp(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Gives the logarithm of the sum of exponentials along axes; no finite ``x`` overflows; of nothing, -inf."""
    axes = _axes(axis)
    wide = x.astype(working_dtype(x.dtype), copy=False)
    with np.errstate(all="ignore"):
        top = np.max(wide, axis=axes, keepdims=True, initial=-np.inf)
        top = np.where(np.isfinite(top), top, np.zeros_like(top))
        total = np.log(np.sum(np.exp(wide - top), axis=axes, keepdims=True)) + top
        result = total if keepdims else np.squeeze(total, tuple(range(x.ndim)) if axes is None else axes)
        return np.asarray(result).astype(x.dtype, copy=False)


def _place(search: Callable[..., Any]) -> Callable[..., NDArray]:
    """Gives the kernel of the index (int64) of the first, or last, extreme element along one axis."""

    def kernel(x: NDArray, *, axis: int, keepdims: bool, select_last_index: bool = False) -> NDArray:
        walked = np.flip(x, axis) if select_last_index else x
        index = np.asarray(search(walked, axis=axis, keepdims=keepdims)).astype(np.int64, copy=False)
        return np.asarray(x.shape[axis] - 1 - index) if select_last_index else index

    return kernel


def reduce_all(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Tells whether all elements hold along axes (all where ``None``); of nothing, they do."""
    return np.asarray(np.all(x, axis=_axes(axis), keepdims=keepdims))


def reduce_any(x: NDArray, *, axis: Sequence[int] | None, keepdims: bool) -> NDArray:
    """Tells whether at least one element holds along axes (all where ``None``); of nothing, none does."""
    return np.asarray(np.any(x, axis=_axes(axis), keepdims=keepdims))


KERNELS: dict[str, Callable[..., NDArray]] = {
    "sum": reduce_sum,
    "mean": reduce_mean,
    "max": reduce_max,
    "argmax": _place(np.argmax),
    "min": reduce_min,
    "prod": reduce_prod,
    "logsumexp": logsumexp,
    "argmin": _place(np.argmin),
    "all": reduce_all,
    "any": reduce_any,
}
