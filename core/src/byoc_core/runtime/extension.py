"""The C extension, where there is one: without it, every step of a program is done by Python."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from types import ModuleType

__all__ = ["SWITCH", "extension_status"]

SWITCH = "BYOC_NATIVE"
"""The environment variable that switches the extension off with the value ``0``."""


@cache
def extension() -> ModuleType | None:
    """Gives the module ``byoc_core._native``, or ``None`` where it was not built or is switched off."""
    return _find()[0]


def extension_status() -> tuple[bool, str]:
    """Tells whether native calls run in one go, and the reason why not."""
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
