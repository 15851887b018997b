"""Search for oneDNN: the first usable library, in a fixed order.

1. The file named by ``BYOC_DNNL_LIBRARY``. If the variable is set, nothing else is tried.
2. Files of installed distributions with oneDNN, in the order of :data:`DISTRIBUTIONS`.
3. ``lib`` of the running Python environment (``sys.prefix``).
4. The system's library, found by the loader.

A library is usable if the version is 3.2 or a later 3, and the threading runtime is OpenMP or none. An engine for the
CPU must also be creatable in practice.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path

from byoc_core.errors import PluginError
from byoc_core.runtime.hooks import Status
from byoc_core.runtime.threads import use_openmp

from byoc_dnnl.capi import CPU_ENGINE, Api, CpuRuntime, Isa

__all__ = ["DISTRIBUTIONS", "VARIABLE", "Library", "Missing", "find_library", "library_status", "load_library"]

VARIABLE = "BYOC_DNNL_LIBRARY"
DISTRIBUTIONS = ("onednn-cpu-gomp", "onednn-cpu-iomp", "onednn")
"""Distributions with oneDNN; the dependency of byoc-dnnl comes first."""

_FILE_NAMES = ("libdnnl.so.3", "libdnnl.so", "libdnnl.3.dylib", "libdnnl.dylib")
_FIRST, _LAST = (3, 2), (4, 0)
_INSTALL = "Install the wheel for Linux on x86-64: pip install onednn-cpu-gomp==2023.2.0"
_REMEDY = f"{_INSTALL}; or set {VARIABLE} to a libdnnl of version 3.2 or a later 3."
_REMEDY_FOR_VARIABLE = (
    f"Set {VARIABLE} to a libdnnl of version 3.2 or a later 3; or unset the variable to search for other libraries."
)
_REMEDY_FOR_GOMP = "Install libgomp: apt install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora, RHEL)."


@dataclass(frozen=True, slots=True)
class Library:
    """A usable library.

    Attributes:
        path: the file of the library.
        origin: the source of the library.
        api: the functions of the library.
        version: as ``(3, 2, 0)``.
        runtime: the threading runtime.
        isa: the usable instruction sets: bits of :class:`~byoc_dnnl.capi.Isa`.
        handle: the loaded library, also the source of OpenMP's functions.
    """

    path: str
    origin: str
    api: Api
    version: tuple[int, int, int]
    runtime: CpuRuntime
    isa: int
    handle: ctypes.CDLL

    @property
    def isa_name(self) -> str:
        """The name of the usable instruction set."""
        return Isa(self.isa).name.lower() if self.isa in list(Isa) else f"{self.isa:#x}"

    def __str__(self) -> str:
        version = ".".join(map(str, self.version))
        threads = {CpuRuntime.OPENMP: "OpenMP", CpuRuntime.SEQUENTIAL: "one thread"}[self.runtime]
        return f"oneDNN {version} from {self.path} ({self.origin}), instructions {self.isa_name}, threads: {threads}"


@dataclass(frozen=True, slots=True)
class Missing:
    """The reason why no library was found, and the next step."""

    reason: str
    remedy: str


def find_library() -> Library | Missing:
    """Return the first usable library; the result is kept for the process."""
    return _find_once(os.environ.get(VARIABLE, "").strip())


def load_library() -> Library:
    """Return the library.

    Raises:
        PluginError: no usable library exists; gives the reason and the remedy.
    """
    found = find_library()
    if isinstance(found, Missing):
        raise PluginError("byoc-dnnl", found.reason, hint=found.remedy)
    return found


def library_status() -> Status:
    """Return the library in use, or the missing part and the remedy."""
    found = find_library()
    if isinstance(found, Missing):
        return Status(ok=False, reason=found.reason, remedy=found.remedy)
    return Status(ok=True, reason=str(found))


@cache
def _find_once(override: str) -> Library | Missing:
    return look_for_library(override)


def look_for_library(override: str = "") -> Library | Missing:
    """Look for a usable library, and return the first.

    Args:
        override: the only file to try; without it, all candidates are tried.
    """
    if override:
        return _open(override, f"by {VARIABLE}", _REMEDY_FOR_VARIABLE)
    first: Missing | None = None
    for path, origin in candidates():
        found = _open(path, origin, _REMEDY)
        if isinstance(found, Library):
            return found
        # An unusable installed library is a better reason than none in the system.
        if first is None and (os.sep in path or "libgomp" in found.reason):
            first = found
    return first or Missing("no oneDNN library was found", _REMEDY)


def candidates() -> Iterator[tuple[str, str]]:
    """Yield possible libraries with descriptions of their origins: existing files, then names for the loader."""
    for name in DISTRIBUTIONS:
        for path in _files_of(name):
            yield str(path), f"of distribution {name}"
    for name in _FILE_NAMES:
        path = Path(sys.prefix) / "lib" / name
        if path.is_file():
            yield str(path), "of this Python environment"
    for name in _FILE_NAMES:
        yield name, "of the system"


def _files_of(distribution: str) -> Iterator[Path]:
    try:
        files = metadata.files(distribution) or []
    except metadata.PackageNotFoundError:
        return
    named = {file.name: file for file in files}
    for name in _FILE_NAMES:
        if name in named:
            path = Path(str(named[name].locate()))
            if path.is_file():
                yield path.resolve()
                return


def _open(path: str, origin: str, remedy: str) -> Library | Missing:
    use_openmp()  # before a library that runs on OpenMP, so that the core's number of threads applies
    try:
        handle = ctypes.CDLL(path)
    except OSError as error:
        if "libgomp" in str(error):
            return Missing(f"{path} ({origin}) needs libgomp, missing on this system", _REMEDY_FOR_GOMP)
        return Missing(f"{path} ({origin}) cannot be loaded: {_without(path, error)}", remedy)
    try:
        api = Api(handle)
    except AttributeError as error:
        return Missing(f"{path} ({origin}) is not oneDNN of version 3: {_without(path, error)}", remedy)
    version = api.ask("dnnl_version").contents
    number = (int(version.major), int(version.minor), int(version.patch))
    if not _FIRST <= number[:2] < _LAST:
        text = ".".join(map(str, number))
        return Missing(f"{path} ({origin}) is oneDNN {text}, expected 3.2 or a later 3", remedy)
    if version.cpu_runtime not in (CpuRuntime.OPENMP, CpuRuntime.SEQUENTIAL):
        name = CpuRuntime(version.cpu_runtime).name if version.cpu_runtime in list(CpuRuntime) else version.cpu_runtime
        return Missing(f"{path} ({origin}) runs on {name}, expected OpenMP or one thread", remedy)
    engine = ctypes.c_void_p()
    status = api.attempt("dnnl_engine_create", ctypes.byref(engine), CPU_ENGINE, 0)
    if status != 0:
        return Missing(f"{path} ({origin}) cannot create an engine for the CPU: status {int(status)}", remedy)
    api.call("dnnl_engine_destroy", engine)
    isa = int(api.ask("dnnl_get_effective_cpu_isa"))
    return Library(path, origin, api, number, CpuRuntime(version.cpu_runtime), isa, handle)


def _without(path: str, error: Exception) -> str:
    """Return the message of the loader, without the leading path."""
    return str(error).removeprefix(f"{path}: ")
