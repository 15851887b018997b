"""Native halves of runtimes in installed distributions: the entry-point group ``byoc.native_runtimes``.

::

    [project.entry-points."byoc.native_runtimes"]
    mynpu = "byoc_mynpu.native:library_path"

The entry point's name is the type key of the modules. The referenced object is a function without arguments, returning
the path of a shared library with the function ``byoc_rt_runtime_v1`` (see ``byoc_rt.h``), or ``None`` if the
distribution was built without the library.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["GROUP", "NativeRuntimeError", "find_native_runtimes"]

GROUP = "byoc.native_runtimes"


class NativeRuntimeError(Exception):
    """The native half of a runtime cannot be found; the text names the distribution and the reason."""


def find_native_runtimes() -> dict[str, Path]:
    """Return the shared libraries of the installed native halves by type key, in the order of the keys.

    A distribution built without its library has no native half.

    Raises:
        NativeRuntimeError: two distributions have a native half for the same type key, or the function of an entry
            point fails, or returns no path of a file.
    """
    from importlib.metadata import entry_points

    paths: dict[str, Path] = {}
    owners: dict[str, str] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        owner = point.dist.name if point.dist is not None else "unknown distribution"
        if point.name in owners:
            raise NativeRuntimeError(
                f"native runtime `{point.name}`: is declared by {owners[point.name]} and {owner}. Uninstall either."
            )
        owners[point.name] = owner
        path = _find_library(point, owner)
        if path is not None:
            paths[point.name] = path
    return paths


def _find_library(point: EntryPoint, owner: str) -> Path | None:
    where = f"native runtime `{point.name}` of {owner}"
    try:
        found = point.load()()
        path = None if found is None else Path(os.fspath(found))
    except Exception as error:
        raise NativeRuntimeError(f"{where}: `{point.value}` raised {type(error).__name__}: {error}") from error
    if path is not None and not path.is_file():
        raise NativeRuntimeError(f"{where}: `{point.value}` returned {str(path)!r}, which is no file")
    return path and path.absolute()
