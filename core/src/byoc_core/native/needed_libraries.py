"""Shared libraries needed by compiled code, and their origin when the code is loaded.

Compiled code searches the folder of the code's file (``$ORIGIN``), a private temporary folder. A link there leads to
the library. Files come from the build of this process, from the user's setting and from installed distributions, never
from an artifact.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from byoc_core.errors import ArtifactError
from byoc_core.native.declared_libraries import declared_library, find_unusable_declaration
from byoc_core.native.elf import read_dynamic_names
from byoc_core.native.linkage import SharedLibrary
from byoc_core.plugin import LIBRARIES_GROUP
from byoc_core.plugin.released import released_distributions

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
    """Link the libraries needed by a library into the given folder, if the files are known.

    Args:
        data: the bytes of the requesting library.
        folder: the folder for the links.
        shared: libraries with known files. The file of another library lies in a folder of ``$BYOC_LIBRARY_PATH``, or
            is declared by an installed distribution (:mod:`byoc_core.native.declared_libraries`).
    """
    files_by_name = dict(shared)
    names = read_dynamic_names(data)
    for name in names.needed if names is not None else files_by_name:
        if not _FILE_NAME.fullmatch(name) or name in (".", ".."):
            continue
        found = Path(files_by_name[name]) if name in files_by_name else _find_file(name)
        if found is not None and found.is_file() and not (folder / name).exists():
            (folder / name).symlink_to(found.absolute())


def _find_file(name: str) -> Path | None:
    folders = [Path(item) for item in os.environ.get(LIBRARY_PATH, "").split(os.pathsep) if item]
    return next((folder / name for folder in folders if (folder / name).is_file()), None) or declared_library(name)


def missing_library(message: str) -> str | None:
    """Return the library not found by the dynamic linker, from its message; ``None`` for another failure."""
    found = next((match for pattern in _MISSING if (match := pattern.search(message))), None)
    return found[1] if found is not None else None


def missing_library_error(name: str, missing: str) -> ArtifactError:
    """Return the error for compiled code with a missing library."""
    home = released_distributions(LIBRARIES_GROUP).get(missing)
    install = f"pip install {home}" if home is not None else "Install the library"
    hint = f"{install}, or add the folder to ${LIBRARY_PATH}: artifacts do not contain shared libraries."
    faulty = find_unusable_declaration(missing)
    if faulty is not None:
        hint += f" The declaration by {faulty.label} is unusable ({faulty.state}): {faulty.reason}. {faulty.remedy}"
    return ArtifactError(
        f"library `{name}`", f"needs library `{missing}`, but the library is not found", hint=hint.strip()
    )
