"""Kernels of reductions with the elementwise steps before, between and after: every row once through the cache.

A row is the set of elements reduced to a single result. If the elements are contiguous, chunks of a row are combined by
vector, and the row's own values are scalars. Otherwise, rows lying side by side are computed together
(:mod:`~byoc_ccompiler.kernels.row_columns`).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from byoc_core.authoring import c
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.ir import Binding, Value, Var

from byoc_ccompiler.family import KernelFamily, rows_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.composites import COMPOSITES, reject_composite
from byoc_ccompiler.kernels.copies import fetch, loops_around
from byoc_ccompiler.kernels.loads import is_moved
from byoc_ccompiler.kernels.row_columns import ColumnWriter
from byoc_ccompiler.kernels.row_reducers import (
    ADD_CHUNK,
    DOUBLE,
    REDUCTIONS,
    SUM_UP,
    cast,
    combined,
    finished,
    row_function,
    start,
)
from byoc_ccompiler.kernels.row_schedule import BLOCK_LOOP, LONG_NBYTES, row_schedule
from byoc_ccompiler.kernels.row_writer import Pass, RowWriter, nbytes_of, row_array, row_layouts
from byoc_ccompiler.rejections import operand_type
from byoc_ccompiler.steps import Step, dtype_of

__all__ = ["FAMILIES", "write_rows"]

_FETCH_NBYTES = 1 << 18
"""Maximum bytes of a row for prefetching elements of the next row."""

_Part = tuple[c.Expression, c.Expression]
"""A part of the innermost loop: the first round, and the end."""


class _Total:
    """The variable collecting a reduction of a row.

    Sums of chunks are collected in float64: sums of float64 in two numbers, see :data:`ADD_CHUNK`. ``declared`` stands
    before the loops.
    """

    def __init__(self, writer: RowWriter, step: Step, *, is_single_chunk: bool) -> None:
        self._writer, self._op, self._is_single_chunk = writer, step.op, is_single_chunk
        self._type, name = c.CType(dtype_of(step.operands[0])), f"{step.op}_total"
        is_sum = step.op in ("sum", "mean") and self._type.is_float and not is_single_chunk
        self._variable = c.Variable(name, DOUBLE if is_sum else self._type)
        self._pair: c.Address | None = None
        self.declared: c.Block = ()
        if is_sum and self._type == DOUBLE:
            self._pair = c.Address(c.Buffer(name, "float64", c.MemoryAccess.WRITE, 2), c.Size(0))
            self.declared = (c.LocalArray(self._pair.buffer, is_zeroed=True),)
        elif not is_single_chunk:
            self.declared = (c.Declare(self._variable, start(step.op, self._variable.type.dtype)),)

    def add(self, first: c.Load, count: c.Expression) -> c.Block:
        """Return the statements adding ``count`` elements from the first on."""
        schedule = self._writer.schedule
        function = row_function(self._op, self._type.dtype, schedule.vector_nbytes, schedule.registers)
        part = self._call(function, c.Address(first.buffer, first.index), count)
        return (c.Let(self._variable, part),) if self._is_single_chunk else self.combine(part)

    def combine(self, part: c.Expression) -> c.Block:
        """Return the statements adding the result of a part."""
        if self._pair is not None:
            return (c.Evaluate(self._call(ADD_CHUNK, self._pair, part)),)
        value = c.Variable("part", self._variable.type)
        update = c.Assign(self._variable, combined(self._op, self._variable, value))
        return (c.Let(value, cast(part, value.type.dtype)), update)

    def value(self) -> c.Expression:
        """Return the collected value, in the wide type of collection."""
        return self._variable if self._pair is None else self._call(SUM_UP, self._pair)

    def _call(self, function: c.Function, *arguments: c.Expression) -> c.Call:
        """Return a call of a function shared by kernels."""
        return c.Call(self._writer.kernel.shared_function(function), arguments, function.result)


class LineWriter(RowWriter):
    """The writer of row kernels along memory: row by row, or blocks of a single large row."""

    def _fetches(self, ahead: c.Expression) -> c.Block:
        """Return the statements prefetching elements ``ahead`` in the next row of the first pass's operands."""
        if not self.outer.sizes or len(self.inner.sizes) != 1 or not self.schedule.fetched:
            return ()
        depth, after = len(self.outer.sizes) - 1, self.outer.variables[-1] + 1
        fetched_nbytes: dict[tuple[c.Buffer, c.Expression], int] = {}
        for key, operand in self.element_operands():
            is_next = self.outer.step(key, depth)[0] != 0 and self.lies_side_by_side(key)
            if is_next and LONG_NBYTES <= nbytes_of(operand, self.row_size) <= _FETCH_NBYTES:
                next_row = self.kernel.source(operand), self.outer.position(key, last=after)
                fetched_nbytes[next_row] = nbytes_of(operand, self.schedule.fetched)
        return tuple(fetch(buffer, row + ahead, nbytes) for (buffer, row), nbytes in fetched_nbytes.items())

    def write_pass(self, index: int, row_pass: Pass) -> c.Block:
        """Return the statements of a pass; the second pass prefetches the next row."""
        (*outer, size), variables = self.inner.sizes or (1,), self.inner.variables
        is_short = not outer and not self.schedule.block and isinstance(size, int) and size <= self.schedule.chunk
        totals = {step: _Total(self, step, is_single_chunk=is_short) for step in row_pass.reductions}
        if self.schedule.block:
            body = self._blocks(row_pass, totals, size)
        else:
            body = self._chunks(row_pass, totals, (c.Size(0), c.Size(size)), is_fetching=index == 1)
            body = loops_around(body, variables[:-1], outer)
        body = (*chain.from_iterable(total.declared for total in totals.values()), *body)
        for step, total in totals.items():
            self.row_values[step.result] = variable = c.Variable(step.result.name, c.CType(dtype_of(step.result)))
            result = finished(step.op, total.value(), self.row_size, variable.type.dtype)
            body += (c.Let(variable, result), *self.row_stores(step.result))
        return body

    def _blocks(self, row_pass: Pass, totals: Mapping[Step, _Total], size: Dim) -> c.Block:
        """Return the loop reducing blocks of a large row, and the loops reducing the results of the blocks."""
        length, dtype = self.schedule.block, dtype_of(row_pass.reductions[0].operands[0])
        blocks = (size + (length - 1)) // length
        results = self.kernel.scratch_memory(blocks * len(totals), "float64" if c.CType(dtype).is_float else dtype)
        block, end = c.Variable(BLOCK_LOOP), c.Variable("block_end")
        parts = {step: _Total(self, step, is_single_chunk=False) for step in totals}
        body: c.Block = (c.Let(end, c.index_min(c.Size(size), (block + 1) * length)),)
        body += (*chain.from_iterable(part.declared for part in parts.values()),)
        body += self._chunks(row_pass, parts, (block * length, end))
        loads: c.Block = ()
        for index, (step, total) in enumerate(totals.items()):
            result = results[c.Size(blocks * index) + block]
            body += (c.Store(results, result.index, cast(parts[step].value(), results.dtype)),)
            loads += loops_around(total.combine(result), [block], [blocks])
        return (*loops_around(body, [block], [blocks], part=self.shared([block])), *loads)

    def _chunks(
        self, row_pass: Pass, totals: Mapping[Step, _Total], part: _Part, *, is_fetching: bool = False
    ) -> c.Block:
        """Return a walk along the innermost loop of a pass, in chunks unless known to be short.

        A chunk is a loop over elements, and calls reducing the elements in memory.
        """
        count, bounds = part[1] - part[0], (c.Variable("first"), c.Variable("end"))
        most, fetched = self.schedule.chunk, self.schedule.fetched
        length = count.dim if isinstance(count, c.Size) and isinstance(count.dim, int) else most + 1
        first, end = part if length <= most else bounds
        body, expressions = self.element_body(row_pass)
        variable = self.inner.variables[-1] if self.inner.variables else c.Variable("r")
        calls: c.Block = ()
        tiles: dict[Value, c.LocalArray] = {}
        for step, total in totals.items():
            element, operand = self._side_by_side(step), step.operands[0]
            if element is None and operand not in tiles:
                tiles[operand] = row_array("chunk", dtype_of(operand), min(length, most))
                body += (c.Store(tiles[operand].buffer, variable - first, self.reduced_element(step, expressions)),)
            calls += total.add(element or tiles[operand].buffer[0], end - first)
        ahead, stop = c.Variable("next"), c.Variable("stop")
        fetches = self._fetches(ahead) if body and is_fetching else ()
        if fetches:
            elements = c.For(variable, ahead, stop, body)
            body = (*fetches, c.Let(stop, c.index_min(end, ahead + fetched)), elements)
            body = (c.For(ahead, first, end, body, step=fetched),)
        elif body:
            body = (c.For(variable, first, end, body),)
        chunk = (*tiles.values(), *body, *c.substitute(calls, {variable: first}))
        if length <= most:
            return chunk
        chunk = (c.Let(bounds[1], c.index_min(part[1], bounds[0] + most)), *chunk)
        return (c.For(bounds[0], *part, chunk, step=most),)

    def _side_by_side(self, step: Step) -> c.Load | None:
        """Return the element combined by a reduction, if the elements of a row are contiguous in memory."""
        (operand,) = step.operands
        element: c.Expression | None = None
        if operand not in self.kernel.group.results or is_moved(self.kernel, operand):
            element = self.reduced_element(step, {})
        elif isinstance(operand, Var):
            element = self.saved_element(operand)
        if isinstance(element, c.Load) and all(c.stride_of(element.index, r) == 1 for r in self.inner.variables[-1:]):
            return element
        return None


def write_rows(kernel: Kernel) -> None:
    """Write the kernel of a group with reductions."""
    layouts = row_layouts(kernel)
    kernel.schedule = schedule = row_schedule(kernel, layouts)
    writer = ColumnWriter if schedule.columns else LineWriter
    writer(kernel, layouts, schedule).write()


def _reject_reduction(binding: Binding) -> Rejection | None:
    dtype, op = operand_type(binding, 0).dtype, binding.op.name
    if op == "mean" and dtype not in ("float32", "float64"):
        return Rejection("dtype", f"mean has no C form for {dtype}")
    return None


FAMILIES = (
    KernelFamily(REDUCTIONS, _reject_reduction, write_rows, reads=rows_access, writes=rows_access),
    KernelFamily(frozenset(COMPOSITES), reject_composite, write_rows, reads=rows_access, writes=rows_access),
)
"""Reductions, and the ops taken apart into reductions."""
