"""Ops that go along an axis one step after another, and side by side over what lies behind it.

``cumsum`` and ``cumprod`` combine each element with all before it. ``argmax`` and ``argmin`` find where the extreme
element stands: a NaN is more extreme than any number.
"""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring import c
from byoc_core.dims import Dim, dim_min

from byoc_ccompiler.attributes import flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import AxisView, require_along, view_of
from byoc_ccompiler.kernels.pointwise import element_product, element_sum
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step

__all__ = ["FAMILIES"]

_ELEMENT_PS = 1_000
"""Estimated picoseconds of one element, which waits for the one before."""

_TOTALS = {"cumsum": (element_sum, 0), "cumprod": (element_product, 1)}
"""How elements are combined, and what no element comes to."""

_SIGNS = {"argmax": ">", "argmin": "<"}


def _write(kernel: Kernel) -> None:
    """Write the kernel: the loop over the parts of the operand before the axis."""
    (step,) = kernel.group.steps
    view, source, out = view_of(step), kernel.source(step.operands[0]), kernel.target(step.result)
    come, to = c.Buffer("from", source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    row, run = c.Variable("row"), view.size * view.inner
    scan, size = (_cumulative, run) if step.op in _TOTALS else (_extreme, view.inner)
    body = (c.Alias(come, source, row * run), c.Alias(to, out, row * size), *scan(step, view, come, to))
    rows = c.For(row, c.Size(0), c.Size(view.outer), body, kind=c.LoopKind.PARALLEL, round_ps=run * _ELEMENT_PS)
    kernel.finish_block((rows,))


def _cumulative(step: Step, view: AxisView, come: c.Buffer, to: c.Buffer) -> c.Block:
    """Return the statements of a cumulative sum or product."""
    is_exclusive, is_reverse = flag_of(step.binding, "exclusive"), flag_of(step.binding, "reverse")
    combine, start = _TOTALS[step.op]

    def steps(first: int, end: Dim, element: Callable[[c.Expression, c.Expression], c.Expression]) -> c.For:
        place, here, before, k = map(c.Variable, ("place", "here", "before", "k"))
        along = (
            c.Let(here, (c.Size(view.size - 1) - place if is_reverse else place) * view.inner),
            c.Let(before, here + view.inner if is_reverse else here - view.inner),
            c.For(k, c.Size(0), c.Size(view.inner), (c.Store(to, here + k, element(here + k, before + k)),)),
        )
        return c.For(place, c.Size(first), c.Size(end), along)

    def new(here: c.Expression, before: c.Expression) -> c.Expression:
        return come[before if is_exclusive else here]

    def neutral(here: c.Expression, before: c.Expression) -> c.Expression:
        return c.Literal(start, c.CType(to.dtype))

    # The first element is alone: a total of nothing and of -0.0 would lose the sign.
    alone = [neutral, new] if is_exclusive else [new]
    return (
        *(steps(number, dim_min(number + 1, view.size), value) for number, value in enumerate(alone)),
        steps(len(alone), view.size, lambda here, before: combine(to[before], new(here, before))),
    )


def _extreme(step: Step, view: AxisView, come: c.Buffer, to: c.Buffer) -> c.Block:
    """Return the statements that find the places of extreme elements."""
    new, old = (c.Variable(name, c.CType(come.dtype)) for name in ("new", "old"))
    place, k = c.Variable("place"), c.Variable("k")
    takes_last, sign = flag_of(step.binding, "select_last_index"), _SIGNS[step.op]
    is_better = new.compare(f"{sign}=" if takes_last else sign, old)
    if new.type.is_float:
        is_nan = new.compare("!=", new)
        is_first = is_nan if takes_last else c.Binary("&&", is_nan, old.compare("==", old))
        is_better = c.Binary("||", is_better, is_first)
    look = (
        c.Let(new, come[place * view.inner + k]),
        c.Let(old, come[to[k] * view.inner + k]),
        c.If(is_better, (c.Store(to, k, place),)),
    )
    return (
        c.For(k, c.Size(0), c.Size(view.inner), (c.Store(to, k, c.Size(0)),)),
        c.For(place, c.Size(1), c.Size(view.size), (c.For(k, c.Size(0), c.Size(view.inner), look),)),
    )


FAMILIES = (
    KernelFamily(frozenset(_TOTALS), reject_nothing, _write),
    KernelFamily(frozenset(_SIGNS), reject_nothing, _write, require=lambda scope, step: require_along(scope, step, 1)),
)
"""Cumulative sums and products; the places of extreme elements."""
