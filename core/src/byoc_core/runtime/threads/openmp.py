"""The OpenMP library whose threads generated code runs on: the system's libgomp, found and loaded with care.

There is one libgomp in a process, loaded under its own name, and in it one team for each calling thread. Whatever
links it (libraries of backends, a host program of OpenMP code) shares it. Copies that wheels carry under names of
their own are apart from it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["OPENMP_NAME", "SPIN_COUNT", "OpenMP", "load_openmp"]

OPENMP_NAME = "libgomp.so.1"
"""What the library is called: the name that those who link it ask for, so that all get the same one."""

SPIN_COUNT = 1_000
"""How often an idle worker looks for work before it sleeps, where the environment says nothing (docs/threads.md)."""

_SPIN_VARIABLE = "GOMP_SPINCOUNT"
_POLICY_VARIABLES = (_SPIN_VARIABLE, "OMP_WAIT_POLICY")
_SOFT_PAUSE = 1


class OpenMP:
    """The loaded library: the number of threads that a calling thread's parallel regions get, its own ICV ``nthreads``.

    Args:
        library: the loaded library.

    Attributes:
        max_threads: ``omp_get_max_threads``, of the calling thread.
        set_num_threads: ``omp_set_num_threads``, of the calling thread.
        spins: whether idle workers spin as long as :data:`SPIN_COUNT` says; ``False`` where the environment, or whoever
            loaded the library before, decided.
    """

    def __init__(self, library: ctypes.PyDLL, *, spins: bool) -> None:
        self.spins = spins
        self.max_threads = library.omp_get_max_threads
        self.set_num_threads = library.omp_set_num_threads
        self._pause = getattr(library, "omp_pause_resource_all", None)  # OpenMP 5.0
        self._of_regions = (library.GOMP_parallel, library.omp_get_num_threads, library.omp_get_thread_num)

    @property
    def path(self) -> str:
        """The file that the library was loaded from; its name where the system does not tell."""
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
        """Where functions are, or 0: those of the number of threads, those of parallel regions.

        ``omp_get_max_threads``, ``omp_set_num_threads``, ``omp_pause_resource_all`` (the only one that may be missing),
        ``GOMP_parallel``, ``omp_get_num_threads``, ``omp_get_thread_num``.
        """
        functions = (self.max_threads, self.set_num_threads, self._pause, *self._of_regions)
        return tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 if f else 0 for f in functions)

    def dissolve_team(self) -> bool:
        """Ends the workers of the calling thread; they are made anew when needed. Tells whether that was possible."""
        return self._pause is not None and self._pause(_SOFT_PAUSE) == 0


def load_openmp() -> OpenMP | None:
    """Loads the library, or finds it loaded; gives ``None`` where the system has none.

    How long idle workers spin is settled when the library is loaded, by the environment; where that says nothing it is
    :data:`SPIN_COUNT`, which the environment says for just this long.
    """
    if not hasattr(os, "RTLD_NOLOAD"):
        return None  # a system whose OpenMP library is another one
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
    """Sets an environment variable for the time of a block, and then has it as it was."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
