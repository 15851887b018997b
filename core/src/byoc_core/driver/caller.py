"""Warnings pointing at the line of the user's program calling byoc."""

from __future__ import annotations

import inspect
import warnings
from types import FrameType

__all__ = ["warn_caller"]

_PACKAGE = __name__.partition(".")[0]


def warn_caller(message: str) -> None:
    """Issue a ``UserWarning`` at the innermost frame outside of this package."""
    frame = inspect.currentframe()
    level = 1
    while frame is not None and _is_own(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


def _is_own(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE
