"""The registry of the core's own ops, the default ops of a module."""

from __future__ import annotations

from functools import cache, cached_property

from byoc_core.opset.opdef import OpDef
from byoc_core.opset.registry import OpRegistry

__all__ = ["default_ops"]


class _CoreOps(OpRegistry):
    """The core's ops; all families are imported on the first look-up of an op."""

    def __init__(self) -> None:
        """Load nothing: `_ops` is filled on first access."""

    @cached_property
    def _ops(self) -> dict[str, OpDef]:  # type: ignore[override]
        from byoc_core.ir.structural import STRUCTURAL_OPS  # late: imports modules using this registry
        from byoc_core.opset.families import FAMILIES, ops_of

        own = [op for family in FAMILIES for op in ops_of(family).values()]
        return dict(OpRegistry([*own, *STRUCTURAL_OPS]))


@cache
def default_ops() -> OpRegistry:
    """Return the registry of byoc's own ops, the structural ops of the IR included; always the same object.

    Cost: nothing; the first look-up imports the modules defining the ops.
    """
    return _CoreOps()
