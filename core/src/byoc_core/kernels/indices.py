"""Index operands of kernels: widened, checked against the indexed axes, counted from the front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = [
    "check_array_shape",
    "element_offsets",
    "require_range",
    "resolve_coordinates",
    "resolve_indices",
    "row_major",
    "widened",
]


def widened(indices: NDArray) -> NDArray:
    """Return integers of any dtype in a dtype with safe size arithmetic: int64; uint64 stays uint64."""
    return indices if indices.dtype == np.uint64 else indices.astype(np.int64, copy=False)


def require_range(op: str, values: NDArray, low: int, high: int, problem: str, *, expected: str | None = None) -> None:
    """Check that widened values lie between two bounds, both included.

    Args:
        op: the op's name, for the message.
        values: the result of :func:`widened`.
        low: the least value permitted.
        high: the greatest value permitted.
        problem: the error message for a value outside.
        expected: the permitted values, if the bounds do not describe the permitted values well.

    Raises:
        ExecutionError: a value lies outside; the first such value is named.
    """
    outside = (values < low) | (values > high)
    if outside.any():
        raise ExecutionError(
            f"op `{op}`", problem, got=values[outside].flat[0], expected=expected or f"{low} to {high}"
        )


def check_array_shape(op: str, operand: str, found: Sequence[int], expected: Sequence[int]) -> None:
    """Check a shape with symbolic sizes not comparable while compiling.

    Raises:
        ExecutionError: the shapes differ; the operand is named.
    """
    if tuple(found) != tuple(expected):
        raise ExecutionError(
            f"op `{op}`, operand `{operand}`", "has the wrong shape", got=tuple(found), expected=tuple(expected)
        )


def resolve_indices(op: str, indices: NDArray, size: int, axis: int) -> NDArray:
    """Return indices into an axis counted from the front, as int64; negative indices count from the axis's end.

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
    return np.asarray(signed + (signed < 0) * np.int64(size))  # several times as fast as np.where


def resolve_coordinates(op: str, indices: NDArray, shape: Sequence[int], first: int = 0) -> tuple[NDArray, ...]:
    """Split tuples of indices, stored along the last axis, into an array of indices for each indexed axis.

    Args:
        op: the op's name, for the message.
        indices: ``(I..., K)``.
        shape: the shape of the indexed array.
        first: the first of the ``K`` axes indexed.

    Returns:
        ``K`` arrays ``(I...)`` of int64, counted from the front.

    Raises:
        ExecutionError: an index lies outside its axis.
    """
    return tuple(
        resolve_indices(op, indices[..., component], shape[first + component], first + component)
        for component in range(indices.shape[-1])
    )


def row_major(coordinates: Sequence[NDArray], shape: Sequence[int]) -> NDArray:
    """Return the row-major offsets of elements with given indices: an array of indices for each axis of ``shape``."""
    offsets = np.zeros((), np.int64)
    for coordinate, size in zip(coordinates, shape, strict=True):
        offsets = np.asarray(offsets * size + coordinate)
    return offsets


def element_offsets(op: str, indices: NDArray, shape: Sequence[int], axis: int) -> NDArray:
    """Return for each index along ``axis`` the row-major offset of the indexed element.

    Along the other axes the element has the position of the index itself.

    Args:
        op: the op's name, for the message.
        indices: integers of any dtype, with the rank of the array.
        shape: the shape of the indexed array.
        axis: the axis indexed, counted from the front.

    Raises:
        ExecutionError: an index lies outside the axis, or ``indices`` is larger than the array along another axis.
    """
    for other, (size, extent) in enumerate(zip(shape, indices.shape, strict=True)):
        if other != axis and extent > size:
            raise ExecutionError(
                f"op `{op}`, operand `indices`", f"axis {other} is too large", got=extent, expected=f"at most {size}"
            )
    coordinates: list[NDArray] = list(np.ogrid[tuple(slice(size) for size in indices.shape)])
    coordinates[axis] = resolve_indices(op, indices, shape[axis], axis)
    return row_major(coordinates, shape)
