"""The C extension, if built, loadable and not switched off."""

from __future__ import annotations

import atexit
import os
from functools import cache
from importlib import import_module
from types import ModuleType

from byoc_core.runtime.extension import SWITCH

__all__ = ["extension", "extension_status"]


@cache
def extension() -> ModuleType | None:
    """Return the module ``byoc_dnnl._native``, or ``None`` if the module was not built or is switched off."""
    return _find()[0]


def extension_status() -> str:
    """Return the reason why primitives are called from Python one by one; empty if the extension is in use."""
    return _find()[1]


@cache
def _find() -> tuple[ModuleType | None, str]:
    if os.environ.get(SWITCH) == "0":
        return None, f"{SWITCH}=0 switches the C extension off"
    try:
        module = import_module("byoc_dnnl._native")
    except ImportError as error:
        return None, f"the C extension is missing or cannot be loaded: {error}"
    atexit.register(module.stop_freeing)
    return module, ""
