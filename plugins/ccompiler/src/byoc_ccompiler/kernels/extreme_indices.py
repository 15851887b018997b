"""The indices of extreme elements along an axis: ``argmax`` and ``argmin``. A NaN is more extreme than any number.

Along many contiguous elements, the extreme element is found by vectors
(:mod:`~byoc_ccompiler.kernels.row_reducers`), and then looked for, chunk by chunk. Otherwise lines are compared side by
side, values and indices: neighbouring lines if there are many, or the same line of several short rows. A few lines of
long rows are compared element by element.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim
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
"""Elements compared before looking at the results; neighbouring lines compared side by side."""

_ROWS, _LEAST_ROWS, _FEW_LINES = range(64, 128, 8), 16, 16
"""Numbers of rows compared side by side; fewer rows, or more lines of a row, are compared otherwise."""

_PAIR, _SHORT_ROW, _LONG_ROW, _LONG_ROW_OF_LINES = 2, 127, 256, 4096
"""Maximum elements: of pairs, of short rows of integers, and of rows compared side by side, with one line and more."""

_FAR_NBYTES = 128
"""Distances of rows, in bytes: powers of two from this distance on are too far for comparisons side by side."""

_START = c.Size(0)


def _write(kernel: Kernel) -> None:
    """Write the kernel: the loop over the parts of the operand before the axis."""
    (step,) = kernel.group.steps
    view, source, out = view_of(step), kernel.source(step.operands[0]), kernel.target(step.result)
    from_, to = c.Buffer("from", source.dtype), c.Buffer("to", out.dtype, c.MemoryAccess.WRITE)
    comparison = _Comparison(step.op, takes_last=flag_of(step.binding, "select_last_index"))
    row, rows = c.Variable("row"), 1
    if _has_short_rows(view, source.dtype):
        rows = _row_count(view.outer)
        search = _down_rows(comparison, view, from_, to, c.index_min(view.outer - row * rows, rows), rows)
    elif _is_small(view, source.dtype):
        search = _element_by_element(comparison, view, from_, to)
    elif view.inner == 1:
        search = _along_row(kernel, comparison, view, from_, to)
    else:
        search = _across_rows(comparison, view, from_, to)
    origin, target = row * (rows * view.size * view.inner), row * (rows * view.inner)
    pointers = (c.Alias(from_, source, origin), c.Alias(to, out, target))
    kernel.finish_block(loops_around((*pointers, *search), [row], [(view.outer + (rows - 1)) // rows], part=0))


def _has_few_lines(view: AxisView) -> bool:
    return isinstance(view.inner, int) and view.inner < _FEW_LINES


def _is_small(view: AxisView, dtype: str) -> bool:
    """Return whether each row is compared element by element: a pair, a short row of integers, or a few lines."""
    if view.inner == 1:
        return isinstance(view.size, int) and view.size <= (_PAIR if c.CType(dtype).is_float else _SHORT_ROW)
    return _has_few_lines(view) and not _fills_vectors(view)


def _fills_vectors(view: AxisView) -> bool:
    """Return whether the few lines of a row are compared in fewer rounds than the rows have lines."""
    return isinstance(view.size, int) and isinstance(view.inner, int) and 2 <= view.size <= view.inner // 2


def _has_short_rows(view: AxisView, dtype: str) -> bool:
    """Return whether the same line of several rows is compared side by side.

    As measured, rows at distances of a large power of two are slower side by side, and integers are faster element by
    element.
    """
    if not c.CType(dtype).is_float:
        return False
    if not (isinstance(view.size, int) and isinstance(view.inner, int)) or _fills_vectors(view):
        return False
    if not _has_few_lines(view) or (isinstance(view.outer, int) and view.outer < _LEAST_ROWS):
        return False
    run = view.size * view.inner
    is_power = run * dtype_info(dtype).itemsize >= _FAR_NBYTES and run & (run - 1) == 0
    return _PAIR < run <= (_LONG_ROW if view.inner == 1 else _LONG_ROW_OF_LINES) and not is_power


def _row_count(rows: Dim) -> int:
    """Return the number of rows compared side by side: not a divisor of all rows.

    The last block is smaller, so that C compilers do not know the number. If gcc knows the number, comparisons take up
    to ten times longer.
    """
    return next((count for count in _ROWS if not isinstance(rows, int) or rows % count), _ROWS.start)


class _Comparison(NamedTuple):
    """The comparison of an element with the extreme element of all before."""

    op: str
    takes_last: bool

    def is_better(self, new: c.Variable, old: c.Variable, either: str = "|", both: str = "&") -> c.Expression:
        """Return whether an element is more extreme than the extreme element of all before.

        Branches are written with the operators ``||`` and ``&&``.
        """
        is_better = new.compare(f"{_SIGNS[self.op]}=" if self.takes_last else _SIGNS[self.op], old)
        if not new.type.is_float:
            return is_better
        is_nan, is_number = new.compare("!=", new), old.compare("==", old)
        return c.Binary(either, is_better, is_nan if self.takes_last else c.Binary(both, is_nan, is_number))


def _along_row(kernel: Kernel, comparison: _Comparison, view: AxisView, from_: c.Buffer, to: c.Buffer) -> c.Block:
    """Return the statements finding the extreme element of a contiguous row, and then the index."""
    reduce = kernel.shared_function(row_function(_REDUCTIONS[comparison.op], from_.dtype, kernel.unit.nbytes))
    find = kernel.shared_function(_find_function(from_.dtype, takes_last=comparison.takes_last))
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


def _element_by_element(comparison: _Comparison, view: AxisView, from_: c.Buffer, to: c.Buffer) -> c.Block:
    """Return the statements comparing each element with the extreme element of its line found before."""
    new, old = (c.Variable(name, c.CType(from_.dtype)) for name in ("new", "old"))
    index, k, lines = c.Variable("index"), c.Variable("k"), [view.inner]
    look = (
        c.Let(new, from_[index * view.inner + k]),
        c.Let(old, from_[to[k] * view.inner + k]),
        c.If(comparison.is_better(new, old, "||", "&&"), (c.Store(to, k, index),)),
    )
    starts = loops_around((c.Store(to, k, _START),), [k], lines)
    return (*starts, c.For(index, c.Size(1), c.Size(view.size), loops_around(look, [k], lines)))


class _Lines(NamedTuple):
    """Lines compared side by side."""

    first: c.Variable
    """The offset of the first line, in the operand's row and in the result's."""
    number: c.Expression
    most: int
    """The number of lines, and its maximum."""
    stride: Dim = 1
    target_stride: Dim = 1
    """Distances of neighbouring lines in the operand and in the result."""


def _across_rows(comparison: _Comparison, view: AxisView, from_: c.Buffer, to: c.Buffer) -> c.Block:
    """Return the statements finding the indices of blocks of neighbouring lines, side by side."""
    most = max(min(_LINES, view.inner) if isinstance(view.inner, int) else _LINES, 1)
    first = c.Variable("first")
    lines = _Lines(first, c.index_min(view.inner - first, most), most)
    return (c.For(first, _START, c.Size(view.inner), _side_by_side(comparison, view, from_, to, lines), step=most),)


def _down_rows(
    comparison: _Comparison, view: AxisView, from_: c.Buffer, to: c.Buffer, count: c.Expression, most: int
) -> c.Block:
    """Return the statements finding the indices of several short rows, the same line of all rows side by side."""
    line = c.Variable("line")
    lines = _Lines(line, count, most, view.size * view.inner, view.inner)
    return loops_around(_side_by_side(comparison, view, from_, to, lines), [line], [view.inner])


def _side_by_side(comparison: _Comparison, view: AxisView, from_: c.Buffer, to: c.Buffer, lines: _Lines) -> c.Block:
    """Return the statements finding the indices of some lines at once."""
    is_narrow = isinstance(view.size, int) and view.size < 2**31 and dtype_info(from_.dtype).itemsize <= 4
    type_, index_type = c.CType(from_.dtype), c.CType("int32" if is_narrow else "int64")
    extremes = c.Buffer("extremes", from_.dtype, c.MemoryAccess.WRITE, lines.most)
    found = c.Buffer("found", index_type.dtype, c.MemoryAccess.WRITE, lines.most)
    count, index, k = c.Variable("count"), c.Variable("index"), c.Variable("k")
    new, old, is_next = c.Variable("new", type_), c.Variable("old", type_), c.Variable("is_next", c.BOOL)
    origin, target = lines.first + k * lines.stride, lines.first + k * lines.target_stride

    def each(*body: c.Statement) -> c.For:
        return c.For(k, _START, count, body, kind=c.LoopKind.VECTOR)

    number = index if index_type == c.INDEX else c.Cast(index, index_type)
    look = each(
        c.Let(new, from_[index * view.inner + origin]),
        c.Let(old, extremes[k]),
        c.Let(is_next, comparison.is_better(new, old)),
        c.Store(extremes, k, c.Select(is_next, new, old)),
        c.Store(found, k, c.Select(is_next, number, found[k])),
    )
    return (
        c.Let(count, lines.number),
        *(c.LocalArray(array, alignment=64) for array in (extremes, found)),
        each(c.Store(extremes, k, from_[origin]), c.Store(found, k, c.Literal(0, index_type))),
        c.For(index, c.Size(1), c.Size(view.size), (look,)),
        each(c.Store(to, target, found[k] if index_type == c.INDEX else c.Cast(found[k], c.INDEX))),
    )


FAMILY = KernelFamily(
    frozenset(_SIGNS), reject_nothing, _write, require=lambda scope, step: require_along(scope, step, 1)
)
"""The indices of extreme elements."""
