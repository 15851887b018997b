"""Memory in pages of its own, inaccessible to the process except while opened. Needs a POSIX system."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

from byoc_core.dtypes import to_numpy
from byoc_core.runtime.devices import DeviceTensor
from byoc_core.runtime.memory import Pool
from byoc_core.runtime.module import NDArray

__all__ = ["POISON", "ProtectedBuffer"]

POISON = 0xFF
"""The bytes of undefined memory: NaN as a float of any width, -1 as an integer."""

_NONE, _READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE


class ProtectedBuffer:
    """Pages of memory, accessible while opened at least once."""

    def __init__(self, nbytes: int, *, is_protected: bool, pool: Pool | None = None) -> None:
        self.nbytes = nbytes
        self.pool = pool
        self._is_protected = is_protected
        self._length = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        self._num_open = 0
        self.num_owners = 1
        self.is_freed = False
        # Mapped by the C library: a map of Python would keep views of the memory alive.
        address = _libc().mmap(None, self._length, _READ_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            raise MemoryError(f"{nbytes} bytes cannot be mapped")
        self.address: int = address
        ctypes.memset(self.address, POISON, self._length)
        self._protect(_NONE)

    def open(self) -> None:
        """Make the pages accessible until closed as often as opened."""
        if not self._num_open:
            self._protect(_READ_WRITE)
        self._num_open += 1

    def close(self) -> None:
        """Protect the pages after the last use, or unmap the pages of a freed buffer."""
        self._num_open -= 1
        if not self._num_open:
            if self.is_freed:
                self._unmap()
            else:
                self._protect(_NONE)

    def free(self) -> None:
        """Return the pages to the system, now or after the last use: a later access ends the process."""
        self.is_freed = True
        if not self._num_open:
            self._unmap()

    def _protect(self, access: int) -> None:
        if self._is_protected and _libc().mprotect(self.address, self._length, access):
            raise OSError(ctypes.get_errno(), "mprotect failed")

    def _unmap(self) -> None:
        _libc().munmap(self.address, self._length)

    def array(self, tensor: DeviceTensor) -> NDArray:
        """Return a tensor in the buffer as an array; the buffer is open."""
        content = (ctypes.c_uint8 * self.nbytes).from_address(self.address)
        return np.ndarray(tensor.shape, to_numpy(tensor.dtype), memoryview(content), tensor.offset)

    @property
    def is_writable(self) -> bool:
        """Whether functions of the device may write the buffer."""
        return self.pool is None or self.pool.is_writable


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
