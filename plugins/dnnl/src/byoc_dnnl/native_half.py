"""The native half of the runtime: a library for programs without Python (``csrc/runtime``)."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["library_path"]


def library_path() -> Path:
    """Return the path of the native half, for the entry-point group ``byoc.native_runtimes``.

    Raises:
        FileNotFoundError: the library is not built: the package was built without a C compiler.
    """
    name = f"libbyoc_dnnl_rt.{'dylib' if sys.platform == 'darwin' else 'so'}"
    path = Path(__file__).parent / "lib" / name
    if not path.is_file():
        raise FileNotFoundError(f"{path}: is not built. Install byoc-dnnl with a C compiler")
    return path
