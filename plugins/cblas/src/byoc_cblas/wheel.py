"""The OpenBLAS of the distribution ``scipy-openblas32``, found without an import of the package.

An import would load the library for all extension modules of the process.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

__all__ = ["DISTRIBUTION", "FILE_NAME", "find_file"]

DISTRIBUTION = "scipy-openblas32"
FILE_NAME = "libscipy_openblas.so"
_PACKAGE = "scipy_openblas32"


def find_file() -> Path | None:
    """Return the file of the library; ``None`` if the distribution is missing.

    Compiled regions request the library by the file name, and the core calls this function for the file: see the
    entry-point group ``byoc.libraries``.
    """
    spec = find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "lib" / FILE_NAME
        if path.is_file():
            return path
    return None
