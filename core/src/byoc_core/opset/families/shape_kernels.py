"""Kernels moving elements: reshape, transpose, join, split, gather, pad. Results may be views of the inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.kernels.indices import resolve_indices, widened
from byoc_core.kernels.precision import NDArray
from byoc_core.opset.open_bounds import is_open_bound

__all__ = [
    "broadcast_to",
    "concat",
    "pad",
    "permute_dims",
    "reshape",
    "split",
    "strided_slice",
    "take",
]


def reshape(x: NDArray, *, shape: Sequence[int]) -> NDArray:
    """Return the elements of ``x`` in row-major order in another shape; a single size may be -1."""
    return x.reshape(tuple(shape))


def permute_dims(x: NDArray, *, axes: Sequence[int] | None) -> NDArray:
    """Return ``x`` with permuted axes; reversed if ``axes`` is ``None``."""
    return x.transpose(None if axes is None else tuple(axes))


def broadcast_to(x: NDArray, *, shape: Sequence[int]) -> NDArray:
    """Return ``x`` repeated along new axes and axes of size 1 (a read-only view)."""
    return np.broadcast_to(x, tuple(shape))


def concat(*parts: NDArray, axis: int, out: NDArray | None = None) -> NDArray:
    """Return the parts joined along an axis."""
    return np.concatenate(parts, axis, out)


def split(x: NDArray, *, sections: Sequence[int], axis: int) -> tuple[NDArray, ...]:
    """Return consecutive parts of the given sizes along an axis.

    Raises:
        ExecutionError: the sizes do not add up to the axis.
    """
    if sum(sections) != x.shape[axis] or min(sections) < 0:
        raise ExecutionError(
            "op `split`",
            "the sizes of the parts do not add up to the size of the axis",
            got=tuple(sections),
            expected=x.shape[axis],
        )
    return tuple(np.split(x, np.cumsum(sections)[:-1], axis=axis))


def take(x: NDArray, indices: NDArray, *, axis: int, mode: str, out: NDArray | None = None) -> NDArray:
    """Return the slices of ``x`` at ``indices`` along an axis.

    Negative indices count from the end with ``mode="fast"``; with ``"clip"`` every index is limited to the axis.

    Raises:
        ExecutionError: an index lies outside the axis (with ``"clip"``: the axis is empty).
    """
    axis %= x.ndim
    size = x.shape[axis]
    if mode == "clip" and size:
        indices = np.clip(widened(indices), 0, size - 1)
    elif indices.dtype.kind == "i" and (out is None or out.size < _FEW_ELEMENTS):
        try:
            return np.asarray(x.take(indices, axis))
        except IndexError:
            pass  # reported below, with the index
    return np.asarray(x.take(resolve_indices("take", indices, size, axis), axis, out, "clip"))


# numpy checks indices faster than `resolve_indices`, but then writes to given memory through a copy.
_FEW_ELEMENTS = 1 << 14


def strided_slice(
    x: NDArray, *, axes: Sequence[int], begin: Sequence[int], end: Sequence[int], strides: Sequence[int], mode: str
) -> NDArray:
    """Return every ``strides``-th slice from ``begin`` up to (excluding) ``end`` along each of ``axes``.

    Negative bounds count from the end, then bounds are cut at the ends of the axis; with a negative stride an ``end``
    below ``-size`` means "through the first".

    Source: ONNX, operator Slice: a ``begin`` below ``-size`` with a negative stride is the first index (Python takes
    nothing there).

    Raises:
        ExecutionError: with ``mode="strict"``, a bound other than an open bound lies beyond the axis.
    """
    index = [slice(None)] * x.ndim
    for axis, first, last, stride in zip(axes, begin, end, strides, strict=True):
        size = x.shape[axis]
        low, high = (0, size) if stride > 0 else (-1, size - 1)
        positions = [bound + size if bound < 0 else bound for bound in (first, last)]
        for bound, position in zip((first, last), positions, strict=True) if mode == "strict" else ():
            if not low <= position <= high and not is_open_bound(bound):
                raise ExecutionError(
                    "op `strided_slice`", f"a bound lies outside axis {axis} of size {size}", got=bound
                )
        start = min(max(positions[0], 0), high)
        stop = min(max(positions[1], low), high)
        index[axis] = slice(start, None if stop < 0 else stop, stride)
    return x[tuple(index)]


def pad(x: NDArray, *, pad_width: Sequence[int], pad_value: float) -> NDArray:
    """Return ``x`` with ``pad_value`` around it; ``pad_width`` is (before, after) for each axis in turn."""
    widths = [(pad_width[2 * axis], pad_width[2 * axis + 1]) for axis in range(x.ndim)]
    value = np.asarray(pad_value).astype(x.dtype)
    result = np.full([size + sum(width) for size, width in zip(x.shape, widths, strict=True)], value)
    result[tuple(slice(before, before + size) for size, (before, _) in zip(x.shape, widths, strict=True))] = x
    return result
