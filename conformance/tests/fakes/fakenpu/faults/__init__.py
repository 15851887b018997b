"""What can be wrong with the backend, one thing at a time: the environment variable ``FAKENPU_FAULT`` says which."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fakenpu.faults.fault import Fault

__all__ = ["FAULTS", "Fault", "break_compile_half", "break_run_half"]

FAULTS: Mapping[str, Fault]
"""All faults by name; loaded on first use, so that a run half that is not broken imports none of them."""

_LEVELS = ("l0", "l1", "l2", "l3", "l4", "l4_permissions", "l4_process")


def __getattr__(name: str) -> object:
    if name != "FAULTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return {name: fault for level in _LEVELS for name, fault in sorted(_faults_of(level).items())}


def _faults_of(level: str) -> Mapping[str, Fault]:
    faults: Mapping[str, Fault] = import_module(f"fakenpu.faults.{level}").FAULTS
    return faults


def break_compile_half(names: dict[str, Any]) -> None:
    """Changes the global names of the compile half."""
    _break("compile_half", names)


def break_run_half(names: dict[str, Any]) -> None:
    """Changes the global names of the run half."""
    _break("run_half", names)


def _break(half: str, names: dict[str, Any]) -> None:
    chosen = os.environ.get("FAKENPU_FAULT", "")
    fault = _find(chosen) if chosen else None
    change = getattr(fault, half, None)
    if change is not None:
        change(names)


def _find(chosen: str) -> Fault | None:
    """Gives a fault; ``None`` where the compile side of the core, in whose terms it is written, is out of reach."""
    is_out_of_reach = False
    for level in _LEVELS:
        try:
            faults = _faults_of(level)
        except ImportError:
            is_out_of_reach = True
            continue
        if chosen in faults:
            return faults[chosen]
    if not is_out_of_reach:
        raise KeyError(chosen)
    return None
