"""Recurrent layers: some sequences of a batch at a time, in one direction, one step after another.

A line is a sequence in one direction. What comes from the input waits for no state: it is one product for some steps
of a line, and goes to scratch memory. A step adds the product of the states, and then computes elementwise. The
matrices lie in panels: those of constant weights since the code was generated, others since the call began.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope
from byoc_core.dims import Dim, ceildiv, dim_max, total
from byoc_core.ir import Constant, Value

from byoc_ccompiler.attributes import flag_of
from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.index_checks import range_check
from byoc_ccompiler.kernels.recurrent_cells import (
    Cell,
    gru_closing,
    gru_opening,
    gru_update,
    lstm_update,
    rnn_update,
)
from byoc_ccompiler.kernels.recurrent_panels import GatePart, Product, Rows, gate_parts, pack, pack_panels
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["FAMILY"]

_GATE_PS = 500
"""Estimated picoseconds of one gate of one hidden unit, behind the products."""

_STEP_TILES, _LINE_TILES = 8, 2
"""Register tiles of steps whose input goes through the product at once; of lines that take their steps together."""

_GATES = {"nn.rnn": 1, "nn.gru": 3, "nn.lstm": 4}
_STATES = {"nn.rnn": 1, "nn.gru": 1, "nn.lstm": 2}


def _each(count: c.Expression, body: Callable[[c.Variable], c.Block]) -> c.For:
    """Return the loop over so many rows."""
    row = c.Variable("row")
    return c.For(row, c.Size(0), count, body(row))


class _Recurrence:
    """One kernel under construction.

    Args:
        kernel: where it goes.
    """

    def __init__(self, kernel: Kernel) -> None:
        (step,) = kernel.group.steps
        self.kernel, self.op, self.attrs = kernel, step.op, step.binding.attrs
        x, weight, recurrence, bias = step.operands[:4]
        initial = step.operands[4 : 4 + _STATES[step.op]]
        lengths = step.operands[4 + len(initial) :]
        self.num_steps, self.batch, self.inputs = shape_of(x)
        self.hidden, self.ways = shape_of(recurrence)[2], int(str(shape_of(step.binding.results[1])[0]))
        self.dtype, lanes = dtype_of(x), kernel.unit.lanes(dtype_of(x))
        self.is_linear = step.op == "nn.gru" and flag_of(step.binding, "linear_before_reset")
        gates = _GATES[step.op]
        sizes = [self.hidden * 2, self.hidden] if step.op == "nn.gru" else [self.hidden * gates]
        self.parts = gate_parts(kernel, self.dtype, sizes)
        self.width, self.padded = self.hidden * gates, total(part.padded for part in self.parts)
        self.x, self.bias = kernel.source(x), kernel.source(bias, "bias")
        self.ends = kernel.source(lengths[0], "lengths") if lengths else None
        self.starts = [kernel.source(value, f"initial{number}") for number, value in enumerate(initial)]
        targets = [kernel.target(value) if value in kernel.stored else None for value in step.binding.results]
        self.every, *self.lasts = targets
        self.first = c.Variable(FIRST_ITEM)
        # Few lines take many steps at a time. The call may tell that there are none.
        self.tile_rows = kernel.unit.panel_rows(kernel.unit.panel_vectors)
        most = dim_max(1, _STEP_TILES // dim_max(self.batch, 1)) * self.tile_rows
        if isinstance(most, int) and isinstance(self.num_steps, int):
            most = max(1, min(most, self.num_steps))
        self.most: c.Expression = c.Size(most) if isinstance(most, int) else c.Variable("most_steps")
        self.set_up: list[c.Statement] = [] if isinstance(self.most, c.Size) else [c.Let(self.most, c.Size(most))]
        self.regions: list[tuple[c.Buffer, Dim]] = []
        lines = self.batch * self.ways
        self.gates = self._region("gates", lines * most * self.padded)
        self.state_pitch = ceildiv(self.hidden, lanes) * lanes
        self.states = [self._region(name, lines * self.state_pitch) for name in ("hidden", "cell")[: len(initial)]]
        self.inner = self._region("inner", lines * self.parts[-1].padded) if step.op == "nn.gru" else self.gates
        self.weights = self._panels(weight, "weight", self.inputs)
        self.matrices = self._panels(recurrence, "recurrence", self.hidden)

    def write(self) -> None:
        """Writes it."""
        end, lines = c.Variable(END_ITEM), self.batch * self.ways
        product_ps = self.padded * (self.inputs + self.hidden) * (multiply_add_ps(self.kernel.unit, self.dtype))
        line_ps = self.num_steps * (product_ps + self.width * _GATE_PS)
        run = c.Dispatch(self.first, end, self._lines(end), lines, 1, lines * line_ps)
        scratch = self.kernel.scratch_memory(total(size for _, size in self.regions), self.dtype)
        place: Dim = 0
        regions: list[c.Statement] = []
        for region, size in self.regions:
            regions.append(c.Alias(region, scratch, c.Size(place)))
            place = place + size
        self.kernel.finish_block((*self._length_check(), *regions, *self.set_up, run))

    def _region(self, name: str, size: Dim) -> c.Buffer:
        """Return a new part of scratch memory."""
        region = c.Buffer(name, self.dtype, c.MemoryAccess.WRITE)
        self.regions.append((region, size))
        return region

    def _panels(self, value: Value, role: str, depth: Dim) -> c.Buffer:
        """Return the panels of matrices."""
        kernel = self.kernel
        if isinstance(value, Constant):
            array = kernel.scope.constants.array(value, kernel.scope.where)
            return kernel.source(kernel.scope.constants.derive(pack(array, self.parts)), role)
        target = self._region("panels", self.padded * depth * self.ways)
        source = kernel.source(value, role)
        self.set_up += pack_panels(kernel, self.parts, source, self.ways, depth, target)
        return target

    def _length_check(self) -> c.Block:
        """Return the statements that fail where a length does not fit the steps."""
        if self.ends is None:
            return ()
        return range_check(
            self.kernel,
            self.op,
            "a length does not fit the steps",
            self.ends,
            self.batch,
            c.Size(0),
            c.Size(self.num_steps),
        )

    def _lines(self, end: c.Variable) -> c.Block:
        """Return the statements that do the lines from ``first`` to ``end``: for each direction those of a batch."""
        way, item, stop = c.Variable("way"), c.Variable("item"), c.Variable("stop")
        if self.batch == 1:
            return (c.For(way, self.first, end, self._chunk(way, c.Size(0), c.Size(1))),)
        count = c.Variable("count")
        before = way * self.batch
        chunk = (c.Let(count, c.index_min(stop - item, self.tile_rows * _LINE_TILES)), *self._chunk(way, item, count))
        body = (
            c.Let(stop, c.index_min(end - before, self.batch)),
            c.For(item, c.index_max(self.first - before, 0), stop, chunk, step=self.tile_rows * _LINE_TILES),
        )
        return (c.For(way, c.Size(0), c.Size(self.ways), body),)

    def _limit(self, item: c.Expression) -> c.Expression:
        """Return the number of steps of a sequence."""
        return c.Size(self.num_steps) if self.ends is None else c.Cast(self.ends[item], c.INDEX)

    def _has(self, item: c.Expression, time: c.Expression) -> c.Expression:
        """Return whether a sequence has a step."""
        return time.compare("<", self._limit(item))

    def _by_way(self, way: c.Expression, onward: c.Expression, backward: c.Expression) -> c.Expression:
        """Return one of two indices by the direction."""
        direction = self.attrs["direction"]
        if direction == "bidirectional":
            return c.Select(way.compare("==", 0), onward, backward)
        return onward if direction == "forward" else backward

    def _turn(self, way: c.Expression, item: c.Expression, time: c.Expression) -> c.Expression:
        """Return the place of the input that a sequence takes at a time."""
        return self._by_way(way, time, self._limit(item) - 1 - time)

    def _row(self, row: c.Expression, pitch: c.Expression | Dim) -> c.Expression:
        """Return the offset of a line's row in a region."""
        return (self.first + row) * pitch

    def _chunk(self, way: c.Expression, item: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements that do some lines of one direction side by side."""
        line, most = way * self.batch + item, c.Variable("most")
        block: list[c.Statement] = []
        for state, start in zip(self.states, self.starts, strict=True):
            block.append(self._move_states(state, start, line, count, is_start=True))
        if self.ends is None:
            block.append(c.Let(most, c.Size(self.num_steps)))
        else:
            longest = _each(count, lambda row: (c.Assign(most, c.index_max(self._limit(item + row), most)),))
            block += [c.Declare(most, c.Size(0)), longest]
        begin, slot, number = c.Variable("begin"), c.Variable("slot"), c.Variable("number")
        step = self._step(way, item, count, slot, begin + slot)
        steps = c.For(slot, c.Size(0), c.index_min(self.most, most - begin), step)
        body = (c.Let(begin, number * self.most), *self._project(way, item, count, begin), steps)
        block.append(c.For(number, c.Size(0), (most + (self.most - 1)) // self.most, body))
        if self.ends is not None and self.every is not None:
            block.append(_each(count, lambda row: (self._clear_rest(way, item + row),)))
        for state, last in zip(self.states, self.lasts, strict=True):
            if last is not None:
                block.append(self._move_states(state, last, line, count, is_start=False))
        return tuple(block)

    def _move_states(
        self, state: c.Buffer, other: c.Buffer, line: c.Expression, count: c.Expression, *, is_start: bool
    ) -> c.For:
        """Return the loop that fetches the states of lines, or hands them over."""

        def move(row: c.Variable) -> c.Block:
            mine, there = self._row(row, self.state_pitch), (line + row) * self.hidden
            if is_start:
                return (c.Copy(state, mine, other, there, c.Size(self.hidden)),)
            return (c.Copy(other, there, state, mine, c.Size(self.hidden)),)

        return _each(count, move)

    def _output_place(self, way: c.Expression, item: c.Expression, turn: c.Expression) -> c.Expression:
        """Return the offset of a hidden state among those of all steps."""
        return ((turn * self.ways + way) * self.batch + item) * self.hidden

    def _clear_rest(self, way: c.Expression, item: c.Expression) -> c.For:
        """Return the loop that clears what is behind the end of a sequence."""
        assert self.every is not None
        turn = c.Variable("turn")
        clear = c.Clear(self.every, self._output_place(way, item, turn), c.Size(self.hidden))
        return c.For(turn, self._limit(item), c.Size(self.num_steps), (clear,))

    def _gate_rows(self, slot: c.Expression) -> Rows:
        """Return the gates of the lines at a step."""
        pitch = self.most * self.padded
        return Rows(self.gates, self._row(c.Size(0), pitch) + slot * self.padded, pitch)

    def _project(self, way: c.Expression, item: c.Expression, count: c.Expression, begin: c.Variable) -> c.Block:
        """Return the product of the input at some steps."""
        counts: tuple[int, ...] = ()
        if self.ends is None and isinstance(self.most, c.Size) and isinstance(self.num_steps, int):
            most = int(str(self.most.dim))
            counts = (most, self.num_steps % most)
        step = c.Size(self.batch * self.inputs)
        row = c.Variable("row")
        place = (self._turn(way, item + row, begin) * self.batch + item + row) * self.inputs
        left = Rows(self.x, place, self._by_way(way, step, step * -1))
        steps = c.index_min(self.most, self._limit(item + row) - begin)
        first = self._gate_rows(c.Size(0))
        sums = Rows(self.gates, first.first + row * first.step, c.Size(self.padded))

        def around(call: c.Statement) -> c.Block:
            inside = call if self.ends is None else c.If(self._has(item + row, begin), (call,))
            return (c.For(row, c.Size(0), count, (inside,)),)

        block: c.Block = ()
        for part in self.parts:
            product = Product(self.kernel, part, self.weights, way * (self.padded * self.inputs), self.inputs)
            block += product.of_rows(left, steps, sums.at(part.place), adds=False, counts=counts, around=around)
        return block

    def _product(self, way: c.Expression, part: GatePart, left: Rows, count: c.Expression, sums: Rows) -> c.Block:
        """Return the product of states, added to sums."""
        product = Product(self.kernel, part, self.matrices, way * (self.padded * self.hidden), self.hidden)
        if self.batch == 1:
            return product.of_row(left, sums)
        rows = product.of_rows(left, count, sums, adds=True)
        return (
            rows if isinstance(self.batch, int) else (c.If(count.compare("==", 1), product.of_row(left, sums), rows),)
        )

    def _step(
        self, way: c.Expression, item: c.Expression, count: c.Expression, slot: c.Variable, time: c.Expression
    ) -> c.Block:
        """Return the statements of a step of all lines that have it."""
        block: list[c.Statement] = []
        if self.ends is not None and self.batch != 1:
            running = c.Variable("running")
            last = _each(count, lambda row: (c.If(self._has(item + row, time), (c.Assign(running, row + 1),)),))
            block += [c.Declare(running, c.Size(0)), last]
            count = running

        def cells(update: Callable[[Cell], c.Block]) -> c.For:
            def of_line(row: c.Variable) -> c.Block:
                updated = update(self._cell(way, item + row, row, slot, time))
                return updated if self.ends is None else (c.If(self._has(item + row, time), updated),)

            return _each(count, of_line)

        hidden = Rows(self.states[0], self._row(c.Size(0), self.state_pitch), c.Size(self.state_pitch))
        gates = self._gate_rows(slot)
        block += self._product(way, self.parts[0], hidden, count, gates)
        if self.op == "nn.lstm":
            return (*block, cells(lstm_update))
        if self.op == "nn.rnn":
            return (*block, cells(partial(rnn_update, activation=str(self.attrs["activation"]))))
        part = self.parts[1]
        inner = Rows(self.inner, self._row(c.Size(0), part.padded), c.Size(part.padded))
        if self.is_linear:
            bias, size = way * (2 * self.width) + (self.width + 2 * self.hidden), c.Size(self.hidden)
            start = _each(count, lambda row: (c.Copy(self.inner, self._row(row, part.padded), self.bias, bias, size),))
            return (*block, start, *self._product(way, part, hidden, count, inner), cells(gru_update))
        closed = self._product(way, part, inner, count, gates.at(part.place))
        return (*block, cells(gru_opening), *closed, cells(gru_closing))

    def _cell(
        self, way: c.Expression, item: c.Expression, row: c.Expression, slot: c.Expression, time: c.Expression
    ) -> Cell:
        """Return the memory of a line at a step."""
        rows = self._gate_rows(slot)
        line = rows.first + row * rows.step
        columns = [self.parts[0].place + self.hidden * gate for gate in range(_GATES[self.op])]
        if self.op == "nn.gru":
            columns[2] = self.parts[1].place
        biases = [way * (2 * self.width) + self.hidden * gate for gate in range(_GATES[self.op])]
        states = [(state, self._row(row, self.state_pitch)) for state in self.states]
        copies = []
        if self.every is not None:
            copies = [(self.every, self._output_place(way, item, self._turn(way, item, time)))]
        return Cell(
            self.hidden,
            [(self.gates, line + column) for column in columns],
            [((self.bias, place), (self.bias, place + self.width)) for place in biases],
            states,
            (self.inner, self._row(row, self.parts[-1].padded)),
            copies,
        )


def _write(kernel: Kernel) -> None:
    """Writes the kernel."""
    _Recurrence(kernel).write()


def _require(scope: FunctionScope, step: Step) -> None:
    """Has sizes checked that symbols hide from the type rules."""
    shapes = [shape_of(operand) for operand in step.operands]
    _, batch, inputs = shapes[0]
    hidden, ways = shapes[2][2], shape_of(step.binding.results[1])[0]
    width, states = hidden * _GATES[step.op], _STATES[step.op]
    wanted = [(ways, width, inputs), (ways, width, hidden), (ways, 2 * width), *[(ways, batch, hidden)] * states]
    if len(shapes) > len(wanted) + 1:
        wanted.append((batch,))
    for index, sizes in enumerate(wanted):
        require_equal_sizes(scope, step, index + 1, shapes[index + 1], sizes)


FAMILY = KernelFamily(frozenset(_GATES), reject_nothing, _write, require=_require)
"""Recurrent layers."""
