"""Kernels that combine elements along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from byoc_core.kernels.precision import NDArray, lowest, working_dtype

__all__ = ["KERNELS", "argmax", "reduce_max", "reduce_mean", "reduce_sum"]


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


def argmax(x: NDArray, *, axis: int, keepdims: bool) -> NDArray:
    """Gives the index (int64) of the first largest element along one axis; a NaN counts as largest."""
    return np.asarray(np.argmax(x, axis=axis, keepdims=keepdims)).astype(np.int64, copy=False)


KERNELS: dict[str, Callable[..., NDArray]] = {
    "sum": reduce_sum,
    "mean": reduce_mean,
    "max": reduce_max,
    "argmax": argmax,
}
