"""The native half of the runtime: a library for programs without Python (``csrc/runtime``)."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["library_path"]


def library_path() -> Path | None:
    """Return the path of the native half, for the entry-point group ``byoc.native_runtimes``.

    ``None`` if the package was built without a C compiler.
    """
    name = f"libbyoc_dnnl_rt.{'dylib' if sys.platform == 'darwin' else 'so'}"
    path = Path(__file__).parent / "lib" / name
    return path if path.is_file() else None
