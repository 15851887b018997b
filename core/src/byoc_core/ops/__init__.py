"""The ops that byoc knows: one :class:`~byoc_core.ir.opdef.OpDef` each, grouped by family."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

# Loaded by name: the run side imports families of ops from here, and knows no builder.
if TYPE_CHECKING:
    from byoc_core.ops.builder import FunctionBuilder
    from byoc_core.ops.registry import default_ops

__all__ = ["FunctionBuilder", "default_ops"]

_HOMES = {"FunctionBuilder": "builder", "default_ops": "registry"}
"""Where each public name lives."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"byoc_core.ops.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
