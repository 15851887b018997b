"""The common part of the two forms of row kernels: the plan of the passes over a row, and the contents of each pass.

The result of a reduction is known after the reduction's pass. A value of every element is computed in the first pass
knowing all operands; a later pass reads the value back or, at equal cost, recomputes the value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.copies import Layout, expand_to_rank, loops_around, offset_along, rows_apart
from byoc_ccompiler.kernels.loads import element_in_space, is_moved, load_statements
from byoc_ccompiler.kernels.pointwise import element_statements, operand_axes
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS
from byoc_ccompiler.kernels.row_schedule import RowSchedule, levels_of, num_passes, row_loops
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["CHEAP", "Pass", "RowWriter", "nbytes_of", "row_array", "row_layouts"]

CHEAP = frozenset(
    {"add", "subtract", "multiply", "maximum", "minimum", "negative", "abs", "nn.relu", "nn.bias_add", "broadcast_to"}
    | {"cast", "where", "equal", "less", "less_equal", "greater", "greater_equal", "logical_not"}
)
"""Ops costing no more than reading their result from memory."""

_MAX_READ_AGAIN = 2
"""Maximum operands in memory of a value recomputed rather than kept."""


def row_layouts(kernel: Kernel) -> dict[Hashable, Layout]:
    """Return the layouts of tensors along the space: operands by step and number, stored values by themselves."""
    group, rank = kernel.group, len(kernel.group.space or ())
    every = tuple(range(rank))

    def layout(value: Value, axes: Sequence[int]) -> Layout:
        return Layout(
            expand_to_rank(shape_of(value), axes, rank, 1), expand_to_rank(kernel.strides(value), axes, rank, 0)
        )

    found: dict[Hashable, Layout] = {}
    for step in group.steps:
        level = group.row_axes.get(step.result, every)
        along = [every] if step.op in REDUCTIONS else [tuple(level[a] for a in axes) for axes in operand_axes(step)]
        for index, (operand, axes) in enumerate(zip(step.operands, along, strict=True)):
            if operand not in group.results and kernel.constant(operand) is None:
                found[step, index] = layout(operand, axes)
    found |= {value: layout(value, group.row_axes.get(value, every)) for value in kernel.stored}
    return found | {None: rows_apart(group.space or ())} if group.loads else found


def nbytes_of(value: Value, count: Dim) -> int:
    """Return the bytes of ``count`` elements of a value's dtype; 0 if the count is unknown."""
    return count * dtype_info(dtype_of(value)).itemsize if isinstance(count, int) else 0


def row_array(name: str, dtype: str, size: int) -> c.LocalArray:
    """Return an array for elements of a row; for an empty row, an array of a single zero, read by nothing."""
    return c.LocalArray(c.Buffer(name, dtype, c.MemoryAccess.WRITE, size or 1), is_zeroed=size == 0, alignment=64)


@dataclass(slots=True)
class Pass:
    """A pass over a row: values read back, elementwise steps, values stored or kept for later, reductions."""

    read: list[Var] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    written: list[Var] = field(default_factory=list)
    reductions: list[Step] = field(default_factory=list)


class RowWriter(ABC):
    """The planner and writer of a row kernel under a schedule; the loops come from :func:`row_loops`.

    ``column`` is the position in arrays over rows computed together. ``row_values`` are the row's own values so far:
    variables, or elements of arrays.
    """

    def __init__(self, kernel: Kernel, layouts: Mapping[Any, Layout], schedule: RowSchedule) -> None:
        self.kernel, self.schedule, self._group, self._layouts = kernel, schedule, kernel.group, layouts
        self.outer, self.inner, self.columns = row_loops(kernel.group, layouts, schedule.columns)
        self.row_size = product(self.inner.sizes)
        self.column: c.Expression = c.Size(0)
        self.row_values: dict[Value, c.Expression] = {}
        # The memory of values waiting for a later pass: buffers, or the memory of results written later.
        self._buffers: dict[Var, c.LocalArray] = {}
        self._borrowed: dict[Var, Var] = {}
        self._plan()

    def write(self) -> None:
        """Write the kernel: all passes over a row or a block of rows, inside the loops over rows."""
        part = self.shared(self.outer.variables)
        loops = loops_around(self.write_passes(), self.outer.variables, self.outer.sizes, part=part)
        self.kernel.finish_block(loops)

    @abstractmethod
    def write_pass(self, index: int, row_pass: Pass) -> c.Block:
        """Return the statements of a pass."""

    def shared(self, indices: Sequence[c.Variable]) -> int | None:
        """Return the number of the loop with rounds shared by threads, among these loops."""
        return next((number for number, index in enumerate(indices) if index.name == self.schedule.parallel), None)

    def lies_side_by_side(self, key: object) -> bool:
        """Return whether a tensor's elements are contiguous along the innermost loop of a row."""
        return not self.inner.sizes or self.inner.step(key, len(self.inner.sizes) - 1) == (1, None)

    def _lends(self, result: Var) -> bool:
        """Return whether another value should wait in a result's memory rather than in a buffer."""
        least = self.schedule.lender_nbytes
        return least is not None and nbytes_of(result, self.row_size) >= least and self.lies_side_by_side(result)

    def across(self, body: c.Block) -> c.Block:
        """Return the loop over rows computed together, for statements on a single row."""
        return body

    def _plan(self) -> None:
        """Plan each pass, and the steps on a row's own values before each pass, and after the last."""
        self._maker = {step.result: step for step in self._group.steps}
        self._at = levels_of(self._group)
        self.passes = [Pass() for _ in range(num_passes(self._group))]
        self._between: list[list[Step]] = [[] for _ in range(len(self.passes) + 1)]
        for step in self._group.steps:
            at = self._at[step.result]
            if step.op in REDUCTIONS:
                self.passes[at - 1].reductions.append(step)
            elif step.result in self._group.row_axes:
                self._between[at].append(step)
            elif step.result in self.kernel.stored:
                self.passes[at].written.append(step.result)
        for index in reversed(range(len(self.passes))):
            self._fill(index)

    def _fill(self, index: int) -> None:
        """Plan the computations and the values read back in a pass; earlier passes then have more to keep."""
        row_pass = self.passes[index]
        pending: list[Value] = [*(step.operands[0] for step in row_pass.reductions), *row_pass.written]
        needed: set[Value] = set()
        while pending:
            value = pending.pop()
            if value in needed or value in row_pass.read or value not in self._maker or value in self._group.row_axes:
                continue
            assert isinstance(value, Var)
            if self._at[value] < index and self._is_read_back(value, index):
                row_pass.read.append(value)
            else:
                needed.add(value)
                pending += self._maker[value].operands
        row_pass.steps = [step for step in self._group.steps if step.result in needed]

    def _is_read_back(self, value: Var, index: int) -> bool:
        """Return whether a value of an earlier pass is read back, and plan to keep the value."""
        written, step = self.passes[self._at[value]].written, self._maker[value]
        if value in written:
            return True
        # A value is recomputed at no more than the cost of reading: by a cheap op of few tensors in memory.
        tensors = {operand for operand in step.operands if operand not in self._group.row_axes}
        if step.op in CHEAP and tensors.isdisjoint(self._maker) and len(tensors) <= _MAX_READ_AGAIN:
            return False
        lender = self._lender(value, index)
        if (lender is not None and self._lends(lender)) or not self._take_buffer(value):
            if lender is None:
                return False
            self._borrowed[value] = lender
        written.append(value)
        return True

    def _lender(self, value: Var, index: int) -> Var | None:
        """Return an otherwise unused result, not written before the last pass reading the value."""
        for result in self._maker:
            lends = result in self.kernel.stored and result not in self._group.row_axes and self._at[result] >= index
            if lends and result not in self._borrowed.values() and dtype_of(result) == dtype_of(value):
                return result
        return None

    def _take_buffer(self, value: Var) -> bool:
        """Reserve a buffer for a value of every element of a row, if the row is known to be short enough."""
        if not isinstance(self.row_size, int):
            return False
        size, buffers = self.row_size * self.schedule.width, self._buffers
        if sum(nbytes_of(other, size) for other in (value, *buffers)) > self.schedule.buffer_nbytes:
            return False
        buffers[value] = row_array(f"{value.name}_row", dtype_of(value), size)
        return True

    def offset(self, key: Hashable) -> c.Expression:
        """Return the offset of a tensor's current element."""
        return self.columns.position(key, start=self.inner.position(key, start=self.outer.position(key)))

    def saved_element(self, value: Var) -> c.Load | None:
        """Return the element of a value waiting or stored in memory; ``None`` for a value not in memory."""
        result = value if value in self.kernel.stored else self._borrowed.get(value)
        if result is not None:
            return self.kernel.target(result)[self.offset(result)]
        if value not in self._buffers:
            return None
        strides = [stride * self.schedule.width for stride in compact_strides(self.inner.sizes)]
        return self._buffers[value].buffer[offset_along(self.inner.variables, strides) + self.column]

    def element_operands(self) -> list[tuple[tuple[Step, int], Value]]:
        """Return the tensors read for every element, under their keys."""
        keys = [key for key in self._layouts if isinstance(key, tuple)]
        read = [key for key in keys if key[0].op in REDUCTIONS or key[0].result not in self._group.row_axes]
        return [((step, index), step.operands[index]) for step, index in read]

    def write_passes(self) -> c.Block:
        """Return the statements of all passes, with the statements between passes."""
        body: c.Block = tuple(self._buffers.values())
        for index, row_pass in enumerate(self.passes):
            body += self._row_steps(index)
            body += self.write_pass(index, row_pass)
        return body + self._row_steps(len(self.passes))

    def _row_steps(self, index: int) -> c.Block:
        """Return the steps on a row's own values before a pass, or after the last pass."""
        steps = self._between[index]
        expressions: dict[Value, c.Expression] = {}
        arrays: c.Block = ()
        body = self._step_statements(steps, expressions)
        for step in steps:
            self.row_values[step.result] = value = expressions[step.result]
            body += self.row_stores(step.result)
            later_steps = (later for later in self._group.steps if later not in steps)
            if self.columns.sizes and any(step.result in later.operands for later in later_steps):
                name, dtype = f"{step.result.name}_columns", dtype_of(step.result)
                array = c.Buffer(name, dtype, c.MemoryAccess.WRITE, self.schedule.width)
                arrays += (c.LocalArray(array),)
                body += (c.Store(array, self.column, value),)
                self.row_values[step.result] = array[self.column]
        return (*arrays, *self.across(body))

    def element_body(self, row_pass: Pass) -> tuple[c.Block, dict[Value, c.Expression]]:
        """Return the statements of a pass for an element (reads, steps, stores), and the computed values."""
        expressions: dict[Value, c.Expression] = {}
        saved = {
            value: element
            for value in (*row_pass.read, *row_pass.written)
            if (element := self.saved_element(value)) is not None
        }
        reads: c.Block = ()
        for value in row_pass.read:
            expressions[value] = variable = c.Variable(value.name, c.CType(dtype_of(value)))
            reads += (c.Let(variable, saved[value]),)
        if self._group.loads:
            reading = (
                *row_pass.steps,
                *(step for step in row_pass.reductions if not is_moved(self.kernel, step.operands[0])),
            )
            reads += load_statements(self.kernel, reading, self._indices(), expressions)
        body = self._step_statements(row_pass.steps, expressions, reads)
        stores = (c.Store(saved[value].buffer, saved[value].index, expressions[value]) for value in row_pass.written)
        return (*body, *stores), expressions

    def _indices(self) -> dict[int, c.Expression]:
        """Return the position along each axis of the space with a size above 1."""
        return {**self.outer.indices(), **self.inner.indices(), **self.columns.indices()}

    def _step_statements(
        self, steps: Sequence[Step], expressions: dict[Value, c.Expression], before: c.Block = ()
    ) -> c.Block:
        """Return ``before``, then reads of the row's own values, then the statements computing steps."""
        for value in dict.fromkeys(operand for step in steps for operand in step.operands):
            found = self.row_values.get(value)
            if isinstance(found, c.Load):
                expressions[value] = variable = c.Variable(found.buffer.name, found.type)
                before += (c.Let(variable, found),)
            elif found is not None:
                expressions[value] = found
        return (*before, *element_statements(self.kernel, steps, lambda *key: self.offset(key), expressions))

    def reduced_element(self, step: Step, expressions: Mapping[Value, c.Expression]) -> c.Expression:
        """Return the next element combined by a reduction."""
        (operand,) = step.operands
        found = expressions.get(operand) or self.row_values.get(operand) or self.kernel.constant(operand)
        if found is None and is_moved(self.kernel, operand):
            return element_in_space(self.kernel, operand, self._indices(), [])
        return self.kernel.source(operand)[self.offset((step, 0))] if found is None else found

    def row_stores(self, value: Var) -> c.Block:
        """Return the store of a row's own value, if required in memory."""
        if value not in self.kernel.stored:
            return ()
        return (c.Store(self.kernel.target(value), self.offset(value), self.row_values[value]),)
