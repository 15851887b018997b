"""Kernels whose elements decide the sizes of their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, isfinite
from typing import Any

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.numpy_kernel import NumpyKernel, fixed_dtype
from byoc_core.kernels.precision import NDArray, is_integer, working_dtype

__all__ = ["KERNELS", "compress", "nonzero", "range_", "range_length", "unique"]


def nonzero(x: NDArray) -> NDArray:
    """Gives the positions of the elements that are not zero (NaN is not), one column each, in row-major order."""
    return np.ascontiguousarray(np.argwhere(_comparable(x) != 0).T, dtype=np.int64)


def compress(x: NDArray, condition: NDArray, *, axis: int | None) -> NDArray:
    """Gives the slices along an axis (of the flat array where ``None``) for which the condition holds.

    Raises:
        ExecutionError: the condition holds beyond the end of the axis.
    """
    data = x.reshape(-1) if axis is None else x
    axis = axis or 0
    size = data.shape[axis]
    (kept,) = np.nonzero(condition)
    if kept.size and kept[-1] >= size:
        raise ExecutionError(
            "op `compress`", "the condition holds beyond the end of the axis", got=int(kept[-1]), expected=f"< {size}"
        )
    return np.take(data, kept, axis=axis)


def unique(x: NDArray, *, axis: int | None, sorted: bool) -> tuple[NDArray, ...]:  # noqa: A002 - the attribute's name
    """Gives the different slices along an axis, where each stands first, which one each slice is, and how often.

    NaNs are equal and come last; zeros of both signs are equal, and the first one stands for all.
    """
    data = x.reshape(-1) if axis is None else x
    axis = (axis or 0) % data.ndim
    rows = np.moveaxis(_comparable(data), axis, 0)
    rows = rows.reshape(rows.shape[0], int(np.prod(rows.shape[1:])))
    first, inverse, counts = _distinct_rows(rows)
    if not sorted:
        order = np.argsort(first)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    indices = (first, inverse, counts)
    return np.take(data, first, axis=axis), *(np.asarray(item, np.int64) for item in indices)


def _distinct_rows(rows: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    """Gives where each different row stands first, in lexicographic order; which one each row is; and how often."""
    if not rows.shape[0]:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    # Each element is replaced by its rank, so that rows of NaNs compare too; zeros of both signs share one.
    _, ranks = np.unique(rows, return_inverse=True)
    ranks = ranks.reshape(rows.shape)
    order = np.lexsort(ranks.T[::-1]) if rows.shape[1] else np.arange(rows.shape[0])
    ordered = ranks[order]
    starts = np.concatenate(([True], np.any(ordered[1:] != ordered[:-1], axis=1)))
    group = np.cumsum(starts) - 1
    inverse = np.empty(len(order), np.int64)
    inverse[order] = group
    # The sort is stable, so the first of a group is the first in the operand.
    return order[starts], inverse, np.bincount(group)


def range_(start: NDArray, limit: NDArray, delta: NDArray) -> NDArray:
    """Gives ``start + i * delta`` for all whole ``i`` from 0 on that stay before the limit.

    Raises:
        ExecutionError: the step is zero, or a bound is not finite.
    """
    dtype = start.dtype
    work = working_dtype(dtype)
    if is_integer(dtype):
        work = np.dtype(np.uint64 if dtype == np.uint64 else np.int64)
    # Integers in arrays wrap around in silence, so only the sums have to be in range.
    steps = np.arange(range_length(start, limit, delta)).astype(work)
    first, step = (bound.astype(work).reshape(1) for bound in (start, delta))
    return np.asarray(first + steps * step).astype(dtype)


def range_length(start: NDArray, limit: NDArray, delta: NDArray) -> int:
    """Gives the number of elements of a range.

    Raises:
        ExecutionError: the step is zero, or a bound is not finite.
    """
    if delta == 0:
        raise ExecutionError("op `range`", "has a step of zero")
    if is_integer(start.dtype):
        return max(-((int(start) - int(limit)) // int(delta)), 0)
    work = working_dtype(start.dtype)
    with np.errstate(all="ignore"):
        length = float(limit.astype(work) - start.astype(work)) / float(delta)
    if not isfinite(length):
        raise ExecutionError("op `range`", "has no finite number of steps", got=f"{start} to {limit} by {delta}")
    return max(ceil(length), 0)


def _comparable(x: NDArray) -> NDArray:
    """Gives equal values in a dtype that numpy sorts and compares: four-bit integers and small floats are widened."""
    if is_integer(x.dtype) and x.dtype.kind not in "iu":
        return x.astype(np.int8)
    return x.astype(working_dtype(x.dtype), copy=False)


KERNELS: Mapping[str, Callable[..., Any]] = {
    "nonzero": NumpyKernel(nonzero, gives=fixed_dtype("int64")),
    "compress": compress,
    "unique": NumpyKernel(unique, gives=fixed_dtype(None)),
    "range": range_,
}
"""The family's kernels, by op name."""
