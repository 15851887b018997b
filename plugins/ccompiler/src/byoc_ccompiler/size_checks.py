"""Checks of sizes that loops rely on and that only a call shows: what the generated wrapper makes.

Loops read each operand as if its sizes were those of the space they run over, or 1. Equal sizes that no symbol hides
need no check; where an op needs equal sizes and they are not known to be, its family refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim

from byoc_ccompiler.steps import Step, shape_of

__all__ = ["require_broadcast", "require_results", "require_window"]


def require_broadcast(scope: FunctionScope, step: Step, *, skip: int = 0) -> None:
    """Has the sizes of the operands checked against the result's, but the last ``skip`` axes."""
    names = step.binding.op.operand_names(len(step.operands))
    space = shape_of(step.binding.results[0])
    for name, operand in zip(names, step.operands, strict=True):
        dims = shape_of(operand)
        scope.require_broadcast(step.op, name, dims[: len(dims) - skip], space[: len(space) - skip])


def require_window(scope: FunctionScope, step: Step, padded: Sequence[Dim], window: Sequence[int]) -> None:
    """Has the padded image checked to be no smaller than the window.

    Args:
        scope: the function.
        step: the op.
        padded: the sizes of the image, padding included.
        window: the sizes of the window, dilation included; 0 along axes that it does not move along.
    """
    scope.require_at_least(step.op, "the padded image", padded, window)


def require_results(scope: FunctionScope, step: Step) -> None:
    """Has the sizes of the results checked to be 0 or more."""
    for result in step.binding.results:
        shape = shape_of(result)
        scope.require_at_least(step.op, "the result", shape, [0] * len(shape))
