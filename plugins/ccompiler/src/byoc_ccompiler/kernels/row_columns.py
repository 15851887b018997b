"""Row kernels across rows lying side by side: a block of rows at once, with the rows' own values in arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import Layout, fetch, loops_around
from byoc_ccompiler.kernels.row_reducers import DOUBLE, combined, finished, start
from byoc_ccompiler.kernels.row_schedule import BLOCK_LOOP, LONG_NBYTES, RowSchedule
from byoc_ccompiler.kernels.row_writer import Pass, RowWriter, nbytes_of
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["ColumnWriter"]

_NEAR_NBYTES = 1 << 12
"""Maximum bytes from an element along a row to the next for prefetching by the processor."""


class _Total:
    """The arrays collecting a reduction of a block of rows.

    A sum of many floats collects rounds in the first array, and the sums of rounds in a second array of float64.
    """

    def __init__(self, writer: RowWriter, step: Step) -> None:
        self._op, self._column, dtype = step.op, writer.column, dtype_of(step.operands[0])
        is_long = not isinstance(writer.row_size, int) or writer.row_size > 4 * writer.schedule.chunk
        self.is_in_rounds = step.op in ("sum", "mean") and c.CType(dtype).is_float and is_long
        kinds = [("totals", dtype), ("sums", "float64")][: 1 + self.is_in_rounds]
        write, width = c.MemoryAccess.WRITE, writer.schedule.width
        self.arrays = [c.Buffer(f"{step.op}_{name}", kind, write, width) for name, kind in kinds]

    def start(self, array: c.Buffer) -> c.Store:
        """Return the statement before the loops or a round, for a column."""
        return c.Store(array, self._column, start(self._op, array.dtype))

    def end_round(self) -> c.Store:
        """Return the statement after a round of a sum."""
        part, total = (array[self._column] for array in self.arrays)
        return c.Store(total.buffer, total.index, total + c.Cast(part, DOUBLE))

    def add(self, element: c.Expression) -> c.Block:
        """Return the statements adding an element."""
        cell = self.arrays[0][self._column]
        total, value = c.Variable("total", cell.type), c.Variable("element", cell.type)
        reads: c.Block = (c.Let(total, cell),)
        if isinstance(element, c.Load):
            reads, element = (*reads, c.Let(value, element)), value
        return (*reads, c.Store(cell.buffer, cell.index, combined(self._op, total, element)))

    def finish(self, count: Dim) -> c.Block:
        """Return the statements after the loops, for a column of ``count`` elements."""
        array, total = self.arrays[0], self.arrays[-1][self._column]
        store = c.Store(array, self._column, finished(self._op, total, count, array.dtype))
        return (store,) if self._op == "mean" or self.is_in_rounds else ()


class ColumnWriter(RowWriter):
    """The writer of row kernels across memory."""

    def __init__(self, kernel: Kernel, layouts: Mapping[Any, Layout], schedule: RowSchedule) -> None:
        super().__init__(kernel, layouts, schedule)
        (self._size,) = self.columns.sizes
        self._part: tuple[c.Expression, c.Expression] = c.Variable("c_first"), c.Variable("c_end")
        if isinstance(self._size, int) and self._size <= schedule.width:
            self._part = c.Size(0), c.Size(self._size)
        self.column = self.columns.variables[0] - self._part[0]

    def write_passes(self) -> c.Block:
        """Return the statements of all passes, for successive blocks of columns."""
        body, width, (first, end) = super().write_passes(), self.schedule.width, self._part
        if not isinstance(first, c.Variable) or not isinstance(end, c.Variable):
            return body
        block, stop = c.Variable(BLOCK_LOOP), c.index_min(c.Size(self._size), first + width)
        body = (c.Let(first, block * width), c.Let(end, stop), *body)
        count = (self._size + (width - 1)) // width
        return loops_around(body, [block], [count], part=self.shared([block]))

    def across(self, body: c.Block) -> c.Block:
        """Return the loop over the columns of a block."""
        return (c.For(self.columns.variables[0], *self._part, body),) if body else ()

    def _fetches(self) -> c.Block:
        """Return the statements prefetching elements further along the rows of a block."""
        if not self.inner.sizes or self.row_size == 1 or not self.schedule.fetched:
            return ()
        loop, after = len(self.inner.sizes) - 1, self.inner.variables[-1] + self.schedule.fetched
        fetched_nbytes: dict[tuple[c.Buffer, c.Expression], int] = {}
        for key, operand in self.element_operands():
            step, nbytes = self.inner.step(key, loop)[0], nbytes_of(operand, self.schedule.width)
            is_far = not isinstance(step, int) or step * dtype_info(dtype_of(operand)).itemsize > _NEAR_NBYTES
            if nbytes >= LONG_NBYTES and is_far and self.columns.step(key, 0) == (1, None):
                row = self.inner.position(key, start=self.outer.position(key), last=after)
                offset = self.columns.position(key, start=row, last=self._part[0])
                fetched_nbytes[self.kernel.source(operand), offset] = nbytes
        return tuple(fetch(buffer, offset, nbytes) for (buffer, offset), nbytes in fetched_nbytes.items())

    def write_pass(self, index: int, row_pass: Pass) -> c.Block:
        """Return the statements of a pass; the first pass prefetches elements further along the rows."""
        totals = {step: _Total(self, step) for step in row_pass.reductions}
        arrays = (c.LocalArray(array, alignment=64) for total in totals.values() for array in total.arrays)
        starts = self.across(tuple(total.start(total.arrays[-1]) for total in totals.values()))
        body, expressions = self.element_body(row_pass)
        ends: c.Block = ()
        for step, total in totals.items():
            body += total.add(self.reduced_element(step, expressions))
            self.row_values[step.result] = total.arrays[0][self.column]
            ends += (*total.finish(self.row_size), *self.row_stores(step.result))
        in_rounds = [total for total in totals.values() if total.is_in_rounds]
        fetches = self._fetches() if index == 0 else ()
        return (*arrays, *starts, *self._along((*fetches, *self.across(body)), in_rounds), *self.across(ends))

    def _along(self, body: c.Block, totals: Sequence[_Total]) -> c.Block:
        """Return the loops along the rows; sums in rounds are added up after each round."""
        indices, sizes = self.inner.variables, self.inner.sizes
        if not totals:
            return loops_around(body, indices, sizes)
        first, end = c.Variable("first"), c.Variable("end")
        body = (
            *self.across(tuple(total.start(total.arrays[0]) for total in totals)),
            c.Let(end, c.index_min(c.Size(sizes[-1]), first + self.schedule.chunk)),
            c.For(indices[-1], first, end, body),
            *self.across(tuple(total.end_round() for total in totals)),
        )
        loop = c.For(first, c.Size(0), c.Size(sizes[-1]), body, step=self.schedule.chunk)
        return loops_around((loop,), indices[:-1], sizes[:-1])
