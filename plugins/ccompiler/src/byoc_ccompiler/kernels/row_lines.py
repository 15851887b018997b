"""Row kernels along rows whose elements lie side by side: a row's own values are scalars."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.fetching import fetch
from byoc_ccompiler.kernels.loads import is_moved
from byoc_ccompiler.kernels.row_functions import PIECE
from byoc_ccompiler.kernels.row_plan import Pass
from byoc_ccompiler.kernels.row_reducers import ADD_PIECE, WHOLE_SUM, combined, row_function, start
from byoc_ccompiler.kernels.row_writer import LONG_NBYTES, RowWriter, nbytes_of, row_array
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["LineWriter"]

_FETCH_NBYTES = 1 << 18
"""Bytes of a row up to which the next one is fetched meanwhile."""

_FETCHED = 128
"""Elements of the next row that are fetched at a time."""

_BLOCK = 1 << 15
"""Elements of a whole tensor that one thread reduces at a time."""

_Place = tuple[c.Buffer, c.Expression]

_Part = tuple[c.Expression, c.Expression]
"""A part of the innermost loop: its first round, and its end."""

_DOUBLE = c.CType("float64")


class _Total:
    """The variable in which one reduction of a row is collected.

    Sums of pieces are collected in float64: those of float64 in two numbers, see :data:`ADD_PIECE`.
    """

    def __init__(self, kernel: Kernel, step: Step, *, is_one_piece: bool) -> None:
        self._kernel, self._op, self._is_one_piece = kernel, step.op, is_one_piece
        self._type = c.CType(dtype_of(step.operands[0]))
        is_sum = step.op in ("sum", "mean") and self._type.is_float and not is_one_piece
        self._variable = c.Variable(f"{step.op}_total", _DOUBLE if is_sum else self._type)
        self._pair: c.Buffer | None = None
        if is_sum and self._type == _DOUBLE:
            self._pair = c.Buffer(f"{step.op}_total", "float64", c.MemoryAccess.WRITE, 2)

    def declaration(self) -> c.Block:
        """Return the declaration that stands before the loops."""
        if self._is_one_piece:
            return ()
        if self._pair is not None:
            return (c.LocalArray(self._pair, is_zeroed=True),)
        return (c.Declare(self._variable, start(self._op, self._variable.type.dtype)),)

    def add(self, first: c.Load, count: c.Expression) -> c.Block:
        """Return the statements that add so many elements from one on."""
        function = row_function(self._kernel.unit, self._op, self._type.dtype)
        part = c.Call(function, (c.Address(first.buffer, first.index), count), self._type)
        return (c.Let(self._variable, part),) if self._is_one_piece else self._combine(part)

    def _combine(self, part: c.Expression) -> c.Block:
        if self._pair is not None:
            function = self._kernel.shared_function(ADD_PIECE)
            return (c.Evaluate(c.Call(function, (c.Address(self._pair, c.Size(0)), part))),)
        piece = c.Variable("piece", self._variable.type)
        whole = c.Assign(self._variable, combined(self._op, self._variable, piece))
        return (c.Let(piece, _cast(part, piece.type)), whole)

    def save(self, high: c.Load, low: c.Load) -> c.Block:
        """Return the statements that keep in two places what was collected."""
        if self._pair is None:
            return (c.Store(high.buffer, high.index, _cast(self._variable, high.type)),)
        return (c.Store(high.buffer, high.index, self._pair[0]), c.Store(low.buffer, low.index, self._pair[1]))

    def load(self, high: c.Load, low: c.Load) -> c.Block:
        """Return the statements that add what :meth:`save` kept."""
        lost = () if self._pair is None else (c.Store(self._pair, c.Size(1), self._pair[1] + low),)
        return (*self._combine(high), *lost)

    def whole(self, count: Dim) -> c.Expression:
        """Return the result of a reduction of so many elements."""
        total: c.Expression = self._variable
        if self._pair is not None:
            function = self._kernel.shared_function(WHOLE_SUM)
            total = c.Call(function, (c.Address(self._pair, c.Size(0)),), _DOUBLE)
        if self._op == "mean":
            total = total / c.Cast(c.Size(count), total.type)
        return _cast(total, self._type)


def _cast(value: c.Expression, type_: c.CType) -> c.Expression:
    return value if value.type == type_ else c.Cast(value, type_)


_Totals = Mapping[Step, _Total]


class LineWriter(RowWriter):
    """Writes row kernels that go along memory."""

    def lends(self, result: Var) -> bool:
        """Return whether rows are long: so their memory is in the cache when the result is written."""
        return nbytes_of(result, self.row_size) >= LONG_NBYTES and self._lies_side_by_side(result)

    def _lies_side_by_side(self, key: object) -> bool:
        """Return whether a tensor's elements lie side by side along the innermost loop of a row."""
        return not self.inner.sizes or self.inner.step(key, len(self.inner.sizes) - 1) == (1, None)

    def write(self) -> None:
        """Write the kernel: rows one after the other, or where there is one large one, blocks of it."""
        if self._is_in_blocks:
            self._write_blocks()
        else:
            self.finish(self.write_passes())

    def _fetched(self) -> dict[_Place, int]:
        """Return the bytes to fetch at a time of the tensors that the first pass over the next row reads.

        The keys are the tensors with the offsets of the next row in them.
        """
        if not self.outer.sizes or len(self.inner.sizes) != 1:
            return {}
        depth, after = len(self.outer.sizes) - 1, self.outer.variables[-1] + 1
        places = {}
        for key, operand in self.element_operands():
            is_next = self.outer.step(key, depth)[0] != 0 and self._lies_side_by_side(key)
            if is_next and LONG_NBYTES <= nbytes_of(operand, self.row_size) <= _FETCH_NBYTES:
                place = self.kernel.source(operand), self.outer.position(key, last=after)
                places[place] = _FETCHED * dtype_info(dtype_of(operand)).itemsize
        return places

    def write_pass(self, index: int, this: Pass) -> c.Block:
        """Return the statements of one pass; in the second one the next row is fetched."""
        is_short = isinstance(self.row_size, int) and self.row_size <= PIECE
        totals = self._totals(this, is_one_piece=is_short and len(self.inner.sizes) <= 1)
        part = c.Size(0), c.Size(self.inner.sizes[-1] if self.inner.sizes else 1)
        body = self._pieces(this, totals, part, self._fetched() if index == 1 else {})
        body = loops_around(body, self.inner.variables[:-1], self.inner.sizes[:-1])
        return (*_declarations(totals), *body, *self._results(totals))

    def _totals(self, this: Pass, *, is_one_piece: bool) -> _Totals:
        return {step: _Total(self.kernel, step, is_one_piece=is_one_piece) for step in this.reductions}

    def _results(self, totals: _Totals) -> c.Block:
        """Return the statements that give reductions their results."""
        lets: c.Block = ()
        for step, total in totals.items():
            self.row_values[step.result] = variable = c.Variable(step.result.name, c.CType(dtype_of(step.result)))
            lets += (c.Let(variable, total.whole(self.row_size)),)
        return lets + self.row_stores([step.result for step in totals])

    def _pieces(self, this: Pass, totals: _Totals, part: _Part, fetched: Mapping[_Place, int]) -> c.Block:
        """Return one walk along the innermost loop of a pass, in pieces where it is not known to be short."""
        count = part[1] - part[0]
        if isinstance(count, c.Size) and isinstance(count.dim, int) and count.dim <= PIECE:
            return self._piece(this, totals, part, fetched, count.dim)
        first, end = c.Variable("first"), c.Variable("end")
        piece = self._piece(this, totals, (first, end), fetched, PIECE)
        body = (c.Let(end, c.index_min(part[1], first + PIECE)), *piece)
        return (c.For(first, *part, body, step=PIECE),)

    def _piece(self, this: Pass, totals: _Totals, part: _Part, fetched: Mapping[_Place, int], length: int) -> c.Block:
        """Return the walk over a piece: the loop over elements, and calls that reduce them where they lie."""
        known: dict[Value, c.Expression] = {}
        body = self.element_body(this, known)
        variable = self.inner.variables[-1] if self.inner.variables else c.Variable("r")
        calls: c.Block = ()
        tiles: dict[Value, c.LocalArray] = {}
        for step, total in totals.items():
            element, operand = self._side_by_side(step), step.operands[0]
            if element is None and operand not in tiles:
                tiles[operand] = row_array("piece", dtype_of(operand), length)
                value = self.reduced_element(step, known)
                body += (c.Store(tiles[operand].buffer, variable - part[0], value),)
            calls += total.add(element or tiles[operand].buffer[0], part[1] - part[0])
        calls = c.substitute(calls, {variable: part[0]})
        if body and fetched:
            ahead, stop = c.Variable("next"), c.Variable("stop")
            lines = (fetch(buffer, row + ahead, nbytes) for (buffer, row), nbytes in fetched.items())
            end = c.Let(stop, c.index_min(part[1], ahead + _FETCHED))
            body = (c.For(ahead, *part, (*lines, end, c.For(variable, ahead, stop, body)), step=_FETCHED),)
        elif body:
            body = (c.For(variable, *part, body),)
        return (*tiles.values(), *body, *calls)

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

    @property
    def _is_in_blocks(self) -> bool:
        """Whether all of the tensor is one row so large that threads may share it."""
        one = len(self.plan.passes) == 1 and not self.outer.sizes and len(self.inner.sizes) == 1
        if not one or (isinstance(self.row_size, int) and self.row_size < 2 * _BLOCK):
            return False
        dtype = dtype_of(self.kernel.stored[0])
        return all(dtype_of(step.result) == dtype for step in self.plan.passes[0].reductions)

    def _write_blocks(self) -> None:
        """Write the kernel of a large tensor that is one row: the results of blocks first, then those together."""
        (this,), (size,) = self.plan.passes, self.inner.sizes
        blocks = (size + (_BLOCK - 1)) // _BLOCK
        dtype, count = dtype_of(self.kernel.stored[0]), blocks * (2 * len(this.reductions))
        scratch = self.kernel.scratch_memory(count, "float64" if c.CType(dtype).is_float else dtype)
        totals = self._totals(this, is_one_piece=False)
        block, end = c.Variable("block"), c.Variable("block_end")
        body: c.Block = (c.Let(end, c.index_min(c.Size(size), (block + 1) * _BLOCK)), *_declarations(totals))
        body += self._pieces(this, totals, (block * _BLOCK, end), {})
        after = _declarations(totals)
        for index, total in enumerate(totals.values()):
            high, low = (scratch[c.Size(blocks * (2 * index + half)) + block] for half in (0, 1))
            body += total.save(high, low)
            after += (c.For(block, c.Size(0), c.Size(blocks), total.load(high, low)),)
        after += self._results(totals) + self.between(1)
        whole = loops_around(body, [block], [blocks], part=0, round_ps=_BLOCK * self.element_ps)
        self.kernel.finish_block((*whole, *after))


def _declarations(totals: _Totals) -> c.Block:
    return tuple(statement for total in totals.values() for statement in total.declaration())
