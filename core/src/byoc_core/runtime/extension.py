"""The optional C extension: without the extension, Python runs every step of a program.

Users are the VM (calls of machine code), the accounts of threads and :func:`vector_function`. Each user works without
the extension too. Availability is decided once per process.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from types import ModuleType

__all__ = ["SWITCH", "extension_status"]

SWITCH = "BYOC_NATIVE"
"""The environment variable for switching the extension off by the value ``0``."""


@cache
def extension() -> ModuleType | None:
    """Return the module ``byoc_core._native``, or ``None`` if not built or switched off."""
    return _find()[0]


def extension_status() -> tuple[bool, str]:
    """Return whether the extension is available, and the reason if not.

    With the extension, native calls run without Python in between.
    """
    found, reason = _find()
    return found is not None, reason


@cache
def _find() -> tuple[ModuleType | None, str]:
    if os.environ.get(SWITCH) == "0":
        return None, f"{SWITCH}=0 switches the C extension off"
    try:
        module = import_module("byoc_core._native")
    except ImportError as error:
        return None, f"the C extension is missing or cannot be loaded: {error}"
    return module, ""
