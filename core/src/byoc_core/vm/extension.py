"""The C extension, where there is one: without it, every step of a program is done by Python."""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from types import ModuleType

__all__ = ["SWITCH", "extension", "extension_status", "vector_function"]

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


def vector_function(name: str) -> int:
    """Gives the address of a C function ``void f(const float *x, float *y, int64_t count)``; 0 without the extension.

    For runtimes that compute by calls of C. It computes ``count`` numbers that lie next to each other, in the calling
    thread, by the best instructions of the processor; ``y`` is memory of its own. Results are within 1.5 units in the
    last place for ``"exp"``, 1 for ``"log"``, 2.5 for ``"softplus"``; infinities, NaN and subnormal numbers are right.

    Args:
        name: one of these, of each number; or ``"log_softmax"``, of all of them as one row of less than 2**31.
    """
    found = extension()
    return 0 if found is None else int(found.VECTOR_FUNCTIONS[name][-1])


@cache
def _find() -> tuple[ModuleType | None, str]:
    if os.environ.get(SWITCH) == "0":
        return None, f"{SWITCH}=0 switches the C extension off"
    try:
        module = import_module("byoc_core._native")
    except ImportError as error:
        return None, f"the C extension is missing or cannot be loaded: {error}"
    return module, ""
