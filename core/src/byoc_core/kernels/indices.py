"""Index operands of kernels: widened, checked against what they index, counted from the front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = [
    "check_array_shape",
    "element_places",
    "require_range",
    "resolve_coordinates",
    "resolve_indices",
    "row_major",
    "widened",
]


def widened(indices: NDArray) -> NDArray:
    """Gives integers of any dtype in one in which arithmetic on sizes is safe: int64, or uint64 where they are that."""
    return indices if indices.dtype == np.uint64 else indices.astype(np.int64, copy=False)


def require_range(op: str, values: NDArray, low: int, high: int, problem: str, *, expected: str | None = None) -> None:
    """Checks that widened values lie between two bounds, both included.

    Args:
        op: the op's name, for the message.
        values: what :func:`widened` gave.
        low: the least value permitted.
        high: the greatest value permitted.
        problem: what is wrong with a value outside.
        expected: what is permitted, where the bounds do not say it.

    Raises:
        ExecutionError: a value lies outside; the first one is named.
    """
    outside = (values < low) | (values > high)
    if outside.any():
        raise ExecutionError(
            f"op `{op}`", problem, got=values[outside].flat[0], expected=expected or f"{low} to {high}"
        )


def check_array_shape(op: str, operand: str, found: Sequence[int], expected: Sequence[int]) -> None:
    """Checks a shape whose symbolic sizes could not be compared while compiling.

    Raises:
        ExecutionError: it is another one; the operand is named.
    """
    if tuple(found) != tuple(expected):
        raise ExecutionError(
            f"op `{op}`, operand `{operand}`", "has the wrong shape", got=tuple(found), expected=tuple(expected)
        )


def resolve_indices(op: str, indices: NDArray, size: int, axis: int) -> NDArray:
    """Gives indices into an axis counted from the front, as int64; negative ones count from its end.

    Args:
        op: the op's name, for the message.
        indices: integers of any dtype and shape.
        size: the size of the axis.
        axis: the axis, for the message.

    Raises:
        ExecutionError: an index lies outside the axis; the first such index is named.
    """
    wide = widened(indices)
    empty = None if size else "no index at all: the axis is empty"
    require_range(op, wide, -size, size - 1, f"an index lies outside axis {axis}", expected=empty)
    signed = wide.astype(np.int64, copy=False)
    return np.asarray(signed + (signed < 0) * np.int64(size))  # several times as fast as a choice by np.where


def resolve_coordinates(op: str, indices: NDArray, shape: Sequence[int], first: int = 0) -> tuple[NDArray, ...]:
    """Gives tuples of indices, which lie along the last axis, as one array of indices for each axis indexed.

    Args:
        op: the op's name, for the message.
        indices: ``(I..., K)``.
        shape: that of the indexed array.
        first: the first of the ``K`` axes indexed.

    Returns:
        ``K`` arrays ``(I...)`` of int64, counted from the front.

    Raises:
        ExecutionError: an index lies outside its axis.
    """
    return tuple(
        resolve_indices(op, indices[..., place], shape[first + place], first + place)
        for place in range(indices.shape[-1])
    )


def row_major(coordinates: Sequence[NDArray], shape: Sequence[int]) -> NDArray:
    """Gives the places in row-major order of elements with these indices, one array for each axis of ``shape``."""
    places = np.zeros((), np.int64)
    for coordinate, size in zip(coordinates, shape, strict=True):
        places = np.asarray(places * size + coordinate)
    return places


def element_places(op: str, indices: NDArray, shape: Sequence[int], axis: int) -> NDArray:
    """Gives for each index along ``axis`` the place in row-major order of the element it means.

    Along the other axes that element has the index's own place.

    Args:
        op: the op's name, for the message.
        indices: integers of any dtype; their rank is that of the array.
        shape: that of the indexed array.
        axis: the axis indexed, counted from the front.

    Raises:
        ExecutionError: an index lies outside the axis, or ``indices`` is larger than the array along another axis.
    """
    for other, (size, wanted) in enumerate(zip(shape, indices.shape, strict=True)):
        if other != axis and wanted > size:
            raise ExecutionError(
                f"op `{op}`, operand `indices`", f"axis {other} is too large", got=wanted, expected=f"at most {size}"
            )
    coordinates: list[NDArray] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    coordinates[axis] = resolve_indices(op, indices, shape[axis], axis)
    return row_major(coordinates, shape)
