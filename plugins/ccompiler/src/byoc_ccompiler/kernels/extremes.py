"""Where the extreme element along an axis stands: argmax, argmin. A NaN is more extreme than any number."""

from __future__ import annotations

from byoc_core.authoring.c import (
    Alias,
    Binary,
    Buffer,
    CType,
    Expression,
    For,
    If,
    Let,
    LoopKind,
    MemoryAccess,
    Size,
    Store,
    Variable,
)
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
    run, type_ = view.size * view.inner, CType(source.dtype)
    row, place, k = (Variable(name) for name in ("row", "place", "k"))
    new, old = Variable("new", type_), Variable("old", type_)
    come, to = Buffer("from", source.dtype), Buffer("to", out.dtype, MemoryAccess.WRITE)
    is_better = _is_better(new, old, _SIGNS[step.op], takes_last=flag_of(step.binding, "select_last_index"))
    look = (
        Let(new, come[place * view.inner + k]),
        Let(old, come[to[k] * view.inner + k]),
        If(is_better, (Store(to, k, place),)),
    )
    rows = (
        Alias(come, source, row * run),
        Alias(to, out, row * view.inner),
        For(k, Size(0), Size(view.inner), (Store(to, k, Size(0)),)),
        For(place, Size(1), Size(view.size), (For(k, Size(0), Size(view.inner), look),)),
    )
    kernel.finish_block(
        (For(row, Size(0), Size(view.outer), rows, kind=LoopKind.PARALLEL, round_ps=run * _ELEMENT_PS),)
    )


def _is_better(new: Variable, old: Variable, sign: str, *, takes_last: bool) -> Expression:
    """Return whether an element takes the place of the most extreme one before it."""
    is_better = new.compare(f"{sign}=" if takes_last else sign, old)
    if not new.type.is_float:
        return is_better
    is_nan = new.compare("!=", new)
    return Binary("||", is_better, is_nan if takes_last else Binary("&&", is_nan, old.compare("==", old)))


def _require(scope: FunctionScope, step: Step) -> None:
    """Has the axis checked to have an element."""
    shape = shape_of(step.operands[0])
    axis = axis_of(step.binding, len(shape))
    scope.require_at_least(step.op, "operand `x`", shape, [int(place == axis) for place in range(len(shape))])


FAMILY = KernelFamily(frozenset(_SIGNS), reject_nothing, _write, require=_require)
"""The places of extreme elements."""
