"""Shared libraries needed by compiled code, and their origin when the code is loaded.

Compiled code searches the folder of the code's file (``$ORIGIN``), a private temporary folder. A link there leads to
the library. Files come from the build of this process and from the user's setting, never from an artifact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from byoc_core.errors import ArtifactError
from byoc_core.native.elf import read_dynamic_names
from byoc_core.native.linkage import SharedLibrary

__all__ = ["LIBRARY_PATH", "link_needed_libraries", "missing_library", "missing_library_error"]

LIBRARY_PATH = "BYOC_LIBRARY_PATH"
"""The environment variable with folders of shared libraries, in the format of ``PATH``."""

_FILE_NAME = re.compile(r"[A-Za-z0-9_+.-]+")
_MISSING = (
    re.compile(r"^([^:]+): cannot open shared object file"),
    re.compile(r"Error loading shared library ([^:]+):"),
    re.compile(r"Library not loaded: (\S+)"),
)


def link_needed_libraries(data: bytes, folder: Path, shared: Sequence[SharedLibrary]) -> None:
    """Link the libraries needed by a library into the given folder, if the files are known."""
    files_by_name = dict(shared)
    folders = [Path(item) for item in os.environ.get(LIBRARY_PATH, "").split(os.pathsep) if item]
    if not files_by_name and not folders:
        return
    names = read_dynamic_names(data)
    for name in names.needed if names is not None else files_by_name:
        if not _FILE_NAME.fullmatch(name) or name in (".", ".."):
            continue
        files = [Path(files_by_name[name])] if name in files_by_name else [folder / name for folder in folders]
        found = next((file for file in files if file.is_file()), None)
        if found is not None and not (folder / name).exists():
            (folder / name).symlink_to(found.absolute())


def missing_library(message: str) -> str | None:
    """Return the library not found by the dynamic linker, from its message; ``None`` for another failure."""
    found = next((match for pattern in _MISSING if (match := pattern.search(message))), None)
    return found[1] if found is not None else None


def missing_library_error(name: str, missing: str) -> ArtifactError:
    """Return the error for compiled code with a missing library."""
    return ArtifactError(
        f"library `{name}`",
        f"needs library `{missing}`, but the library is not found",
        hint=f"Install the library, or add the folder to ${LIBRARY_PATH}: artifacts do not contain shared libraries.",
    )
