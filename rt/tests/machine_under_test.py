"""The library under test as a native machine: the function of an entry point in the group ``byoc.native_machines``."""

from __future__ import annotations

import os
from pathlib import Path

import byoc_rt

__all__ = ["find_library"]


def find_library() -> Path:
    """Return the path of the library: as ``byoc_rt.library_path``, unless the tests are for another build."""
    return Path(os.environ.get("BYOC_RT_LIBRARY") or byoc_rt.library_path())
