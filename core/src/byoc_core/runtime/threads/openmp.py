"""The OpenMP library for the threads of generated code: the system's libgomp, found and loaded with care.

A process has a single libgomp, loaded under the library's own name, with one team for each calling thread. All code
linked to libgomp (libraries of backends, a host program of OpenMP code) shares this library. Copies in wheels under
other names are separate.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["OPENMP_NAME", "SPIN_COUNT", "OpenMP", "load_openmp"]

OPENMP_NAME = "libgomp.so.1"
"""The name of the library: linked code requests this name, so all code gets the same library."""

SPIN_COUNT = 1_000
"""The spin count of an idle worker before sleep, unless set in the environment (docs/threads.md)."""

_SPIN_VARIABLE = "GOMP_SPINCOUNT"
_POLICY_VARIABLES = (_SPIN_VARIABLE, "OMP_WAIT_POLICY")
_SOFT_PAUSE = 1


class OpenMP:
    """The loaded library, with the number of threads for parallel regions: a setting of each calling thread.

    The OpenMP specification calls this setting the ICV ``nthreads``.

    Args:
        library: the loaded library.

    Attributes:
        max_threads: ``omp_get_max_threads``, of the calling thread.
        set_num_threads: ``omp_set_num_threads``, of the calling thread.
        spins: whether idle workers spin for :data:`SPIN_COUNT`; ``False`` if the environment, or the earlier loader of
            the library, decided.
    """

    def __init__(self, library: ctypes.PyDLL, *, spins: bool) -> None:
        self.spins = spins
        self.max_threads = library.omp_get_max_threads
        self.set_num_threads = library.omp_set_num_threads
        self._pause = getattr(library, "omp_pause_resource_all", None)  # OpenMP 5.0
        self._region_functions = (library.GOMP_parallel, library.omp_get_num_threads, library.omp_get_thread_num)

    @property
    def path(self) -> str:
        """The file of the loaded library; the library's name if the system does not tell the file."""
        address = self.addresses[0]
        try:
            maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            maps = []
        for line in maps:
            span, *_, path = line.split(maxsplit=5)
            first, _, last = span.partition("-")
            if int(first, 16) <= address < int(last, 16):
                return path
        return OPENMP_NAME

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses of functions, or 0: for the number of threads, then for parallel regions.

        ``omp_get_max_threads``, ``omp_set_num_threads``, ``omp_pause_resource_all`` (the only optional function),
        ``GOMP_parallel``, ``omp_get_num_threads``, ``omp_get_thread_num``.
        """
        functions = (self.max_threads, self.set_num_threads, self._pause, *self._region_functions)
        return tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 if f else 0 for f in functions)

    def dissolve_team(self) -> bool:
        """End the workers of the calling thread; new workers are made when needed. Return whether this was possible."""
        return self._pause is not None and self._pause(_SOFT_PAUSE) == 0


def load_openmp() -> OpenMP | None:
    """Load the library, or find the loaded library; return ``None`` if the system has none.

    The environment sets the spin count of idle workers when the library is loaded. Without a setting, the variable is
    set to :data:`SPIN_COUNT` during loading only.
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        return None  # a system with another OpenMP library
    try:
        return OpenMP(ctypes.PyDLL(OPENMP_NAME, mode=os.RTLD_NOLOAD), spins=False)
    except (OSError, AttributeError):
        pass
    spins = not any(os.environ.get(name) for name in _POLICY_VARIABLES)
    try:
        if not spins:
            return OpenMP(ctypes.PyDLL(OPENMP_NAME), spins=False)
        with _variable(_SPIN_VARIABLE, str(SPIN_COUNT)):
            return OpenMP(ctypes.PyDLL(OPENMP_NAME), spins=True)
    except (OSError, AttributeError):
        return None


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for the time of a block, and restore the variable afterwards."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
