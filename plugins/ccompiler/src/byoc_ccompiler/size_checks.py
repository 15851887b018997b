"""Checks of sizes assumed by loops and known only in a call: part of the generated wrapper.

Loops read each operand as if the sizes were the sizes of the iteration space, or 1. Equal sizes without symbols need
no check; if an op needs equal sizes and the sizes are not known to be equal, the family rejects the op.
"""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim
from byoc_core.ops import axis_letters

from byoc_ccompiler.steps import Step, shape_of

__all__ = ["require_broadcast", "require_equal_sizes", "require_results", "require_spatial"]


def require_broadcast(scope: FunctionScope, step: Step, *, skip: int = 0, of_result: int = 0) -> None:
    """Require the sizes of the operands to broadcast to the result.

    Args:
        scope: the function.
        step: the step.
        skip: number of last axes ignored in each operand.
        of_result: number of last axes ignored in the result.
    """
    names = step.binding.op.operand_names(len(step.operands))
    space = shape_of(step.binding.results[0])
    for name, operand in zip(names, step.operands, strict=True):
        dims = shape_of(operand)
        scope.require_broadcast(step.op, name, dims[: max(0, len(dims) - skip)], space[: len(space) - of_result])


def require_equal_sizes(
    scope: FunctionScope, step: Step, operand: int, dims: Sequence[Dim], expected: Sequence[Dim]
) -> None:
    """Require sizes of an operand, given by number, to equal the expected sizes."""
    names = step.binding.op.operand_names(len(step.operands))
    scope.require_equal(step.op, names[operand], dims, expected)


def require_spatial(scope: FunctionScope, op: str, subject: str, sizes: Sequence[Dim], least: Sequence[int]) -> None:
    """Require minimum spatial sizes; axes are named as in images with channels first.

    The names are thus the same for any layout; a rewrite of the region may have changed the layout.

    Args:
        scope: the function.
        op: the op's name.
        subject: the image with the sizes, for the message.
        sizes: the size of each spatial axis.
        least: the minimum of each size.
    """
    axes = ", ".join("NC" + axis_letters(len(sizes)))
    scope.require_at_least(op, f"{subject} ({axes})", [1, 1, *sizes], [0, 0, *least])


def require_results(scope: FunctionScope, step: Step) -> None:
    """Require the sizes of the results to be 0 or more."""
    for result in step.binding.results:
        shape = shape_of(result)
        scope.require_at_least(step.op, "the result", shape, [0] * len(shape))
