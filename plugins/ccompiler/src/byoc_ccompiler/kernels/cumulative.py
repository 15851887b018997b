"""Ops that combine each element with all before it along an axis: cumsum, cumprod."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from byoc_core.authoring.c import (
    Alias,
    Buffer,
    CType,
    Expression,
    For,
    Let,
    Literal,
    LoopKind,
    MemoryAccess,
    Size,
    Store,
    Variable,
)
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

    combine: Callable[[Expression, Expression], Expression]
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
    row = Variable("row")
    come, to = Buffer("from", source.dtype), Buffer("to", out.dtype, MemoryAccess.WRITE)

    def steps(first: int, end: Dim, element: Callable[[Expression, Expression], Expression]) -> For:
        place, here, before, k = (Variable(name) for name in ("place", "here", "before", "k"))
        along = (
            Let(here, (Size(view.size - 1) - place if is_reverse else place) * view.inner),
            Let(before, here + view.inner if is_reverse else here - view.inner),
            For(k, Size(0), Size(view.inner), (Store(to, here + k, element(here + k, before + k)),)),
        )
        return For(place, Size(first), Size(end), along)

    def new(here: Expression, before: Expression) -> Expression:
        return come[before if is_exclusive else here]

    def neutral(here: Expression, before: Expression) -> Expression:
        return Literal(operation.neutral, CType(out.dtype))

    # The first element is alone: a total of nothing and of -0.0 would lose the sign.
    alone = [neutral, new] if is_exclusive else [new]
    rows = (
        Alias(come, source, row * run),
        Alias(to, out, row * run),
        *(steps(number, dim_min(number + 1, view.size), value) for number, value in enumerate(alone)),
        steps(len(alone), view.size, lambda here, before: operation.combine(to[before], new(here, before))),
    )
    kernel.finish_block((For(row, Size(0), Size(view.outer), rows, kind=LoopKind.PARALLEL, round_ps=run * _STEP_PS),))


FAMILY = KernelFamily(frozenset(_OPERATIONS), reject_nothing, _write)
"""Cumulative sums and products."""
