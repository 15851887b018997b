"""The memory added to this process, as far as the system tells."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["PeakMemory"]

_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""Reset the peak of the resident set: ``Documentation/filesystems/proc.rst`` of Linux."""


class PeakMemory:
    """The growth of the largest resident set since the construction."""

    def __init__(self) -> None:
        try:
            _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
        except OSError:  # another system, or a container without the permission
            self._before = _read_lifetime_peak()
        else:
            self._before = _read_status("VmRSS")

    def read_growth(self) -> int | None:
        """Return the bytes added so far at most; ``None`` if unknown.

        Where the peak cannot be reset, the growth beyond the peak before the construction: 0 is possible.
        """
        after = _read_status("VmHWM")
        if after is None:
            after = _read_lifetime_peak()
        return None if self._before is None or after is None else max(0, after - self._before)


def _read_status(field: str) -> int | None:
    """Return a number of bytes from ``/proc/self/status``; ``None`` without such a line."""
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def _read_lifetime_peak() -> int | None:
    """Return the largest resident set since the start of the process; ``None`` on systems without ``getrusage``."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
