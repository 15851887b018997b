"""Memory of numpy: addresses, alignment, and pages of mapped files."""

from __future__ import annotations

import mmap
from contextlib import suppress

import numpy as np
from byoc_core.runtime.module import NDArray

__all__ = ["ALIGNMENT", "address_of", "aligned", "aligned_in_large_pages", "give_back_pages", "round_up"]

ALIGNMENT = 64
_LARGE_PAGE = 1 << 21


def round_up(nbytes: int) -> int:
    """Gives the next multiple of the alignment."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def address_of(array: NDArray) -> int:
    """Gives where an array's elements begin."""
    return int(array.__array_interface__["data"][0])


def aligned(nbytes: int) -> NDArray:
    """Gives bytes of any content, at an aligned address."""
    whole = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -address_of(whole) % ALIGNMENT
    return whole[start : start + nbytes]


def aligned_in_large_pages(nbytes: int) -> NDArray:
    """Gives bytes of any content, at an aligned address, in large pages where the system has them.

    For what is read from one end to the other in each call and does not fit into caches: fewer pages are looked up.
    What does not fill a large page at the end lies in small ones, so that no memory is taken in vain.
    """
    if nbytes < _LARGE_PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return aligned(nbytes)
    mapping = mmap.mmap(-1, nbytes + _LARGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(mapping, np.uint8)
    start = -address_of(whole) % _LARGE_PAGE
    with suppress(OSError):  # a system without large pages
        mapping.madvise(mmap.MADV_HUGEPAGE, start, nbytes - nbytes % _LARGE_PAGE)
    return whole[start : start + nbytes]


def give_back_pages(array: NDArray) -> None:
    """Tells the system that an array in a file that is mapped for reading is not needed in memory for now.

    Who reads it again finds the same bytes, a little later. Any other array stays as it is.
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
