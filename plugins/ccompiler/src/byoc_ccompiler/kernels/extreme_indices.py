"""The indices of extreme elements along an axis: ``argmax`` and ``argmin``. A NaN is more extreme than any number.

Along contiguous elements, the extreme element is found by vectors (:mod:`~byoc_ccompiler.kernels.row_reducers`), and
then looked for, chunk by chunk. Along another axis, blocks of lines are compared side by side, values and indices.
"""

from __future__ import annotations

from functools import cache

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.attributes import flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axes import AxisView, require_along, view_of
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.row_reducers import row_function
from byoc_ccompiler.rejections import reject_nothing

__all__ = ["FAMILY"]

_REDUCTIONS = {"argmax": "max", "argmin": "min"}
_SIGNS = {"argmax": ">", "argmin": "<"}

_CHUNK, _LINES = 64, 256
"""Elements compared before looking at the results; lines compared side by side."""

_START = c.Size(0)


def _write(kernel: Kernel) -> None:
    """Write the kernel: the loop over the parts of the operand before the axis."""
    (step,) = kernel.group.steps
    view, source, out = view_of(step), kernel.source(step.operands[0]), kernel.target(step.result)
    from_, to = c.Buffer("from", source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    takes_last, row = flag_of(step.binding, "select_last_index"), c.Variable("row")
    if view.inner == 1:
        search = _along_row(kernel, step.op, view, from_, to, takes_last=takes_last)
    else:
        search = _across_rows(step.op, view, from_, to, takes_last=takes_last)
    pointers = (c.Alias(from_, source, row * (view.size * view.inner)), c.Alias(to, out, row * view.inner))
    kernel.finish_block(loops_around((*pointers, *search), [row], [view.outer], part=0))


def _along_row(kernel: Kernel, op: str, view: AxisView, from_: c.Buffer, to: c.Buffer, *, takes_last: bool) -> c.Block:
    """Return the statements finding the extreme element of a contiguous row, and then the index."""
    reduce = kernel.shared_function(row_function(_REDUCTIONS[op], from_.dtype, kernel.unit.nbytes))
    find = kernel.shared_function(_find_function(from_.dtype, takes_last=takes_last))
    extreme, first, count = c.Variable("extreme", c.CType(from_.dtype)), c.Address(from_, _START), c.Size(view.size)
    return (
        c.Let(extreme, c.Call(reduce, (first, count), extreme.type)),
        c.Store(to, _START, c.Call(find, (first, count, extreme), c.INDEX)),
    )


@cache
def _find_function(dtype: str, *, takes_last: bool) -> c.Function:
    """Return the function ``(const T *x, int64_t count, T value)``: the first or last index of a value of the row.

    If the row has a NaN, the index of the first or last NaN.
    """
    x, count, value = c.Buffer("x", dtype), c.Variable("count"), c.Variable("value", c.CType(dtype))
    first, k, hits = c.Variable("first"), c.Variable("k"), c.Variable("hits", c.CType("int32"))

    def is_hit(index: c.Expression) -> tuple[c.Let, c.Expression]:
        element = c.Variable("element", value.type)
        is_equal = element.compare("==", value)
        if value.type.is_float:
            is_equal = c.Binary("|", is_equal, element.compare("!=", element))
        return c.Let(element, x[index]), is_equal

    def offset_of(index: c.Expression) -> c.Expression:
        return count - 1 - index if takes_last else index

    declared, is_equal = is_hit(offset_of(k))
    look = (declared, c.If(is_equal, (c.Return(offset_of(k)),)))
    declared, is_equal = is_hit(offset_of(first + k))
    add = (declared, c.Assign(hits, c.Binary("|", hits, c.Cast(is_equal, hits.type))))
    chunk: c.Block = (
        c.Declare(hits, c.Literal(0, hits.type)),
        c.For(k, _START, c.Size(_CHUNK), add),
        c.If(hits.compare("!=", 0), (c.For(k, first, first + _CHUNK, look),)),
    )
    body = (
        c.For(first, _START, count - (_CHUNK - 1), chunk, step=_CHUNK),
        c.For(k, count // _CHUNK * _CHUNK, count, look),
        c.Return(_START),
    )
    name = f"{'last' if takes_last else 'first'}_index_{c_suffix(dtype)}"
    return c.Function(name, (x, count, value), body, c.INDEX)


def _across_rows(op: str, view: AxisView, from_: c.Buffer, to: c.Buffer, *, takes_last: bool) -> c.Block:
    """Return the statements finding the indices of blocks of lines, side by side."""
    is_narrow = isinstance(view.size, int) and view.size < 2**31 and dtype_info(from_.dtype).itemsize <= 4
    lines = min(_LINES, view.inner) if isinstance(view.inner, int) else _LINES
    lines = max(lines, 1)
    type_, index_type = c.CType(from_.dtype), c.CType("int32" if is_narrow else "int64")
    extremes = c.Buffer("extremes", from_.dtype, c.MemoryAccess.WRITE, lines)
    found = c.Buffer("found", index_type.dtype, c.MemoryAccess.WRITE, lines)
    first, count, index, k = c.Variable("first"), c.Variable("count"), c.Variable("index"), c.Variable("k")
    new, old, is_next = c.Variable("new", type_), c.Variable("old", type_), c.Variable("is_next", c.BOOL)
    is_better = new.compare(f"{_SIGNS[op]}=" if takes_last else _SIGNS[op], old)
    if type_.is_float:
        is_nan, is_number = new.compare("!=", new), old.compare("==", old)
        is_better = c.Binary("|", is_better, is_nan if takes_last else c.Binary("&", is_nan, is_number))

    def each(*body: c.Statement) -> c.For:
        return c.For(k, _START, count, body, kind=c.LoopKind.VECTOR)

    number = index if index_type == c.INDEX else c.Cast(index, index_type)
    look = each(
        c.Let(new, from_[index * view.inner + first + k]),
        c.Let(old, extremes[k]),
        c.Let(is_next, is_better),
        c.Store(extremes, k, c.Select(is_next, new, old)),
        c.Store(found, k, c.Select(is_next, number, found[k])),
    )
    start = each(c.Store(extremes, k, from_[first + k]), c.Store(found, k, c.Literal(0, index_type)))
    finish = each(c.Store(to, first + k, found[k] if index_type == c.INDEX else c.Cast(found[k], c.INDEX)))
    body = (
        c.Let(count, c.index_min(view.inner - first, lines)),
        *(c.LocalArray(array, alignment=64) for array in (extremes, found)),
        start,
        c.For(index, c.Size(1), c.Size(view.size), (look,)),
        finish,
    )
    return (c.For(first, _START, c.Size(view.inner), body, step=lines),)


FAMILY = KernelFamily(
    frozenset(_SIGNS), reject_nothing, _write, require=lambda scope, step: require_along(scope, step, 1)
)
"""The indices of extreme elements."""
