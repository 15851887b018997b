"""Checks of sizes that loops rely on and that only a call shows: what the generated wrapper makes.

Loops read each operand as if its sizes were those of the space they run over, or 1. Equal sizes that no symbol hides
need no check; where an op needs equal sizes and they are not known to be, its family refuses it.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim
from byoc_core.ops import axis_letters

from byoc_ccompiler.steps import Step, shape_of

__all__ = ["require_broadcast", "require_equal_sizes", "require_results", "require_spatial"]


def require_broadcast(scope: FunctionScope, step: Step, *, skip: int = 0, of_result: int = 0) -> None:
    """Has the sizes of the operands checked against the result's, but the last axes of both: so many."""
    names = step.binding.op.operand_names(len(step.operands))
    space = shape_of(step.binding.results[0])
    for name, operand in zip(names, step.operands, strict=True):
        dims = shape_of(operand)
        scope.require_broadcast(step.op, name, dims[: max(0, len(dims) - skip)], space[: len(space) - of_result])


def require_equal_sizes(
    scope: FunctionScope, step: Step, operand: int, dims: Sequence[Dim], wanted: Sequence[Dim]
) -> None:
    """Has sizes of an operand, given by its number, checked to be what they must be."""
    names = step.binding.op.operand_names(len(step.operands))
    scope.require_equal(step.op, names[operand], dims, wanted)


def require_spatial(scope: FunctionScope, op: str, what: str, sizes: Sequence[Dim], least: Sequence[int]) -> None:
    """Has spatial sizes checked; axes are named as those of images, channels first.

    So they are the same whatever the layout is, which a rewrite of the region may have changed.

    Args:
        scope: the function.
        op: the op's name.
        what: the image that has the sizes, for the message.
        sizes: one for each spatial axis.
        least: the smallest that each may be.
    """
    axes = ", ".join("NC" + axis_letters(len(sizes)))
    scope.require_at_least(op, f"{what} ({axes})", [1, 1, *sizes], [0, 0, *least])


def require_results(scope: FunctionScope, step: Step) -> None:
    """Has the sizes of the results checked to be 0 or more."""
    for result in step.binding.results:
        shape = shape_of(result)
        scope.require_at_least(step.op, "the result", shape, [0] * len(shape))
