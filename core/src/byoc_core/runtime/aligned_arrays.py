"""Arrays beginning at a multiple of 64 bytes, like constants of mapped artifacts: vectors span no two cache lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from byoc_core.errors import ExecutionError
from byoc_core.runtime.module import NDArray

__all__ = ["ARRAY_ALIGNMENT", "aligned_copy", "aligned_empty"]

ARRAY_ALIGNMENT = 64
"""The alignment in bytes."""


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray:
    """Return an aligned C-contiguous array with undefined content.

    Raises:
        ExecutionError: there is no memory for the array, or numpy has no arrays of this shape.
    """
    nbytes = dtype.itemsize * math.prod(shape)
    try:
        memory = np.empty(nbytes + ARRAY_ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ARRAY_ALIGNMENT
        return memory[start : start + nbytes].view(dtype).reshape(shape)
    except (MemoryError, OverflowError, ValueError) as error:
        raise ExecutionError("array", "cannot be allocated", got=f"{dtype}{list(shape)}, {nbytes} bytes") from error


def aligned_copy(array: NDArray) -> NDArray:
    """Return an aligned C-contiguous copy of an array; nobody can write to the memory of the copy."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    view: object = copy
    while isinstance(view, np.ndarray):
        view.flags.writeable = False
        view = view.base
    return copy
