"""Memory of kernels: results in memory that is handed over, and scratch memory that stays small.

What a kernel needs beside its result is bounded: it goes over large operands in blocks, whose size changes no bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from byoc_core.kernels.precision import NDArray

__all__ = ["BLOCK_BYTES", "BLOCK_ELEMENTS", "Scratch", "in_blocks", "result_memory"]

BLOCK_BYTES = 1 << 20
"""The most bytes that one block of columns, of a padded image or the like takes, where one element of it fits."""

BLOCK_ELEMENTS = 1 << 13
"""Elements of a block of an elementwise op: its temporaries stay in the processor's cache."""

_ALIGNMENT = 64


def result_memory(out: NDArray | None, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray:
    """Gives the memory that was handed over for a result of this type, or memory of its own where none was.

    Raises:
        ValueError: it does not fit.
    """
    if out is None:
        return np.empty(shape, dtype)
    if out.shape != tuple(shape) or out.dtype != dtype:
        raise ValueError("the memory is not of the result's type")
    return out


def in_blocks(function: Callable[..., NDArray], x: NDArray, out: NDArray | None, **attrs: Any) -> NDArray:
    """Gives what an elementwise function gives on an array, computed block by block.

    Args:
        function: gives arrays of the shape and dtype of its operand, which it does not change.
        x: the operand, C-contiguous.
        out: where the result may go; it may be ``x``.
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
    """Arrays from scratch memory, one behind the other; of their own where there is none, or no more.

    Args:
        memory: bytes in one axis, aligned to 64.
    """

    def __init__(self, memory: NDArray | None) -> None:
        self._memory = memory
        self._start = 0

    @staticmethod
    def nbytes(sizes: Iterable[int], dtype: np.dtype[Any]) -> int:
        """Gives the bytes that arrays of so many elements take, one behind the other."""
        return sum(_aligned(size * dtype.itemsize) for size in sizes)

    def take(self, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray:
        """Gives an array of undefined content."""
        nbytes = math.prod(shape) * dtype.itemsize
        start = self._start
        if self._memory is None or start + nbytes > self._memory.nbytes:
            return np.empty(shape, dtype)
        self._start = start + _aligned(nbytes)
        return np.ndarray(shape, dtype, self._memory, start)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT
