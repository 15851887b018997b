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
    Select,
    Size,
    Store,
    Variable,
)

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
    row, place, here, before, k = (Variable(name) for name in ("row", "place", "here", "before", "k"))
    come, to = Buffer("from", source.dtype), Buffer("to", out.dtype, MemoryAccess.WRITE)
    new: Expression = come[(before if is_exclusive else here) + k]
    total = operation.combine(to[before + k], new)
    if is_exclusive:
        total = Select(place.compare("==", 1), new, total)
        new = Literal(operation.neutral, CType(out.dtype))
    total = Select(place.compare("==", 0), new, total)
    steps = (
        Let(here, (Size(view.size - 1) - place if is_reverse else place) * view.inner),
        Let(before, here + view.inner if is_reverse else here - view.inner),
        For(k, Size(0), Size(view.inner), (Store(to, here + k, total),)),
    )
    rows = (
        Alias(come, source, row * run),
        Alias(to, out, row * run),
        For(place, Size(0), Size(view.size), steps),
    )
    kernel.finish_block((For(row, Size(0), Size(view.outer), rows, kind=LoopKind.PARALLEL, round_ps=run * _STEP_PS),))


FAMILY = KernelFamily(frozenset(_OPERATIONS), reject_nothing, _write)
"""Cumulative sums and products."""
