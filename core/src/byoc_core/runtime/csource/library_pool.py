"""Libraries of generated code in this process, each loaded once.

A loaded library stays until the process ends: threads of libgomp, handlers of ``fork`` and keys of threads may point
into the library's code. So the same bytes are never loaded twice without need. A library without constants has the same
state for all modules: all modules of the same bytes share a copy. A library with constants reads the constants through
a table in the library's memory. A copy with a table belongs to a single module. Once nothing of this module is held,
the copy goes to another module of the same bytes.
"""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from collections.abc import Sequence

from byoc_core.native.cpu import check_target
from byoc_core.native.loader import NativeLibrary, open_library
from byoc_core.native.toolchain import CompiledLibrary
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.threads.fork_lock import ForkLock

__all__ = ["CONSTANT_TABLE", "LibraryPool", "library_pool"]

CONSTANT_TABLE = "byoc_constants"
"""The exported variable of generated C with pointers to the module's constants: ``const void *byoc_constants[]``."""


class LibraryPool:
    """The libraries of one process, by the SHA-256 of the library bytes and of the paths of needed libraries.

    Any number of threads may use a pool.
    """

    def __init__(self) -> None:
        self._fork_lock = ForkLock()
        self._shared: dict[bytes, ctypes.CDLL] = {}
        self._idle: dict[bytes, list[ctypes.CDLL]] = {}

    def take(self, library: CompiledLibrary, name: str, constants: Sequence[NDArray] = ()) -> NativeLibrary:
        """Return a library whose table holds the constants; load a copy only if no loaded copy is free.

        Args:
            library: the library. The target is checked at each call.
            name: the name of the library in errors.
            constants: the arrays for the table, in order. The result keeps the arrays alive.

        Raises:
            ArtifactError: the library is for another kind of machine, the system refuses to load the library, or the
                library has no table.

        Cost: one hash of the library's bytes; a copy takes a few mappings for the life of the process.
        """
        check_target(library.target, f"library `{name}`")
        digest = hashlib.sha256(repr(library.shared).encode() + library.data).digest()
        if not constants:
            with self._fork_lock.lock:
                handle = self._shared.get(digest)
                if handle is None:
                    handle = self._shared[digest] = open_library(
                        library.data, library.target, name, shared=library.shared
                    )
            return NativeLibrary(handle, name)
        idle = self._idle.setdefault(digest, [])
        try:
            handle = idle.pop()
        except IndexError:
            handle = open_library(library.data, library.target, name, shared=library.shared)
        native_library = NativeLibrary(handle, name)
        # The collector may run this at any statement, so no lock is taken: appending to a list is atomic.
        weakref.finalize(native_library, idle.append, handle).atexit = False
        table = (ctypes.c_void_p * len(constants)).from_address(native_library.address_of(CONSTANT_TABLE))
        for index, array in enumerate(constants):
            table[index] = array.ctypes.data
        native_library.keep_alive(*constants)
        return native_library


library_pool = LibraryPool()
"""The libraries of this process."""
