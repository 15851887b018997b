"""Libraries of generated code that are in this process, each loaded once.

A loaded library stays until the process ends: threads of libgomp, handlers of ``fork`` and keys of threads may point
into its code. So the same bytes are never loaded twice without need. A library without constants has no state that
differs between modules: all modules of its bytes share one copy. A library with constants reads them through a table
in its own memory. A copy with a table belongs to one module, and goes to another module of the same bytes once nothing
of the first module is held.
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
"""The exported variable of generated C that points to the module's constants: ``const void *byoc_constants[]``."""


class LibraryPool:
    """The libraries of one process, by the SHA-256 of their bytes and of the paths that they ask for.

    Any number of threads may use a pool.
    """

    def __init__(self) -> None:
        self._fork_lock = ForkLock()
        self._shared: dict[bytes, ctypes.CDLL] = {}
        self._idle: dict[bytes, list[ctypes.CDLL]] = {}

    def take(self, library: CompiledLibrary, name: str, constants: Sequence[NDArray] = ()) -> NativeLibrary:
        """Return a library whose table holds the constants; load a copy only if none can serve.

        Args:
            library: the library. Its target is checked at each call.
            name: what errors call it.
            constants: what its table points to, in order. The result keeps them alive.

        Raises:
            ArtifactError: the library is for another kind of machine, the system refuses it, or it has no table.

        Cost: one hash of the library's bytes; a copy takes a few mappings for as long as the process lives.
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
        taken = NativeLibrary(handle, name)
        # The collector may run this at any statement, so it takes no lock: appending to a list is one step.
        weakref.finalize(taken, idle.append, handle).atexit = False
        table = (ctypes.c_void_p * len(constants)).from_address(taken.address_of(CONSTANT_TABLE))
        for index, array in enumerate(constants):
            table[index] = array.ctypes.data
        taken.keep_alive(*constants)
        return taken


library_pool = LibraryPool()
"""The libraries of this process."""
