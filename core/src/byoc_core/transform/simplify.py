"""Canonical form and elimination of common subexpressions, combined."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.ir import IRModule
from byoc_core.transform.canonicalise import Canonicalise
from byoc_core.transform.common_subexpressions import EliminateCommonSubexpressions
from byoc_core.transform.pass_ import Pass

__all__ = ["Simplify"]


@dataclass(frozen=True)
class Simplify(Pass):
    """Rounds of :class:`Canonicalise` and :class:`EliminateCommonSubexpressions` until neither changes anything.

    Each pass may enable the other: a choice between two values is removed once both are known to be equal; ops reading
    the remaining value may then be equal in turn.
    """

    def __call__(self, module: IRModule) -> IRModule:
        """Return the simplified module.

        Cost: the cost of both passes for each round; all rounds except the first and the last merge at least an op.
        """
        before = None
        while module is not before:
            before = module
            module = EliminateCommonSubexpressions()(Canonicalise()(module))
        return module
