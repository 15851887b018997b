"""Search for a BLAS with the C interface, CBLAS, and with sizes of 32 bits.

``auto`` is the first usable library of: OpenBLAS from the wheel ``scipy-openblas32``, then the libraries of the system
in the order of :data:`SYSTEM_NAMES`. A library of the system is found by the C compiler, by pkg-config, or in the
folder ``lib`` of the Python environment.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path

from byoc_core.native.toolchain import Toolchain, find_toolchain
from byoc_core.runtime.hooks import Status

from byoc_cblas.wheel import DISTRIBUTION, find_file

__all__ = [
    "SYSTEM_NAMES",
    "Candidate",
    "Library",
    "Missing",
    "ThreadControl",
    "candidates",
    "find_library",
    "library_status",
    "look_for_library",
]

SYSTEM_NAMES = ("openblas", "mkl_rt", "cblas", "blas")
"""Link names of the system's libraries, in the order of ``auto``."""

_CHOICES = {"openblas": ("openblas",), "mkl": ("mkl_rt",)}
_PREFIXES = ("", "scipy_")
_REMEDY = (
    f"Install OpenBLAS: pip install {DISTRIBUTION}, or apt install libopenblas-dev (Debian, Ubuntu); or name a library "
    "with the option `library`."
)
_PATIENCE_S = 20.0


class ThreadControl(Enum):
    """The functions of a library for setting the number of threads; the value is the name of a file of C."""

    PRIVATE_OPENBLAS = "private_openblas"
    """OpenBLAS with function names used by no other code of the process."""
    OPENBLAS = "openblas"
    MKL = "mkl"
    NONE = "no_threads"


@dataclass(frozen=True, slots=True)
class Library:
    """A usable library.

    Attributes:
        name: the link name: ``"openblas"`` for ``libopenblas.so``.
        path: the file.
        folder: the folder for the linker; empty if the C compiler finds the library by itself.
        origin: the source of the library.
        prefix: the text before each name of a function, such as ``"scipy_"``.
        threads: the functions for the number of threads.
    """

    name: str
    path: str
    folder: str
    origin: str
    prefix: str
    threads: ThreadControl

    def __str__(self) -> str:
        return f"{self.path} ({self.origin})"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file to examine; the attributes as in :class:`Library`."""

    path: Path
    folder: str
    origin: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The reason why no library was found, and the next step."""

    reason: str
    remedy: str


def find_library(choice: str = "auto") -> Library | Missing:
    """Return the library of a choice; the result is kept for the process.

    Args:
        choice: the option ``library`` of :class:`~byoc_cblas.options.CblasOptions`.
    """
    return _find_once(choice)


def library_status(choice: str = "auto") -> Status:
    """Return whether regions can be compiled: a C compiler and the library in use, or the missing part."""
    compiler = Toolchain.status()
    if not compiler.ok:
        return Status(ok=False, reason=compiler.reason, remedy=compiler.remedy)
    found = find_library(choice)
    if isinstance(found, Missing):
        return Status(ok=False, reason=found.reason, remedy=found.remedy)
    return Status(ok=True, reason=str(found))


@cache
def _find_once(choice: str) -> Library | Missing:
    return look_for_library(choice, candidates(choice))


def look_for_library(choice: str, files: Iterable[Candidate | Missing]) -> Library | Missing:
    """Look for a usable library, and return the first, or the reason against the first candidate.

    Args:
        choice: the choice, for the message.
        files: the files to examine, in order, or reasons against a choice.
    """
    first: Missing | None = None
    for candidate in files:
        found = candidate if isinstance(candidate, Missing) else _examine(candidate)
        if isinstance(found, Library):
            return found
        first = first or found
    subject = "no BLAS" if choice == "auto" else f"no library `{choice}`"
    return first or Missing(f"{subject} was found", _REMEDY)


def candidates(choice: str) -> Iterator[Candidate | Missing]:
    """Yield the files for a choice, in order, or the reason against the choice."""
    if choice not in ("auto", "scipy-openblas", *_CHOICES):
        yield _named_file(Path(choice))
        return
    if choice in ("auto", "scipy-openblas"):
        path = find_file()
        if path is not None:
            yield Candidate(path, str(path.parent), f"of distribution {DISTRIBUTION}")
    for name in SYSTEM_NAMES if choice == "auto" else _CHOICES.get(choice, ()):
        yield from _system_files(name)


def _named_file(path: Path) -> Candidate | Missing:
    remedy = "Set the option `library` to auto, scipy-openblas, openblas, mkl, or the path of a shared library."
    if not path.is_file():
        return Missing(f"the library `{path}` does not exist", remedy)
    if not (path.name.startswith("lib") and path.name.endswith(_suffix())):
        return Missing(
            f"a linker does not find a library with the file name `{path.name}`", f"Name the file lib*{_suffix()}."
        )
    return Candidate(path.absolute(), str(path.absolute().parent), "named by the option `library`")


def _system_files(name: str) -> Iterator[Candidate]:
    file = f"lib{name}{_suffix()}"
    if Toolchain.status().ok and not find_toolchain().is_zig:
        answer = _ask([*find_toolchain().command, f"-print-file-name={file}"])
        if Path(answer).is_absolute() and Path(answer).is_file():
            yield Candidate(Path(answer), "", "of the system")
    folder = _ask(["pkg-config", "--variable=libdir", name])
    if folder and (Path(folder) / file).is_file():
        yield Candidate(Path(folder) / file, folder, "found by pkg-config")
    own = Path(sys.prefix) / "lib"
    if (own / file).is_file():
        yield Candidate(own / file, str(own), "of this Python environment")


def _ask(command: list[str]) -> str:
    """Return the output of a command; an empty text if the command is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _examine(candidate: Candidate) -> Library | Missing:
    path = candidate.path
    where = f"{path} ({candidate.origin})"
    try:
        handle = ctypes.CDLL(str(path))
    except OSError as error:
        return Missing(f"{where} cannot be loaded: {str(error).removeprefix(f'{path}: ')}", _REMEDY)
    prefix = next((text for text in _PREFIXES if hasattr(handle, f"{text}cblas_sgemm")), None)
    if prefix is None:
        return Missing(f"{where} has no function `cblas_sgemm` with sizes of 32 bits", _REMEDY)
    missing = [name for name in ("dgemm", "sgemv", "dgemv") if not hasattr(handle, f"{prefix}cblas_{name}")]
    if missing:
        return Missing(f"{where} has no function `{prefix}cblas_{missing[0]}`", _REMEDY)
    config = _config(handle, prefix)
    if "USE64BITINT" in config:
        return Missing(f"{where} has sizes of 64 bits, expected 32", _REMEDY)
    name = path.name.removeprefix("lib").removesuffix(_suffix())
    return Library(name, str(path), candidate.folder, candidate.origin, prefix, _thread_control(handle, prefix))


def _config(handle: ctypes.CDLL, prefix: str) -> str:
    if not hasattr(handle, f"{prefix}openblas_get_config"):
        return ""
    function = handle[f"{prefix}openblas_get_config"]
    function.restype = ctypes.c_char_p
    return (function() or b"").decode(errors="replace")


def _thread_control(handle: ctypes.CDLL, prefix: str) -> ThreadControl:
    if hasattr(handle, "MKL_Set_Num_Threads_Local"):
        return ThreadControl.MKL
    if hasattr(handle, f"{prefix}openblas_set_num_threads"):
        return ThreadControl.PRIVATE_OPENBLAS if prefix else ThreadControl.OPENBLAS
    return ThreadControl.NONE


def _suffix() -> str:
    return ".dylib" if sys.platform == "darwin" else ".so"
