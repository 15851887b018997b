"""What can be wrong with the backend, one thing at a time: the environment variable ``FAKENPU_FAULT`` says which."""

from __future__ import annotations

import os
from typing import Any

from fakenpu.faults import l0, l1, l2, l3, l4
from fakenpu.faults.fault import Fault

__all__ = ["FAULTS", "Fault", "break_compile_half", "break_run_half"]

FAULTS: dict[str, Fault] = {
    name: fault for level in (l0, l1, l2, l3, l4) for name, fault in sorted(level.FAULTS.items())
}


def break_compile_half(names: dict[str, Any]) -> None:
    """Changes the global names of the compile half."""
    _break("compile_half", names)


def break_run_half(names: dict[str, Any]) -> None:
    """Changes the global names of the run half."""
    _break("run_half", names)


def _break(half: str, names: dict[str, Any]) -> None:
    chosen = os.environ.get("FAKENPU_FAULT", "")
    change = getattr(FAULTS[chosen], half) if chosen else None
    if change is not None:
        change(names)
