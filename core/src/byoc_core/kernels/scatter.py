"""Kernels that give a copy of an array with elements written at computed places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.indices import (
    element_places,
    require_range,
    require_shape,
    resolve_coordinates,
    row_major,
    widened,
)
from byoc_core.kernels.precision import NDArray, native_dtype

__all__ = ["KERNELS", "scatter_elements", "scatter_nd", "scatter_slice"]

_REDUCTIONS: Mapping[str, Any] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
_NEUTRAL = {"min": np.inf, "max": -np.inf}
_WIDE_ROW = 256  # elements from which on a call for each row costs less than a step for each element


def scatter_elements(x: NDArray, indices: NDArray, updates: NDArray, *, axis: int, reduction: str) -> NDArray:
    """Gives ``x`` with each update at its index along ``axis`` and at its own place elsewhere.

    Where several updates meet, they count in row-major order: see :func:`_scatter_rows`.

    Raises:
        ExecutionError: an index lies outside the axis, ``indices`` is larger than ``x`` along another axis, or
            ``updates`` differs from it in shape.
    """
    require_shape("scatter_elements", "updates", updates.shape, indices.shape)
    places = element_places("scatter_elements", indices, x.shape, axis % x.ndim)
    rows = _scatter_rows(x.reshape(x.size, 1), places.reshape(-1), updates.reshape(updates.size, 1), reduction)
    return rows.reshape(x.shape)


def scatter_nd(x: NDArray, indices: NDArray, updates: NDArray, *, reduction: str) -> NDArray:
    """Gives ``x`` with each slice of ``updates`` at a tuple of indices, which lie along the last axis of ``indices``.

    Where several updates meet, they count in row-major order: see :func:`_scatter_rows`.

    Raises:
        ExecutionError: an index lies outside its axis, or ``updates`` has the wrong shape.
    """
    depth = indices.shape[-1]
    outer, inner = x.shape[:depth], x.shape[depth:]
    require_shape("scatter_nd", "updates", updates.shape, (*indices.shape[:-1], *inner))
    places = row_major(resolve_coordinates("scatter_nd", indices, x.shape), outer).reshape(-1)
    rows = _scatter_rows(
        x.reshape(prod(outer), prod(inner)), places, updates.reshape(len(places), prod(inner)), reduction
    )
    return rows.reshape(x.shape)


def scatter_slice(x: NDArray, updates: NDArray, starts: NDArray, *, axis: int, mode: str) -> NDArray:
    """Gives ``x`` with ``updates`` written along ``axis`` from ``starts`` on: one start, or one for each of axis 0.

    With ``mode="circular"`` places beyond the end go on at the front, and a start is taken modulo the axis.

    Raises:
        ExecutionError: the updates do not fit from a start on (with ``"circular"``: are longer than the axis), or an
            operand has the wrong shape.
    """
    axis %= x.ndim
    size, length = x.shape[axis], updates.shape[axis]
    require_shape("scatter_slice", "updates", updates.shape, (*x.shape[:axis], length, *x.shape[axis + 1 :]))
    require_shape("scatter_slice", "starts", starts.shape, x.shape[: starts.ndim])
    if length > size:
        raise ExecutionError(
            "op `scatter_slice`, operand `updates`",
            f"is longer than axis {axis}",
            got=length,
            expected=f"at most {size}",
        )
    first = widened(starts)
    if mode == "circular":
        first = first % max(size, 1)
    else:
        require_range("scatter_slice", first, 0, size - length, f"the updates do not fit axis {axis} from a start on")
    places = (first.astype(np.int64)[..., np.newaxis] + np.arange(length)) % max(size, 1)
    result = np.array(x)
    rows = np.ogrid[tuple(slice(count) for count in (*starts.shape, 1))][:-1]
    np.moveaxis(result, axis, starts.ndim)[(*rows, places)] = np.moveaxis(updates, axis, starts.ndim)
    return result


def _scatter_rows(rows: NDArray, places: NDArray, updates: NDArray, reduction: str) -> NDArray:
    """Gives ``(P, N)`` with each row of ``updates`` (``M, N``) brought in at its place, in order.

    ``"update"`` replaces: the last one stays. The others combine what is there with the update; narrow floats do so in
    float32 and are rounded once. ``"min"`` and ``"max"`` keep what is there only if it is smaller (larger) than the
    update, so a NaN stays until the next update comes, and one that comes is kept.
    """
    if reduction == "update":
        result, last = rows.copy(), _last_updates(places, len(rows))
        (written,) = np.nonzero(last >= 0)
        result[written] = updates[last[written]]
        return result
    wide = native_dtype(rows.dtype)
    result, terms = rows.astype(wide, order="C"), updates.astype(wide, copy=False)
    if reduction in _NEUTRAL and wide.kind == "f" and (np.isnan(terms).any() or np.isnan(result).any()):
        _scatter_extremes_with_nan(result, places, terms, reduction)
    else:
        _combine(_REDUCTIONS[reduction], result, places, terms)
    return result.astype(rows.dtype, copy=False)


def _combine(ufunc: Any, result: NDArray, places: NDArray, terms: NDArray) -> None:
    """Replaces each row of ``result``, which is contiguous, by what a function makes of it and its terms, in order."""
    width = terms.shape[1]
    if width < _WIDE_ROW:  # numpy is fast at flat indices only
        flat = places[:, np.newaxis] * width + np.arange(width)
        ufunc.at(result.reshape(-1), flat.reshape(-1), terms.reshape(-1))
        return
    for place, term in zip(places.tolist(), terms, strict=True):
        ufunc(result[place], term, out=result[place])


def _last_updates(places: NDArray, count: int) -> NDArray:
    """Gives the position of the last update of each of ``count`` places, -1 where there is none."""
    last = np.full(count, -1, np.int64)
    np.maximum.at(last, places, np.arange(len(places)))
    return last


def _scatter_extremes_with_nan(result: NDArray, places: NDArray, terms: NDArray, reduction: str) -> None:
    """Brings updates in by ``"min"`` or ``"max"``, where only those after the last NaN of an element count."""
    neutral = _NEUTRAL[reduction]
    position = np.arange(len(places))[:, np.newaxis]
    last = _last_updates(places, len(result))[:, np.newaxis]
    last_nan = np.full(result.shape, -1, np.int64)
    _combine(np.maximum, last_nan, places, np.where(np.isnan(terms), position, -1))
    result[(last_nan >= 0) | (np.isnan(result) & (last >= 0))] = neutral
    counted = np.where(position > last_nan[places], terms, neutral).astype(terms.dtype, copy=False)
    _combine(_REDUCTIONS[reduction], result, places, counted)
    result[(last_nan >= 0) & (last_nan == last)] = np.nan


KERNELS: dict[str, Callable[..., NDArray | tuple[NDArray, ...]]] = {
    "scatter_elements": scatter_elements,
    "scatter_nd": scatter_nd,
    "scatter_slice": scatter_slice,
}
