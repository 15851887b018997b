"""Finds oneDNN: the first library that can be used, in a stated order.

1. The file that ``BYOC_DNNL_LIBRARY`` names. Where it is set nothing else is tried.
2. Files of installed distributions that carry oneDNN, in the order of :data:`DISTRIBUTIONS`.
3. ``lib`` of the environment that Python runs in (``sys.prefix``).
4. The system's, as its loader finds it.

A library can be used if it is of version 3.2 or a later 3, if its threads are those of OpenMP or there are none, and if
an engine for the CPU can really be created in it.
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
"""Distributions that carry oneDNN, the one that byoc-dnnl depends on first."""

_FILE_NAMES = ("libdnnl.so.3", "libdnnl.so", "libdnnl.3.dylib", "libdnnl.dylib")
_FIRST, _LAST = (3, 2), (4, 0)
_INSTALL = "Install the wheel of Linux on x86-64: pip install onednn-cpu-gomp==2023.2.0"
_REMEDY = f"{_INSTALL}; or set {VARIABLE} to a libdnnl of version 3.2 or a later 3."
_REMEDY_FOR_VARIABLE = (
    f"Set {VARIABLE} to a libdnnl of version 3.2 or a later 3; or unset it, and others are looked for."
)
_REMEDY_FOR_GOMP = "Install it: apt install libgomp1 (Debian, Ubuntu), dnf install libgomp (Fedora, RHEL)."


@dataclass(frozen=True, slots=True)
class Library:
    """A library that can be used.

    Attributes:
        path: where it was loaded from.
        origin: how it was found.
        api: its functions.
        version: as ``(3, 2, 0)``.
        runtime: what its threads run on.
        isa: what it may use of the processor: bits of :class:`~byoc_dnnl.capi.Isa`.
        handle: the loaded library, where OpenMP's functions are found too.
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
        """The name of what it may use of the processor."""
        return Isa(self.isa).name.lower() if self.isa in list(Isa) else f"{self.isa:#x}"

    def __str__(self) -> str:
        version = ".".join(map(str, self.version))
        threads = {CpuRuntime.OPENMP: "OpenMP", CpuRuntime.SEQUENTIAL: "one thread"}[self.runtime]
        return f"oneDNN {version} from {self.path} ({self.origin}), instructions {self.isa_name}, threads: {threads}"


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is no library, and the next step."""

    reason: str
    remedy: str


def find_library() -> Library | Missing:
    """Gives the first library that can be used; what was found is kept for the process."""
    return _find_once(os.environ.get(VARIABLE, "").strip())


def load_library() -> Library:
    """Gives the library.

    Raises:
        PluginError: there is none that can be used; says why, and what to do.
    """
    found = find_library()
    if isinstance(found, Missing):
        raise PluginError("byoc-dnnl", found.reason, hint=found.remedy)
    return found


def library_status() -> Status:
    """Gives what is in use, or what is missing and the remedy."""
    found = find_library()
    if isinstance(found, Missing):
        return Status(ok=False, reason=found.reason, remedy=found.remedy)
    return Status(ok=True, reason=str(found))


@cache
def _find_once(override: str) -> Library | Missing:
    return look_for_library(override)


def look_for_library(override: str = "") -> Library | Missing:
    """Look for a library that can be used, and return the first.

    Args:
        override: the only file to try; without it, all places are tried.
    """
    if override:
        return _open(override, f"by {VARIABLE}", _REMEDY_FOR_VARIABLE)
    first: Missing | None = None
    for path, origin in candidates():
        found = _open(path, origin, _REMEDY)
        if isinstance(found, Library):
            return found
        # What is installed and cannot be used says more than that the system has none.
        if first is None and (os.sep in path or "libgomp" in found.reason):
            first = found
    return first or Missing("no oneDNN library was found", _REMEDY)


def candidates() -> Iterator[tuple[str, str]]:
    """Yields the places where a library may be, and how to say where that is; files exist."""
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
    use_openmp()  # before a library that runs on it, so that the core's number of threads reaches it
    try:
        handle = ctypes.CDLL(path)
    except OSError as error:
        if "libgomp" in str(error):
            return Missing(f"{path} ({origin}) needs libgomp, which the system lacks", _REMEDY_FOR_GOMP)
        return Missing(f"{path} ({origin}) cannot be loaded: {_without(path, error)}", remedy)
    try:
        api = Api(handle)
    except AttributeError as error:
        return Missing(f"{path} ({origin}) is no oneDNN of version 3: {_without(path, error)}", remedy)
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
    """Gives what the loader says, without the path that it begins with."""
    return str(error).removeprefix(f"{path}: ")
