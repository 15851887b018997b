"""The paths of the library and the header inside the package."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["include_directory", "library_path"]

_PACKAGE = Path(__file__).parent


def library_path() -> Path:
    """Return the path of the shared library, for a linker or for ``dlopen``.

    Raises:
        FileNotFoundError: the library is not built: the sources are imported without installation.
    """
    path = _PACKAGE / "lib" / f"libbyoc_rt.{'dylib' if sys.platform == 'darwin' else 'so'}"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: is not built. Install the package, or in a checkout: pip install -e rt")
    return path


def include_directory() -> Path:
    """Return the folder with the header ``byoc_rt.h``."""
    return _PACKAGE / "include"
