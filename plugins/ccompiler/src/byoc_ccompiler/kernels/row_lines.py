"""Row kernels along rows whose elements lie side by side: a row's own values are scalars."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernels.fetching import fetch
from byoc_ccompiler.kernels.loads import is_moved
from byoc_ccompiler.kernels.row_plan import Pass
from byoc_ccompiler.kernels.row_reducers import ADD_PIECE, PIECE, WHOLE_SUM, combined, row_function, start
from byoc_ccompiler.kernels.row_writer import LONG_NBYTES, RowWriter, row_array, variable_of
from byoc_ccompiler.steps import Step, dtype_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["LineWriter"]

_FETCH_NBYTES = 1 << 18
"""Bytes of a row up to which the next one is fetched meanwhile."""

_FETCHED = 128
"""Elements of the next row that are fetched at a time."""

_BLOCK = 1 << 15
"""Elements of a whole tensor that one thread reduces at a time."""

_Place = tuple[c.Buffer, c.Expression]

_DOUBLE = c.CType("float64")
_IS_FINITE = c.Callee("isfinite", np.isfinite)


class LineWriter(RowWriter):
    """Writes row kernels that go along memory."""

    @property
    def row_width(self) -> int:
        """One."""
        return 1

    @property
    def _is_one_piece(self) -> bool:
        return len(self.inner.sizes) <= 1 and isinstance(self.row_size, int) and self.row_size <= PIECE

    def buffer_index(self, *, start: c.Expression | None = None) -> c.Expression:
        """Return the position in the row."""
        place: c.Expression = c.Size(0)
        for loop, variable in enumerate(self.inner.variables):
            is_last = loop == len(self.inner.variables) - 1
            index = start if start is not None and is_last else variable
            place = place + index * product(self.inner.sizes[loop + 1 :])
        return place

    def lends(self, result: Var) -> bool:
        """Those with long rows do: so their memory is in the cache when the result is written."""
        return self._row_nbytes(result) >= LONG_NBYTES and self.lies_side_by_side(result)

    def _row_nbytes(self, value: Value) -> int:
        """Gives the bytes of a row of as many elements as the space has along one; 0 where that is not known."""
        return self.row_size * dtype_info(dtype_of(value)).itemsize if isinstance(self.row_size, int) else 0

    def write(self) -> None:
        """Writes the kernel: rows one after the other, or where there is one large one, blocks of it."""
        if self._is_in_blocks:
            self._write_blocks()
            return
        body = self.buffer_arrays
        for index, this in enumerate(self.passes):
            body += self._between(index)
            body += self._pass(this, self._fetched() if index == 1 else {})
        self.finish(body + self._between(len(self.passes)))

    def _between(self, index: int) -> c.Block:
        steps = self.between_steps(index)
        body = self.known_steps(steps, self.row_place, self.row_values)
        return body + self.row_stores(step.result for step in steps)

    def _fetched(self) -> dict[_Place, int]:
        """Return the bytes to fetch at a time of the tensors that the first pass over the next row reads.

        The keys are the tensors with the offsets of the next row in them.
        """
        if not self.outer.sizes or len(self.inner.sizes) != 1:
            return {}
        depth, after = len(self.outer.sizes) - 1, self.outer.variables[-1] + 1
        places = {}
        for key, operand in self.element_operands():
            is_next = self.outer.step(key, depth)[0] != 0 and self.inner.step(key, 0) == (1, None)
            if is_next and LONG_NBYTES <= self._row_nbytes(operand) <= _FETCH_NBYTES:
                nbytes = _FETCHED * dtype_info(dtype_of(operand)).itemsize
                places[self.kernel.source(operand), self.outer.position(key, last=after)] = nbytes
        return places

    def _pass(self, this: Pass, fetched: Mapping[_Place, int]) -> c.Block:
        totals = {step: _Total(self.kernel.unit, step, is_one_piece=self._is_one_piece) for step in this.reductions}
        size = self.inner.sizes[-1] if self.inner.sizes else 1
        body = self._pieces(this, totals, _Range(c.Size(0), c.Size(size)), fetched)
        outer = list(zip(self.inner.variables, self.inner.sizes, strict=True))[:-1]
        for variable, count in reversed(outer):
            body = (c.For(variable, c.Size(0), c.Size(count), body),)
        starts = tuple(statement for total in totals.values() for statement in total.declaration())
        return starts + body + self._results(totals, self.row_size)

    def _results(self, totals: Mapping[Step, _Total], count: Dim) -> c.Block:
        """Return the statements that give reductions of so many elements their results."""
        body: c.Block = ()
        for step, total in totals.items():
            self.row_values[step.result] = variable = variable_of(step.result)
            body += (c.Let(variable, total.whole(count if step.op == "mean" else None)),)
        return body + self.row_stores(step.result for step in totals)

    def _pieces(
        self, this: Pass, totals: Mapping[Step, _Total], part: _Range, fetched: Mapping[_Place, int]
    ) -> c.Block:
        """Return one walk along the innermost loop of a pass, in pieces where it is not known to be short."""
        count = part.end - part.first
        if isinstance(count, c.Size) and isinstance(count.dim, int) and count.dim <= PIECE:
            return self._piece(this, totals, part, fetched, count.dim)
        first, end = c.Variable("first"), c.Variable("end")
        piece = self._piece(this, totals, _Range(first, end), fetched, PIECE)
        body = (c.Let(end, c.index_min(part.end, first + PIECE)), *piece)
        return (c.For(first, part.first, part.end, body, step=PIECE),)

    def _piece(
        self,
        this: Pass,
        totals: Mapping[Step, _Total],
        part: _Range,
        fetched: Mapping[_Place, int],
        length: int,
    ) -> c.Block:
        known: dict[Value, c.Expression] = {}
        body = self.element_body(this, known)
        variable = self.inner.variables[-1] if self.inner.variables else c.Variable("r")
        calls: c.Block = ()
        tiles: dict[Value, c.LocalArray] = {}
        for step, total in totals.items():
            source = self._side_by_side(step, part.first)
            operand = step.operands[0]
            if source is None and operand not in tiles:
                tiles[operand] = row_array("piece", dtype_of(operand), length)
                element = self.reduced_element(step, known)
                body += (c.Store(tiles[operand].buffer, variable - part.first, element),)
            calls += total.add(source or (tiles[operand].buffer, c.Size(0)), part.end - part.first)
        return (*tiles.values(), *self._walk(variable, part, body, fetched), *calls)

    def _walk(self, variable: c.Variable, part: _Range, body: c.Block, fetched: Mapping[_Place, int]) -> c.Block:
        """Return the loop over the elements of a piece; with it the next row is fetched."""
        if not body or not fetched:
            return (c.For(variable, part.first, part.end, body),) if body else ()
        ahead, stop = c.Variable("next"), c.Variable("stop")
        lines = (fetch(buffer, row + ahead, nbytes) for (buffer, row), nbytes in fetched.items())
        elements = c.For(variable, ahead, stop, body)
        inside = (*lines, c.Let(stop, c.index_min(part.end, ahead + _FETCHED)), elements)
        return (c.For(ahead, part.first, part.end, inside, step=_FETCHED),)

    def _side_by_side(self, step: Step, first: c.Expression) -> _Place | None:
        """Return where the elements that a reduction combines begin, where memory has them side by side."""
        (operand,) = step.operands
        if operand not in self.kernel.group.results:
            key: Hashable = (step, 0)
            if self.kernel.constant(operand) is not None or not self.lies_side_by_side(key):
                return None
            return self.kernel.source(operand), self.offset(key, start=first)
        assert isinstance(operand, Var)
        if is_moved(self.kernel, operand):
            element, along = self.loaded(operand), self.inner.variables
            if not isinstance(element, c.Load) or not along or c.stride_of(element.index, along[-1]) != 1:
                return None
            moved = self.loaded(operand, first)
            return (moved.buffer, moved.index) if isinstance(moved, c.Load) else None
        result = self.home_key(operand)
        if result is not None and not self.lies_side_by_side(result):
            return None
        return self.home(operand, start=first)

    @property
    def _is_in_blocks(self) -> bool:
        """Whether all of the tensor is one row so large that threads may share it."""
        one = len(self.passes) == 1 and not self.outer.sizes and len(self.inner.sizes) == 1
        if not one or (isinstance(self.row_size, int) and self.row_size < 2 * _BLOCK):
            return False
        dtype = dtype_of(self.kernel.stored[0])
        return all(dtype_of(step.result) == dtype for step in self.passes[0].reductions)

    def _write_blocks(self) -> None:
        """Writes the kernel of a large tensor that is one row: the results of blocks first, then those together."""
        (this,), (size,) = self.passes, self.inner.sizes
        blocks = (size + (_BLOCK - 1)) // _BLOCK
        dtype = dtype_of(self.kernel.stored[0])
        scratch = self.kernel.scratch_memory(blocks * (2 * len(this.reductions)), dtype)
        totals, wholes = (
            {step: _Total(self.kernel.unit, step, is_one_piece=False) for step in this.reductions} for _ in range(2)
        )
        block, block_end = c.Variable("block"), c.Variable("block_end")
        part = _Range(block * _BLOCK, block_end)
        body: c.Block = (c.Let(block_end, c.index_min(c.Size(size), (block + 1) * _BLOCK)),)
        body += tuple(statement for total in totals.values() for statement in total.declaration())
        body += self._pieces(this, totals, part, {})
        after: c.Block = ()
        for index, (total, whole) in enumerate(zip(totals.values(), wholes.values(), strict=True)):
            high, low = (scratch[c.Size(blocks * (2 * index + half)) + block] for half in (0, 1))
            body += total.save(high, low)
            after += (*whole.declaration(), c.For(block, c.Size(0), c.Size(blocks), whole.load(high, low)))
        after += self._results(wholes, size) + self._between(1)
        round_ps = _BLOCK * self.element_ps
        loop = c.For(block, c.Size(0), c.Size(blocks), body, kind=c.LoopKind.PARALLEL, round_ps=round_ps)
        self.kernel.finish_block((loop, *after))


class _Range(NamedTuple):
    """A part of the innermost loop: its first round, and its end."""

    first: c.Expression
    end: c.Expression


class _Total:
    """The variable in which one reduction of a row is collected.

    Sums of pieces are collected in float64: those of float64 in two numbers, see :data:`ADD_PIECE`.
    """

    def __init__(self, unit: VectorUnit, step: Step, *, is_one_piece: bool) -> None:
        self._op, dtype = step.op, dtype_of(step.operands[0])
        self._type, self._function = c.CType(dtype), row_function(unit, step.op, dtype)
        self._is_one_piece = is_one_piece
        self._is_sum = step.op in ("sum", "mean") and self._type.is_float and not is_one_piece
        self._variable = c.Variable(f"{step.op}_total", _DOUBLE if self._is_sum else self._type)
        self._pair: c.Buffer | None = None
        if self._is_sum and self._type == _DOUBLE:
            self._pair = c.Buffer(f"{step.op}_total", dtype, c.MemoryAccess.WRITE, 2)

    def declaration(self) -> c.Block:
        """Return the declaration that stands before the loops."""
        if self._is_one_piece:
            return ()
        if self._pair is not None:
            return (c.LocalArray(self._pair, is_zeroed=True),)
        return (
            c.Declare(self._variable, c.Literal(0, _DOUBLE) if self._is_sum else start(self._op, self._type.dtype)),
        )

    def add(self, source: _Place, count: c.Expression) -> c.Block:
        """Return the statements that add so many elements from a place on."""
        part = c.Call(self._function, (c.Address(*source), count), self._type)
        return (c.Let(self._variable, part),) if self._is_one_piece else self._combine(part)

    def _combine(self, *parts: c.Expression) -> c.Block:
        """Return the statements that add values."""
        if self._pair is not None:
            return tuple(c.Evaluate(c.Call(ADD_PIECE, (c.Address(self._pair, c.Size(0)), part))) for part in parts)
        if self._is_sum:
            first, *others = (c.Cast(part, _DOUBLE) for part in parts)
            return (c.Assign(self._variable, self._variable + sum(others, start=first)),)
        piece = c.Variable("piece", self._type)
        return (c.Let(piece, parts[0]), c.Assign(self._variable, combined(self._op, self._variable, piece)))

    def save(self, high: c.Load, low: c.Load) -> c.Block:
        """Return the statements that keep in two places what was collected."""
        if not self._is_sum:
            return (c.Store(high.buffer, high.index, self._variable),)
        if self._pair is not None:
            whole: c.Expression = self._pair[0]
            lost: c.Expression = self._pair[1]
            checked = lost
        else:
            whole = c.Cast(self._variable, self._type)
            lost = c.Cast(self._variable - c.Cast(high, _DOUBLE), self._type)
            checked = high
        rest = c.Select(c.Call(_IS_FINITE, (checked,), c.BOOL), lost, c.Literal(0, self._type))
        return (c.Store(high.buffer, high.index, whole), c.Store(low.buffer, low.index, rest))

    def load(self, high: c.Load, low: c.Load) -> c.Block:
        """Return the statements that add what :meth:`save` kept."""
        return self._combine(high, low)

    def whole(self, count: Dim | None) -> c.Expression:
        """Return the whole, divided by the number of elements where one is given."""
        total: c.Expression = self._variable
        if self._pair is not None:
            total = c.Call(WHOLE_SUM, (c.Address(self._pair, c.Size(0)),), _DOUBLE)
        if count is not None:
            total = total / c.Cast(c.Size(count), total.type)
        return total if total.type == self._type else c.Cast(total, self._type)
