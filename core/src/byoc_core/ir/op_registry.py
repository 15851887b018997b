"""The registry of the core's own ops: the ops of a module that states none."""

from __future__ import annotations

from functools import cache, cached_property

from byoc_core.opset.opdef import OpDef
from byoc_core.opset.registry import OpRegistry

__all__ = ["default_ops"]


class _CoreOps(OpRegistry):
    """The core's ops; their families are imported when an op is first looked up."""

    def __init__(self) -> None:
        """Load nothing: `_ops` is filled when it is first read."""

    @cached_property
    def _ops(self) -> dict[str, OpDef]:  # type: ignore[override]
        from byoc_core.ir.structural import STRUCTURAL_OPS  # it imports modules, which have this registry
        from byoc_core.opset.families import FAMILIES, ops_of

        own = [op for family in FAMILIES for op in ops_of(family).values()]
        return dict(OpRegistry([*own, *STRUCTURAL_OPS]))


@cache
def default_ops() -> OpRegistry:
    """Return the registry of byoc's own ops, the structural ops of the IR included; always the same object.

    Cost: nothing; the first look-up imports the modules that define the ops.
    """
    return _CoreOps()
