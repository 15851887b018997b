"""Memory of numpy: addresses, alignment, and pages of memory-mapped files.

Programs place the arena and scratch memory at multiples of :data:`ALIGNMENT`. The C extension allocates arenas with the
same alignment (``csrc/arena.c``).
"""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
from byoc_core.runtime.module import NDArray

__all__ = [
    "ALIGNMENT",
    "address_of",
    "aligned",
    "aligned_in_large_pages",
    "are_equal",
    "bytes_of",
    "give_back_pages",
    "round_up",
]

ALIGNMENT = 64
_BLOCK_NBYTES = 1 << 16
_LARGE_PAGE = 1 << 21


def round_up(nbytes: int) -> int:
    """Round a number of bytes up to a multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def address_of(array: NDArray) -> int:
    """Return the address of the first element of an array."""
    return int(array.__array_interface__["data"][0])


def aligned(nbytes: int) -> NDArray:
    """Allocate uninitialised bytes at an aligned address."""
    allocation = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -address_of(allocation) % ALIGNMENT
    return allocation[start : start + nbytes]


def aligned_in_large_pages(nbytes: int) -> NDArray:
    """Allocate uninitialised bytes at an aligned address, in large pages if the system has large pages.

    Meant for data read sequentially in each call and larger than the caches: fewer pages are looked up. A remainder
    smaller than a large page lies in small pages, to waste no memory.
    """
    if nbytes < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return aligned(nbytes)
    mapping = mmap.mmap(-1, nbytes + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    allocation = np.frombuffer(mapping, np.uint8)
    start = -address_of(allocation) % _LARGE_PAGE
    with suppress(OSError):  # a system without large pages
        mapping.madvise(mmap.MADV_HUGEPAGE, start, nbytes - nbytes % _LARGE_PAGE)
    return allocation[start : start + nbytes]


def bytes_of(array: NDArray) -> NDArray:
    """Return the bytes of an array in row-major order, on one axis."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def are_equal(first: NDArray, second: NDArray) -> bool:
    """Return whether two arrays of bytes are equal, block by block, up to the first difference."""
    blocks = range(0, first.nbytes, _BLOCK_NBYTES)
    return first.nbytes == second.nbytes and all(
        np.array_equal(first[start : start + _BLOCK_NBYTES], second[start : start + _BLOCK_NBYTES]) for start in blocks
    )


def give_back_pages(array: NDArray) -> None:
    """Advise the system that an array in a file mapped for reading is not needed in memory for now.

    A later reader finds the same bytes, a little later. Any other array is left unchanged.
    """
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    mapping = base.obj if isinstance(base, memoryview) else base
    if not isinstance(mapping, mmap.mmap) or not memoryview(mapping).readonly or not hasattr(mmap, "MADV_DONTNEED"):
        return
    start = address_of(array) - address_of(np.frombuffer(mapping, np.uint8, 1))
    end = start + array.nbytes
    start -= start % mmap.PAGESIZE
    with suppress(OSError):  # the process may have locked its memory
        mapping.madvise(mmap.MADV_DONTNEED, start, end - start)
