"""Memory of numpy: alignment, and pages."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from byoc_dnnl.arrays import ALIGNMENT, address_of, aligned, aligned_in_large_pages

LARGE_PAGE = 1 << 21


@pytest.mark.parametrize("nbytes", [1, 63, 4097, LARGE_PAGE, LARGE_PAGE + 5, 3 * LARGE_PAGE - 1])
def test_memory_is_aligned_and_writable(nbytes: int) -> None:
    for make in (aligned, aligned_in_large_pages):
        array = make(nbytes)
        assert array.nbytes == nbytes
        assert address_of(array) % ALIGNMENT == 0
        array[:] = 7
        assert (array == 7).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's accounts of memory")
def test_large_pages_take_no_memory_in_vain() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")

    count, nbytes = 20, LARGE_PAGE + LARGE_PAGE // 8
    before = resident()
    arrays = [aligned_in_large_pages(nbytes) for _ in range(count)]
    for array in arrays:
        array[:] = 1
    assert resident() - before < 1.2 * count * nbytes
