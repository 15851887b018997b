"""Ops that combine each element with all before it along an axis: cumsum, cumprod."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from byoc_core.authoring import c
from byoc_core.dims import Dim, dim_min

from byoc_ccompiler.attributes import axis_of, flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.arithmetic import element_product, element_sum
from byoc_ccompiler.kernels.axis_view import view_along
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import shape_of

__all__ = ["FAMILY"]

_STEP_PS = 1_000
"""Estimated picoseconds to combine one element with a total that waits for the one before."""


class _Operation(NamedTuple):
    """How elements are combined, and what no element comes to."""

    combine: Callable[[c.Expression, c.Expression], c.Expression]
    neutral: int


_OPERATIONS = {"cumsum": _Operation(element_sum, 0), "cumprod": _Operation(element_product, 1)}


def _write(kernel: Kernel) -> None:
    """Writes the kernel: along the axis one step after another, side by side what lies behind it."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    source, out = kernel.source(x), kernel.target(step.result)
    is_exclusive, is_reverse = flag_of(step.binding, "exclusive"), flag_of(step.binding, "reverse")
    operation, run = _OPERATIONS[step.op], view.size * view.inner
    row = c.Variable("row")
    come, to = c.Buffer("from", source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)

    def steps(first: int, end: Dim, element: Callable[[c.Expression, c.Expression], c.Expression]) -> c.For:
        place, here, before, k = (c.Variable(name) for name in ("place", "here", "before", "k"))
        along = (
            c.Let(here, (c.Size(view.size - 1) - place if is_reverse else place) * view.inner),
            c.Let(before, here + view.inner if is_reverse else here - view.inner),
            c.For(k, c.Size(0), c.Size(view.inner), (c.Store(to, here + k, element(here + k, before + k)),)),
        )
        return c.For(place, c.Size(first), c.Size(end), along)

    def new(here: c.Expression, before: c.Expression) -> c.Expression:
        return come[before if is_exclusive else here]

    def neutral(here: c.Expression, before: c.Expression) -> c.Expression:
        return c.Literal(operation.neutral, c.CType(out.dtype))

    # The first element is alone: a total of nothing and of -0.0 would lose the sign.
    alone = [neutral, new] if is_exclusive else [new]
    rows = (
        c.Alias(come, source, row * run),
        c.Alias(to, out, row * run),
        *(steps(number, dim_min(number + 1, view.size), value) for number, value in enumerate(alone)),
        steps(len(alone), view.size, lambda here, before: operation.combine(to[before], new(here, before))),
    )
    kernel.finish_block(
        (c.For(row, c.Size(0), c.Size(view.outer), rows, kind=c.LoopKind.PARALLEL, round_ps=run * _STEP_PS),)
    )


FAMILY = KernelFamily(frozenset(_OPERATIONS), reject_nothing, _write)
"""Cumulative sums and products."""
