"""Arrays between inaccessible pages."""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Any

import numpy as np

__all__ = ["guarded_empty"]

_PROT_NONE = 0


def guarded_empty(shape: tuple[int, ...], dtype: np.dtype[Any], *, at_end: bool = True) -> np.ndarray[Any, Any]:
    """Return an array with memory ending, or beginning, at a page without read and write access.

    The array lies in a separate mapping, with the same lifetime.

    Args:
        shape: of the array.
        dtype: of the array.
        at_end: whether the first byte behind the array is guarded; else the byte before the array.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    page = mmap.PAGESIZE
    room = max(page, -(-nbytes // page) * page)
    mapping = mmap.mmap(-1, room + 2 * page)
    first = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    libc = ctypes.CDLL(None, use_errno=True)
    for guard in (first, first + page + room):
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(page), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = page + (room - nbytes if at_end else 0)
    return np.ndarray(shape, dtype, mapping, start)
