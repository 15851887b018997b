"""Where the extreme element along an axis stands: argmax, argmin. A NaN is more extreme than any number."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope

from byoc_ccompiler.attributes import axis_of, flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axis_view import view_along
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_ELEMENT_PS = 1_000
"""Estimated picoseconds of looking at one element."""

_SIGNS = {"argmax": ">", "argmin": "<"}


def _write(kernel: Kernel) -> None:
    """Writes the kernel: along the axis one step after another, side by side what lies behind it."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    view = view_along(shape_of(x), axis_of(step.binding, len(shape_of(x))))
    source, out = kernel.source(x), kernel.target(step.result)
    run, type_ = view.size * view.inner, c.CType(source.dtype)
    row, place, k = (c.Variable(name) for name in ("row", "place", "k"))
    new, old = c.Variable("new", type_), c.Variable("old", type_)
    come, to = c.Buffer("from", source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    is_better = _is_better(new, old, _SIGNS[step.op], takes_last=flag_of(step.binding, "select_last_index"))
    look = (
        c.Let(new, come[place * view.inner + k]),
        c.Let(old, come[to[k] * view.inner + k]),
        c.If(is_better, (c.Store(to, k, place),)),
    )
    rows = (
        c.Alias(come, source, row * run),
        c.Alias(to, out, row * view.inner),
        c.For(k, c.Size(0), c.Size(view.inner), (c.Store(to, k, c.Size(0)),)),
        c.For(place, c.Size(1), c.Size(view.size), (c.For(k, c.Size(0), c.Size(view.inner), look),)),
    )
    kernel.finish_block(
        (c.For(row, c.Size(0), c.Size(view.outer), rows, kind=c.LoopKind.PARALLEL, round_ps=run * _ELEMENT_PS),)
    )


def _is_better(new: c.Variable, old: c.Variable, sign: str, *, takes_last: bool) -> c.Expression:
    """Return whether an element takes the place of the most extreme one before it."""
    is_better = new.compare(f"{sign}=" if takes_last else sign, old)
    if not new.type.is_float:
        return is_better
    is_nan = new.compare("!=", new)
    return c.Binary("||", is_better, is_nan if takes_last else c.Binary("&&", is_nan, old.compare("==", old)))


def _require(scope: FunctionScope, step: Step) -> None:
    """Has the axis checked to have an element."""
    shape = shape_of(step.operands[0])
    axis = axis_of(step.binding, len(shape))
    scope.require_at_least(step.op, "operand `x`", shape, [int(place == axis) for place in range(len(shape))])


FAMILY = KernelFamily(frozenset(_SIGNS), reject_nothing, _write, require=_require)
"""The places of extreme elements."""
