"""Kernels of reductions and of what is elementwise before, between and after them: every row once through the cache.

A row is what one result of a reduction is made of. Where its elements lie side by side, pieces of it are combined by
vector, and the row's own values are scalars. Where they do not, rows that lie side by side are computed together
(:mod:`~byoc_ccompiler.kernels.row_columns`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Binding, Value, Var

from byoc_ccompiler.family import KernelFamily, rows_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.composites import COMPOSITES, reject_composite
from byoc_ccompiler.kernels.copies import StridedNest, fetch, loops_around
from byoc_ccompiler.kernels.loads import is_moved
from byoc_ccompiler.kernels.row_columns import ColumnWriter
from byoc_ccompiler.kernels.row_reducers import (
    ADD_PIECE,
    PIECE,
    REDUCTIONS,
    SUM_UP,
    cast,
    combined,
    row_function,
    start,
)
from byoc_ccompiler.kernels.row_writer import LONG_NBYTES, Pass, RowWriter, nbytes_of, row_array, row_layouts
from byoc_ccompiler.rejections import operand_type
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["FAMILIES", "write_rows"]

_FETCHED, _FETCH_NBYTES = 128, 1 << 18
"""Elements of the next row that are fetched at a time, and bytes of a row up to which that is done."""

_BLOCK = 1 << 15
"""Elements of a whole tensor that one thread reduces at a time."""

_DOUBLE = c.CType("float64")

_Part = tuple[c.Expression, c.Expression]
"""A part of the innermost loop: its first round, and its end."""


class _Total:
    """The variable in which one reduction of a row is collected.

    Sums of pieces are collected in float64: those of float64 in two numbers, see :data:`ADD_PIECE`. ``declared`` stands
    before the loops.
    """

    def __init__(self, kernel: Kernel, step: Step, *, is_one_piece: bool) -> None:
        self._kernel, self._op, self._is_one_piece = kernel, step.op, is_one_piece
        self._type, name = c.CType(dtype_of(step.operands[0])), f"{step.op}_total"
        is_sum = step.op in ("sum", "mean") and self._type.is_float and not is_one_piece
        self._variable = c.Variable(name, _DOUBLE if is_sum else self._type)
        self._pair: c.Address | None = None
        self.declared: c.Block = ()
        if is_sum and self._type == _DOUBLE:
            self._pair = c.Address(c.Buffer(name, "float64", c.MemoryAccess.WRITE, 2), c.Size(0))
            self.declared = (c.LocalArray(self._pair.buffer, is_zeroed=True),)
        elif not is_one_piece:
            self.declared = (c.Declare(self._variable, start(step.op, self._variable.type.dtype)),)

    def add(self, first: c.Load, count: c.Expression) -> c.Block:
        """Return the statements that add so many elements from one on."""
        function = row_function(self._op, self._type.dtype, self._kernel.unit.nbytes)
        part = c.Call(self._kernel.shared_function(function), (c.Address(first.buffer, first.index), count), self._type)
        return (c.Let(self._variable, part),) if self._is_one_piece else self.combine(part)

    def combine(self, part: c.Expression) -> c.Block:
        """Return the statements that add what a part comes to."""
        if self._pair is not None:
            return (c.Evaluate(c.Call(self._kernel.shared_function(ADD_PIECE), (self._pair, part))),)
        piece = c.Variable("piece", self._variable.type)
        whole = c.Assign(self._variable, combined(self._op, self._variable, piece))
        return (c.Let(piece, cast(part, piece.type.dtype)), whole)

    def value(self) -> c.Expression:
        """Return what was collected, as wide as it was."""
        if self._pair is None:
            return self._variable
        return c.Call(self._kernel.shared_function(SUM_UP), (self._pair,), _DOUBLE)

    def whole(self, count: Dim) -> c.Expression:
        """Return the result of a reduction of so many elements."""
        value = self.value()
        return cast(value / c.Cast(c.Size(count), value.type) if self._op == "mean" else value, self._type.dtype)


class LineWriter(RowWriter):
    """Writes row kernels that go along memory: one row after another, or blocks of a row that is large and alone."""

    def lends(self, result: Var) -> bool:
        """Return whether rows are long: so their memory is in the cache when the result is written."""
        return nbytes_of(result, self.row_size) >= LONG_NBYTES and self._lies_side_by_side(result)

    def _lies_side_by_side(self, key: object) -> bool:
        """Return whether a tensor's elements lie side by side along the innermost loop of a row."""
        return not self.inner.sizes or self.inner.step(key, len(self.inner.sizes) - 1) == (1, None)

    def _fetches(self, ahead: c.Expression) -> c.Block:
        """Return the statements that fetch elements ``ahead`` in the next row of what the first pass reads."""
        if not self.outer.sizes or len(self.inner.sizes) != 1:
            return ()
        depth, after = len(self.outer.sizes) - 1, self.outer.variables[-1] + 1
        places: dict[tuple[c.Buffer, c.Expression], int] = {}
        for key, operand in self.element_operands():
            is_next = self.outer.step(key, depth)[0] != 0 and self._lies_side_by_side(key)
            if is_next and LONG_NBYTES <= nbytes_of(operand, self.row_size) <= _FETCH_NBYTES:
                place = self.kernel.source(operand), self.outer.position(key, last=after)
                places[place] = _FETCHED * dtype_info(dtype_of(operand)).itemsize
        return tuple(fetch(buffer, row + ahead, nbytes) for (buffer, row), nbytes in places.items())

    def write_pass(self, index: int, this: Pass) -> c.Block:
        """Return the statements of one pass; in the second one the next row is fetched."""
        (*outer, size), variables = self.inner.sizes or (1,), self.inner.variables
        is_short = not outer and isinstance(size, int) and size <= PIECE
        totals = {step: _Total(self.kernel, step, is_one_piece=is_short) for step in this.reductions}
        if self._is_in_blocks(this):
            body = self._blocks(this, totals, size)
        else:
            body = self._pieces(this, totals, (c.Size(0), c.Size(size)), is_fetching=index == 1)
            body = loops_around(body, variables[:-1], outer)
        body = (*chain.from_iterable(total.declared for total in totals.values()), *body)
        for step, total in totals.items():
            self.row_values[step.result] = variable = c.Variable(step.result.name, c.CType(dtype_of(step.result)))
            body += (c.Let(variable, total.whole(self.row_size)), *self.row_stores(step.result))
        return body

    def _is_in_blocks(self, this: Pass) -> bool:
        """Return whether all of the tensor is one row so large that threads may share it."""
        is_large = not isinstance(self.row_size, int) or self.row_size >= 2 * _BLOCK
        is_alone = len(self.passes) == 1 and not self.outer.sizes and len(self.inner.sizes) == 1
        return is_large and is_alone and len({dtype_of(step.operands[0]) for step in this.reductions}) == 1

    def _blocks(self, this: Pass, totals: Mapping[Step, _Total], size: Dim) -> c.Block:
        """Return the parallel loop that reduces blocks of a large row, and the loops that reduce their results."""
        blocks, dtype = (size + (_BLOCK - 1)) // _BLOCK, dtype_of(this.reductions[0].operands[0])
        results = self.kernel.scratch_memory(blocks * len(totals), "float64" if c.CType(dtype).is_float else dtype)
        block, end = c.Variable("block"), c.Variable("block_end")
        parts = {step: _Total(self.kernel, step, is_one_piece=False) for step in totals}
        body: c.Block = (c.Let(end, c.index_min(c.Size(size), (block + 1) * _BLOCK)),)
        body += (*chain.from_iterable(part.declared for part in parts.values()),)
        body += self._pieces(this, parts, (block * _BLOCK, end))
        loads: c.Block = ()
        for index, (step, total) in enumerate(totals.items()):
            result = results[c.Size(blocks * index) + block]
            body += (c.Store(results, result.index, cast(parts[step].value(), results.dtype)),)
            loads += loops_around(total.combine(result), [block], [blocks])
        return (*loops_around(body, [block], [blocks], part=0, round_ps=_BLOCK * self.element_ps), *loads)

    def _pieces(self, this: Pass, totals: Mapping[Step, _Total], part: _Part, *, is_fetching: bool = False) -> c.Block:
        """Return one walk along the innermost loop of a pass, in pieces where it is not known to be short.

        A piece is a loop over elements, and calls that reduce them where they lie.
        """
        count, bounds = part[1] - part[0], (c.Variable("first"), c.Variable("end"))
        length = count.dim if isinstance(count, c.Size) and isinstance(count.dim, int) else PIECE + 1
        first, end = part if length <= PIECE else bounds
        body, known = self.element_body(this)
        variable = self.inner.variables[-1] if self.inner.variables else c.Variable("r")
        calls: c.Block = ()
        tiles: dict[Value, c.LocalArray] = {}
        for step, total in totals.items():
            element, operand = self._side_by_side(step), step.operands[0]
            if element is None and operand not in tiles:
                tiles[operand] = row_array("piece", dtype_of(operand), min(length, PIECE))
                body += (c.Store(tiles[operand].buffer, variable - first, self.reduced_element(step, known)),)
            calls += total.add(element or tiles[operand].buffer[0], end - first)
        ahead, stop = c.Variable("next"), c.Variable("stop")
        fetches = self._fetches(ahead) if body and is_fetching else ()
        if fetches:
            elements = c.For(variable, ahead, stop, body)
            body = (*fetches, c.Let(stop, c.index_min(end, ahead + _FETCHED)), elements)
            body = (c.For(ahead, first, end, body, step=_FETCHED),)
        elif body:
            body = (c.For(variable, first, end, body),)
        piece = (*tiles.values(), *body, *c.substitute(calls, {variable: first}))
        if length <= PIECE:
            return piece
        piece = (c.Let(bounds[1], c.index_min(part[1], bounds[0] + PIECE)), *piece)
        return (c.For(bounds[0], *part, piece, step=PIECE),)

    def _side_by_side(self, step: Step) -> c.Load | None:
        """Return the element that a reduction combines, where memory has those of a row side by side."""
        (operand,) = step.operands
        element: c.Expression | None = None
        if operand not in self.kernel.group.results or is_moved(self.kernel, operand):
            element = self.reduced_element(step, {})
        elif isinstance(operand, Var):
            element = self.home(operand)
        if isinstance(element, c.Load) and all(c.stride_of(element.index, r) == 1 for r in self.inner.variables[-1:]):
            return element
        return None


def write_rows(kernel: Kernel) -> None:
    """Write the kernel of a group that has reductions."""
    space, reduced = kernel.group.space or (), kernel.group.reduced or frozenset()
    layouts = row_layouts(kernel)
    wide = [axis for axis, size in enumerate(space) if size != 1]
    if not wide or wide[-1] in reduced:
        LineWriter(kernel, layouts).write()
        return
    after = max((axis for axis in wide if axis in reduced), default=-1)
    loops = StridedNest(space, layouts, range(after + 1, len(space)))
    ColumnWriter(kernel, layouts, loops.groups[-1]).write()


def _reject_reduction(binding: Binding) -> Rejection | None:
    dtype, op = operand_type(binding, 0).dtype, binding.op.name
    if op == "mean" and dtype not in ("float32", "float64"):
        return Rejection("dtype", f"mean has no C form for {dtype}")
    return None


FAMILIES = (
    KernelFamily(REDUCTIONS, _reject_reduction, write_rows, reads=rows_access, writes=rows_access),
    KernelFamily(frozenset(COMPOSITES), reject_composite, write_rows, reads=rows_access, writes=rows_access),
)
"""Reductions, and the ops that are taken apart into them."""
