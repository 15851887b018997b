"""Row kernels across rows that lie side by side: a block of rows at once, their own values in arrays over it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.fetching import fetch
from byoc_ccompiler.kernels.row_plan import Pass
from byoc_ccompiler.kernels.row_reducers import combined, start
from byoc_ccompiler.kernels.row_writer import LONG_NBYTES, RowWriter
from byoc_ccompiler.kernels.strided_nest import Layout
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["ColumnWriter"]

_COLUMNS = 512
"""Rows that are computed together."""

_KEPT_ELEMENTS = 1 << 12
"""Elements of a block whose values wait for a later pass: fewer rows are computed together where they are long."""

_LANES = 16
"""Rows that are computed together, at least: a register of them."""

_FETCHED_AHEAD = 4
"""Elements along a row that what is fetched lies ahead."""

_NEAR_NBYTES = 1 << 12
"""Bytes from one element of a row to the next up to which the processor itself fetches ahead."""

_ROUNDS = 64
"""Elements that are added up one after the other, before their sum is added to that of the others in float64."""

_DOUBLE = c.CType("float64")


class ColumnWriter(RowWriter):
    """Writes row kernels that go across memory."""

    def __init__(self, kernel: Kernel, layouts: Mapping[Hashable, Layout], columns: Sequence[int]) -> None:
        super().__init__(kernel, layouts, columns)
        (size,) = self.columns.sizes
        self._is_one_block = isinstance(size, int) and size <= self.row_width
        self._bounds = c.Variable("c_first"), c.Variable("c_end")
        whole: tuple[c.Expression, c.Expression] = c.Size(0), c.Size(size)
        self._first, self._end = whole if self._is_one_block else self._bounds

    @property
    def row_width(self) -> int:
        """The number of columns in a block."""
        (size,) = self.columns.sizes
        most = _COLUMNS
        if isinstance(self.row_size, int) and self.row_size * _COLUMNS > _KEPT_ELEMENTS and self._has_passes:
            most = max(_LANES, _KEPT_ELEMENTS // self.row_size // _LANES * _LANES)
        if not isinstance(size, int):
            return most
        blocks = max(1, -(-size // most))
        return -(-size // blocks // _LANES) * _LANES if blocks > 1 else max(size, 1)

    @property
    def _has_passes(self) -> bool:
        """Whether something is made of a row's own values for each of its elements."""
        group = self.kernel.group
        elements = [step for step in group.steps if step.result not in group.row_axes]
        return any(operand in group.row_axes for step in elements for operand in step.operands)

    def buffer_index(self, *, start: c.Expression | None = None) -> c.Expression:
        """Return the position in the block: rows of columns."""
        place: c.Expression = c.Size(0)
        for loop, variable in enumerate(self.inner.variables):
            place = place + variable * (product(self.inner.sizes[loop + 1 :]) * self.row_width)
        return place + (start or self.column)

    def lends(self, result: Var) -> bool:
        """No result does: rows of it are not in the first cache together."""
        return False

    @property
    def column(self) -> c.Expression:
        """The position in arrays over the columns of a block."""
        return self.columns.variables[0] - self._first

    def write(self) -> None:
        """Writes the kernel: blocks of columns, inside the loops over what lies further apart."""
        body = self.buffer_arrays
        for index, this in enumerate(self.passes):
            body += self._between(index)
            body += self._pass(this, self._fetches() if index == 0 else ())
        body += self._between(len(self.passes))
        if self._is_one_block:
            self.finish(body)
            return
        (size,), width = self.columns.sizes, self.row_width
        block, (first, end) = c.Variable("block"), self._bounds
        bounds = (c.Let(first, block * width), c.Let(end, c.index_min(c.Size(size), first + width)))
        blocks = c.For(block, c.Size(0), c.Size((size + (width - 1)) // width), (*bounds, *body))
        if any(count != 1 for count in self.outer.sizes):
            self.finish((blocks,))
            return
        round_ps = self.row_size * width * self.element_ps
        blocks = replace(blocks, kind=c.LoopKind.PARALLEL, round_ps=round_ps)
        self.kernel.finish_block(self.outer.loops((blocks,), {}))

    def _across(self, body: c.Block) -> c.Block:
        """Return the loop over the columns of a block."""
        return (c.For(self.columns.variables[0], self._first, self._end, body),) if body else ()

    def _between(self, index: int) -> c.Block:
        kernel, steps = self.kernel, self.between_steps(index)
        known: dict[Value, c.Expression] = {}
        body = self.known_steps(steps, self.row_place, known)
        arrays: c.Block = ()
        for step in steps:
            self.row_values[step.result] = known[step.result]
            body += self.row_stores([step.result])
            if not any(step.result in later.operands for later in kernel.group.steps if later not in steps):
                continue
            array = _column_array(f"{step.result.name}_columns", dtype_of(step.result), self.row_width)
            arrays += (c.LocalArray(array),)
            body += (c.Store(array, self.column, known[step.result]),)
            self.row_values[step.result] = array[self.column]
        return (*arrays, *self._across(body))

    def _fetches(self) -> c.Block:
        """Return the statements that fetch what lies some elements further along the rows of a block."""
        if not self.inner.sizes or self.row_size == 1:
            return ()
        loop, after = len(self.inner.sizes) - 1, self.inner.variables[-1] + _FETCHED_AHEAD
        places: dict[tuple[c.Buffer, c.Expression], int] = {}
        for key, operand in self.element_operands():
            itemsize, step = dtype_info(dtype_of(operand)).itemsize, self.inner.step(key, loop)[0]
            nbytes, is_far = self.row_width * itemsize, not isinstance(step, int) or step * itemsize > _NEAR_NBYTES
            if nbytes >= LONG_NBYTES and is_far and self.columns.step(key, 0) == (1, None):
                row = self.inner.position(key, start=self.outer.position(key), last=after)
                place = self.columns.position(key, start=row, last=self._first)
                places[self.kernel.source(operand), place] = nbytes
        return tuple(fetch(buffer, place, nbytes) for (buffer, place), nbytes in places.items())

    def _pass(self, this: Pass, fetches: c.Block) -> c.Block:
        totals = {step: _Totals(self, step) for step in this.reductions}
        arrays = (array for total in totals.values() for array in total.arrays())
        starts = self._across(tuple(total.start() for total in totals.values()))
        known: dict[Value, c.Expression] = {}
        body = self.element_body(this, known)
        ends: c.Block = ()
        for step, total in totals.items():
            body += total.add(self.reduced_element(step, known))
            self.row_values[step.result] = total.array[self.column]
            ends += (*total.finish(self.row_size), *self.row_stores([step.result]))
        in_rounds = [total for total in totals.values() if total.is_in_rounds]
        rounds = self._rounds((*fetches, *self._across(body)), in_rounds)
        return (*arrays, *starts, *rounds, *self._across(ends))

    def _rounds(self, body: c.Block, totals: Sequence[_Totals]) -> c.Block:
        """Return the loops along the rows; sums in rounds are added up whenever a round is over."""
        loops = list(zip(self.inner.variables, self.inner.sizes, strict=True))
        if totals:
            index, size = loops.pop()
            first, end = c.Variable("first"), c.Variable("end")
            body = (
                *self._across(tuple(total.start_round() for total in totals)),
                c.Let(end, c.index_min(c.Size(size), first + _ROUNDS)),
                c.For(index, first, end, body),
                *self._across(tuple(total.end_round() for total in totals)),
            )
            body = (c.For(first, c.Size(0), c.Size(size), body, step=_ROUNDS),)
        for index, size in reversed(loops):
            body = (c.For(index, c.Size(0), c.Size(size), body),)
        return body


def _column_array(name: str, dtype: str, size: int) -> c.Buffer:
    return c.Buffer(name, dtype, c.MemoryAccess.WRITE, size)


class _Totals:
    """The arrays in which one reduction of a block of rows is collected.

    Attributes:
        array: the results of a block; before, what is collected, or what a round of a sum is.
        is_in_rounds: whether a sum is collected in rounds, which are added up in float64.
    """

    def __init__(self, writer: ColumnWriter, step: Step) -> None:
        self._op, self._type = step.op, c.CType(dtype_of(step.operands[0]))
        size, self._column = writer.row_size, writer.column
        is_short = isinstance(size, int) and size <= 4 * _ROUNDS
        self.is_in_rounds = step.op in ("sum", "mean") and self._type.is_float and not is_short
        self.array = _column_array(f"{step.op}_totals", self._type.dtype, writer.row_width)
        self._sums = _column_array(f"{step.op}_sums", _DOUBLE.dtype, writer.row_width)

    def arrays(self) -> Iterable[c.LocalArray]:
        """Return the declarations of the arrays."""
        arrays = (self.array, self._sums) if self.is_in_rounds else (self.array,)
        return (c.LocalArray(array, alignment=64) for array in arrays)

    def start(self) -> c.Store:
        """Return the statement before the loops, for one column."""
        if self.is_in_rounds:
            return c.Store(self._sums, self._column, c.Literal(0, _DOUBLE))
        return c.Store(self.array, self._column, start(self._op, self._type.dtype))

    def start_round(self) -> c.Store:
        """Return the statement before a round of a sum."""
        return c.Store(self.array, self._column, c.Literal(0, self._type))

    def end_round(self) -> c.Store:
        """Return the statement after a round of a sum."""
        whole = self._sums[self._column] + c.Cast(self.array[self._column], _DOUBLE)
        return c.Store(self._sums, self._column, whole)

    def add(self, element: c.Expression) -> c.Block:
        """Return the statements that add an element."""
        total = c.Variable("total", self._type)
        reads: c.Block = (c.Let(total, self.array[self._column]),)
        if isinstance(element, c.Load):
            value = c.Variable("element", self._type)
            reads, element = (*reads, c.Let(value, element)), value
        return (*reads, c.Store(self.array, self._column, combined(self._op, total, element)))

    def finish(self, count: Dim) -> c.Block:
        """Return the statements after the loops, for one column of so many elements."""
        whole: c.Expression = (self._sums if self.is_in_rounds else self.array)[self._column]
        if self._op == "mean":
            whole = whole / c.Cast(c.Size(count), whole.type)
        elif not self.is_in_rounds:
            return ()
        return (c.Store(self.array, self._column, whole if whole.type == self._type else c.Cast(whole, self._type)),)
