"""Index operands of kernels: widened, checked against what they index, counted from the front."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.precision import NDArray

__all__ = ["leading_block", "require_range", "require_shape", "resolve_coordinates", "resolve_indices", "widened"]


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


def require_shape(op: str, operand: str, found: Sequence[int], expected: Sequence[int]) -> None:
    """Checks a shape whose symbolic sizes could not be compared while compiling.

    Raises:
        ExecutionError: it is another one; the operand is named.
    """
    if tuple(found) != tuple(expected):
        raise ExecutionError(
            f"op `{op}`, operand `{operand}`", "has the wrong shape", got=tuple(found), expected=tuple(expected)
        )


def leading_block(op: str, shape: Sequence[int], indices: Sequence[int], axis: int) -> tuple[slice, ...]:
    """Gives the index of the part of an array that indices of its rank pair with: all of ``axis``, else their sizes.

    Raises:
        ExecutionError: the indices are larger than the array along another axis.
    """
    for other, (size, wanted) in enumerate(zip(shape, indices, strict=True)):
        if other != axis and wanted > size:
            raise ExecutionError(
                f"op `{op}`, operand `indices`", f"axis {other} is too large", got=wanted, expected=f"at most {size}"
            )
    return tuple(slice(None) if other == axis else slice(size) for other, size in enumerate(indices))


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
    return np.where(wide < 0, wide + size, wide).astype(np.int64, copy=False)


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
