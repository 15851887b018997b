"""Tensors as lines along an axis; and the ops combining each element with all before.

``cumsum`` and ``cumprod`` combine each element with all earlier elements, the elements behind the axis side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, dim_min, product

from byoc_ccompiler.attributes import axis_of, flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.pointwise import element_product, element_sum
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY", "MAX_WORKERS", "AxisView", "require_along", "view_along", "view_of", "write_lines"]

MAX_WORKERS = 32
"""Maximum lines with scratch memory at once."""

_TOTALS = {"cumsum": (element_sum, 0), "cumprod": (element_product, 1)}
"""The combination of elements, and the value for no elements."""


class AxisView(NamedTuple):
    """The sizes of a row-major tensor before, along and behind an axis."""

    outer: Dim
    size: Dim
    inner: Dim

    def start(self, line: c.Expression) -> c.Expression:
        """Return the offset of a line's first element."""
        return line // self.inner * (self.size * self.inner) + line % self.inner


def view_along(shape: Sequence[Dim], axis: int) -> AxisView:
    """Return the sizes of a shape around an axis, counted from the front."""
    return AxisView(product(shape[:axis]), shape[axis], product(shape[axis + 1 :]))


def view_of(step: Step) -> AxisView:
    """Return the sizes of a step's first operand around the axis given by the attribute."""
    shape = shape_of(step.operands[0])
    return view_along(shape, axis_of(step.binding, len(shape)))


def require_along(scope: FunctionScope, step: Step, least: Dim) -> None:
    """Require at least ``least`` elements on the axis of a step's first operand."""
    shape = shape_of(step.operands[0])
    sizes: list[Dim] = [0] * len(shape)
    sizes[axis_of(step.binding, len(shape))] = least
    scope.require_at_least(step.op, "operand `x`", shape, sizes)


def write_lines(
    kernel: Kernel,
    body: Callable[[c.Expression, c.Buffer], c.Block],
    *,
    scratch: Dim,
    dtype: str,
    line_ps: Dim | None = None,
) -> None:
    """Write a kernel with scratch memory for some lines at a time; later lines reuse the memory of earlier lines.

    ``body`` returns the statements of a line, from the line's number and the memory of ``scratch`` elements;
    ``line_ps`` are the picoseconds of a line with data-dependent loops.
    """
    (step,) = kernel.group.steps
    view, is_empty = view_of(step), product(shape_of(step.binding.results[0])) == 0
    if is_empty:
        kernel.finish_block(())
        return
    count = view.outer * view.inner
    most_workers = MAX_WORKERS if kernel.unit.has_vectors else 1
    workers = dim_min(count, most_workers)
    memory = kernel.scratch_memory(workers * scratch, dtype)
    worker, line, line_memory = (
        c.Variable("worker"),
        c.Variable("line"),
        c.Buffer("line_memory", dtype, c.MemoryAccess.WRITE),
    )
    # If there are fewer workers, each has one line.
    lines = c.For(line, worker, c.Size(count), body(line, line_memory), step=most_workers)
    share = (c.Alias(line_memory, memory, worker * scratch), lines)
    # For a number of lines known only in a call, a worker is assumed to have one line: a late choice of threads.
    most = max(count // most_workers, 1) if isinstance(count, int) else 1
    round_ps = None if line_ps is None else line_ps * most
    kernel.finish_block((c.For(worker, c.Size(0), c.Size(workers), share, 1, c.LoopKind.PARALLEL, 1, round_ps),))


def _write(kernel: Kernel) -> None:
    """Write the kernel: the loop over the parts of the operand before the axis."""
    (step,) = kernel.group.steps
    view, source, out = view_of(step), kernel.source(step.operands[0]), kernel.target(step.result)
    from_, to = c.Buffer("from", source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    row, run = c.Variable("row"), view.size * view.inner
    body = (c.Alias(from_, source, row * run), c.Alias(to, out, row * run), *_cumulative(step, view, from_, to))
    kernel.finish_block(loops_around(body, [row], [view.outer], part=0))


def _cumulative(step: Step, view: AxisView, from_: c.Buffer, to: c.Buffer) -> c.Block:
    """Return the statements of a cumulative sum or product."""
    is_exclusive, is_reverse = flag_of(step.binding, "exclusive"), flag_of(step.binding, "reverse")
    combine, start = _TOTALS[step.op]
    index, current, before, k = map(c.Variable, ("index", "current", "before", "k"))
    new = from_[(before if is_exclusive else current) + k]
    # The first element is alone: a total of nothing and of -0.0 would lose the sign.
    alone: list[c.Expression] = [c.Literal(start, c.CType(to.dtype)), new] if is_exclusive else [new]
    ends = [*(dim_min(number + 1, view.size) for number in range(len(alone))), view.size]
    block: c.Block = ()
    for number, (end, value) in enumerate(zip(ends, (*alone, combine(to[before + k], new)), strict=True)):
        along = (
            c.Let(current, (c.Size(view.size - 1) - index if is_reverse else index) * view.inner),
            c.Let(before, current + view.inner if is_reverse else current - view.inner),
            c.For(k, c.Size(0), c.Size(view.inner), (c.Store(to, current + k, value),)),
        )
        block += (c.For(index, c.Size(number), c.Size(end), along),)
    return block


FAMILY = KernelFamily(frozenset(_TOTALS), reject_nothing, _write)
"""Cumulative sums and products."""
