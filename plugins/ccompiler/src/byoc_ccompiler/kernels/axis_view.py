"""A tensor as lines along one axis, and scratch memory for whoever works on one line at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from byoc_core.authoring.c import Alias, Block, Buffer, Expression, For, LoopKind, MemoryAccess, Size, Variable
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, dim_min, product

from byoc_ccompiler.attributes import axis_of
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["MAX_WORKERS", "AxisView", "line_loop", "require_along", "share_ps", "view_along", "view_of"]

MAX_WORKERS = 32
"""Lines that have scratch memory at once."""


class AxisView(NamedTuple):
    """The sizes of a row-major tensor before an axis, of the axis, and behind it."""

    outer: Dim
    size: Dim
    inner: Dim

    def start(self, line: Expression) -> Expression:
        """Return the offset of a line's first element."""
        return line // self.inner * (self.size * self.inner) + line % self.inner


def view_along(shape: Sequence[Dim], axis: int) -> AxisView:
    """Return the sizes of a shape around one of its axes, counted from the front."""
    return AxisView(product(shape[:axis]), shape[axis], product(shape[axis + 1 :]))


def view_of(step: Step) -> AxisView:
    """Return the sizes of a step's first operand around the axis of its attribute."""
    shape = shape_of(step.operands[0])
    return view_along(shape, axis_of(step.binding, len(shape)))


def require_along(scope: FunctionScope, step: Step, least: Dim) -> None:
    """Have the axis of a step's first operand checked to have so many elements."""
    shape = shape_of(step.operands[0])
    sizes: list[Dim] = [0] * len(shape)
    sizes[axis_of(step.binding, len(shape))] = least
    scope.require_at_least(step.op, "operand `x`", shape, sizes)


def line_loop(
    kernel: Kernel, body: Callable[[Expression, Buffer], Block], count: Dim, line_ps: Dim, *, scratch: Dim, dtype: str
) -> For:
    """Return the loop over lines that each need scratch memory, which a few of them share one after another.

    ``body`` returns the statements that do a line, for its number and its memory of ``scratch`` elements.
    """
    workers = dim_min(count, MAX_WORKERS)
    memory = kernel.scratch_memory(workers * scratch, dtype)
    worker, line, mine = Variable("worker"), Variable("line"), Buffer("mine", dtype, MemoryAccess.WRITE)
    # Fewer workers have one line each.
    lines = For(line, worker, Size(count), body(line, mine), step=MAX_WORKERS)
    share = (Alias(mine, memory, worker * scratch), lines)
    return For(worker, Size(0), Size(workers), share, kind=LoopKind.PARALLEL, round_ps=share_ps(count, line_ps))


def share_ps(count: Dim, line_ps: Dim) -> Dim:
    """Return estimated picoseconds of the lines that share scratch memory."""
    # Where their number shows only in a call, a worker is taken to have one line: that decides for threads too late.
    return line_ps if not isinstance(count, int) else line_ps * max(count // MAX_WORKERS, 1)
