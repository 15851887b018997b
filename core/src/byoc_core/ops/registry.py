"""The registry of byoc's own ops."""

from __future__ import annotations

from functools import cache

from byoc_core.ir.structural import STRUCTURAL_OPS
from byoc_core.opset.families import FAMILIES, ops_of
from byoc_core.opset.registry import OpRegistry

__all__ = ["default_ops"]


@cache
def default_ops() -> OpRegistry:
    """Gives the registry of byoc's own ops, the structural ones of the IR included; always the same object."""
    return OpRegistry([*(op for family in FAMILIES for op in ops_of(family).values()), *STRUCTURAL_OPS])
