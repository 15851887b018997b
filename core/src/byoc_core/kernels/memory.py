"""Memory of kernels: caller-provided memory for results, and bounded scratch memory.

The memory of a kernel beside its result is bounded: large operands are processed in blocks. The block size does not
change any bit of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from byoc_core.kernels.precision import NDArray

__all__ = ["BLOCK_BYTES", "BLOCK_ELEMENTS", "Scratch", "in_blocks", "result_memory"]

BLOCK_BYTES = 1 << 20
"""The most bytes of a block of columns, of a padded image or the like, if at least one element fits."""

BLOCK_ELEMENTS = 1 << 13
"""Elements of a block of an elementwise op: the temporaries of a block stay in the processor's cache."""

_ALIGNMENT = 64


def result_memory(out: NDArray | None, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray:
    """Return the provided memory for a result of this type, or new memory if none is provided.

    Raises:
        ValueError: the provided memory does not fit.
    """
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != tuple(shape) or out.dtype != dtype:
        raise ValueError("the memory does not have the result's type")
    return out


def in_blocks(function: Callable[..., NDArray], x: NDArray, out: NDArray | None, **attrs: Any) -> NDArray:
    """Apply an elementwise function to an array block by block and return the result.

    Args:
        function: returns arrays of the shape and dtype of the operand; does not change the operand.
        x: the operand, C-contiguous.
        out: memory for the result; may be ``x``.
        attrs: passed on.

    Raises:
        ValueError: ``out`` does not fit.
    """
    result = result_memory(out, x.shape, x.dtype)
    source, target = x.reshape(-1), result.reshape(-1)
    for start in range(0, x.size, BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        target[block] = function(source[block], **attrs)
    return result


class Scratch:
    """Arrays laid out consecutively in scratch memory; new arrays if scratch memory is absent or exhausted.

    Args:
        memory: bytes in one axis, aligned to 64.
    """

    def __init__(self, memory: NDArray | None) -> None:
        self._memory = memory
        self._start = 0

    @staticmethod
    def nbytes(sizes: Iterable[int], dtype: np.dtype[Any]) -> int:
        """Return the bytes of consecutive arrays with these numbers of elements."""
        return sum(_aligned(size * dtype.itemsize) for size in sizes)

    def take(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray:
        """Return an array of undefined content."""
        nbytes = math.prod(shape) * dtype.itemsize
        start = self._start
        if self._memory is None or start + nbytes > self._memory.nbytes:
            return np.empty(shape, dtype)
        self._start = start + _aligned(nbytes)
        return np.ndarray(shape, dtype, self._memory, start)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
