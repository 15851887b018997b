"""Canonical form and common subexpressions together."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.ir import IRModule
from byoc_core.transform.canonicalise import Canonicalise
from byoc_core.transform.common_subexpressions import EliminateCommonSubexpressions
from byoc_core.transform.pass_ import Pass

__all__ = ["Simplify"]


@dataclass(frozen=True)
class Simplify(Pass):
    """Runs :class:`Canonicalise` and :class:`EliminateCommonSubexpressions` until neither changes anything.

    Each may make work for the other: a choice between two values goes once they are known to be equal, and ops on what
    is left of it may then be equal in turn.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Gives the simplified module.

        Cost: that of the two passes for each round; every round but the first and the last merges at least one op.
        """
        before = None
        while module is not before:
            before = module
            module = EliminateCommonSubexpressions()(Canonicalise()(module))
        return module
