"""Possible faults of the backend, one at a time: the environment variable ``FAKENPU_FAULT`` has the name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fakenpu.faults.fault import Fault

__all__ = ["FAULTS", "Fault", "break_compile_half", "break_run_half"]

FAULTS: Mapping[str, Fault]
"""All faults by name; loaded on first use, so a sound run half imports none of them."""

_LEVELS = (
    "l0",
    "l1",
    "l2",
    "l2_layouts",
    "l2_schedules",
    "l3",
    "l4",
    "l4_permissions",
    "l4_lowering",
    "l4_devices",
    "l4_process",
)


def __getattr__(name: str) -> object:
    if name != "FAULTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return {name: fault for level in _LEVELS for name, fault in sorted(_faults_of(level).items())}


def _faults_of(level: str) -> Mapping[str, Fault]:
    faults: Mapping[str, Fault] = import_module(f"fakenpu.faults.{level}").FAULTS
    return faults


def break_compile_half(names: dict[str, Any]) -> None:
    """Change the global names of the compile half."""
    _break("compile_half", names)


def break_run_half(names: dict[str, Any]) -> None:
    """Change the global names of the run half."""
    _break("run_half", names)


def _break(half: str, names: dict[str, Any]) -> None:
    name = os.environ.get("FAKENPU_FAULT", "")
    fault = _find(name) if name else None
    change = getattr(fault, half, None)
    if change is not None:
        change(names)


def _find(name: str) -> Fault | None:
    """Return a fault; ``None`` without access to the compile side of the core, used by the fault's definition."""
    is_out_of_reach = False
    for level in _LEVELS:
        try:
            faults = _faults_of(level)
        except ImportError:
            is_out_of_reach = True
            continue
        if name in faults:
            return faults[name]
    if not is_out_of_reach:
        raise KeyError(name)
    return None
