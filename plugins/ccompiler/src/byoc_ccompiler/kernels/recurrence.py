"""Recurrent layers: some sequences of a batch at a time, in one direction, step by step.

A line is a sequence in one direction. The contribution of the input needs no state: it is one product for some steps of
a line, kept in scratch memory. A step adds the product of the states, and then computes elementwise.

The matrices lie in panels, as in :mod:`byoc_ccompiler.kernels.blocks`: constant weights packed during code generation,
others at the start of the call. The columns are the gates of all hidden units, in one part or two; the gates of a part
are computed at once. Zeros fill the last panel of a part up to a vector.

Threads share lines. A single line is shared by panels instead, in each step.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, FunctionScope
from byoc_core.dims import Dim, ceildiv, total
from byoc_core.ir import Constant, Value

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.blocks import block_function, pack_function
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.indexing import range_check
from byoc_ccompiler.kernels.named_schedules import schedule_as_chosen
from byoc_ccompiler.kernels.recurrent_schedule import (
    GATES,
    RecurrenceSchedule,
    RecurrentLayer,
    RecurrentPart,
    choose_schedule,
    offered_schedules,
    parts_of,
)
from byoc_ccompiler.kernels.tiles import multiply
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["FAMILY"]

_STATES = {"nn.rnn": 1, "nn.gru": 1, "nn.lstm": 2}

_Rows = tuple[c.Address, c.Expression]
"""Rows: the first row, and the distance to the next."""

_Count = c.Expression | None


class _UnitLoop:
    """The loop over the hidden units of a line at a step, under construction: the elementwise part behind the products.

    ``gates`` are the sums of the products, ``sums`` include the biases. In a gated recurrent unit, ``inner`` is the
    output of the last gate's matrix on the state, or the input to the matrix.
    """

    def __init__(self, writer: _Recurrence) -> None:
        self.writer, self.index, self.body = writer, c.Variable("k"), list[c.Statement]()
        layer, last = writer.layer, writer.parts[-1]
        gate_offsets = [layer.hidden * gate for gate in range(GATES[layer.op])]
        biases = [writer.direction * (2 * layer.width) + offset for offset in gate_offsets]
        if layer.op == "nn.gru":
            gate_offsets[2] = last.first_column
        line = writer.gates_at + writer.row * writer.span
        self.gates = [writer.gates[line + offset + self.index] for offset in gate_offsets]
        first, second = ([writer.bias[at + n + self.index] for at in biases] for n in (0, layer.width))
        self.entered = list(map(operator.add, self.gates, first))
        self.sums = list(map(operator.add, self.entered, second))
        self.states = [state[writer.line * writer.pitch + self.index] for state in writer.states]
        self.inner = writer.inner[writer.line * last.padded + self.index]

    def let(self, name: str, value: c.Expression) -> c.Variable:
        """Return a variable with a value."""
        self.body.append(let := c.Let(c.Variable(name, value.type), value))
        return let.variable

    def element(self, op: str, name: str, value: c.Expression, *operands: c.Expression) -> c.Variable:
        """Return a variable with the value of an elementwise op."""
        return self.let(name, c.Element(op, (self.let(f"{name}_sum", value), *operands), value.type))

    def store(self, target: c.Load, value: c.Expression) -> None:
        """Store an element."""
        self.body.append(c.Store(target.buffer, target.index, value))

    def opened(self, *names: str) -> list[c.Variable]:
        """Return the sigmoids of the sums of the first gates, a variable for each name."""
        return [self.element("sigmoid", name, value) for name, value in zip(names, self.sums, strict=False)]

    def loop(self, hidden: c.Expression | None = None) -> c.Block:
        """Return the loop over all units, with the store of the new hidden state last, if any."""
        writer = self.writer
        if hidden is not None:
            self.store(self.states[0], hidden)
            if writer.every is not None:
                self.store(writer.every[writer.output_offset(writer.turn(writer.time)) + self.index], hidden)
        return (c.For(self.index, c.Size(0), c.Size(writer.layer.hidden), tuple(self.body), kind=c.LoopKind.VECTOR),)

    def rnn(self) -> c.Block:
        """Return the loop of a plain layer."""
        if self.writer.attrs["activation"] == "tanh":
            return self.loop(self.element("tanh", "hidden", self.sums[0]))
        return self.loop(self.element("maximum", "hidden", self.sums[0], c.Literal(0, self.inner.type)))

    def lstm(self) -> c.Block:
        """Return the loop of a long short-term memory, with the cell as second state."""
        enter, leave, keep = self.opened("enter", "leave", "keep")
        new, cell = self.element("tanh", "new", self.sums[3]), self.states[1]
        new_cell = self.let("cell", keep * cell + enter * new)
        self.store(cell, new_cell)
        return self.loop(self.let("hidden", leave * self.let("reached", c.Element("tanh", (new_cell,), new_cell.type))))

    def gru(self) -> c.Block:
        """Return the loop of a gated recurrent unit with the reset gate behind the matrix; ``inner`` has the bias."""
        update, reset = self.opened("update", "reset")
        return self.mixed(update, self.entered[2] + reset * self.inner)

    def opening_gru(self) -> c.Block:
        """Return the loop opening the gates of a gated recurrent unit with the reset gate before the matrix.

        The sum of the first gate becomes the opened gate; ``inner`` gets the state times the reset gate.
        """
        update, reset = self.opened("update", "reset")
        self.store(self.gates[0], update)
        self.store(self.inner, reset * self.states[0])
        return self.loop()

    def closing_gru(self) -> c.Block:
        """Return the loop after :meth:`opening_gru` and the product of the last gate."""
        return self.mixed(self.let("update", self.gates[0]), self.sums[2])

    def mixed(self, update: c.Expression, entered: c.Expression) -> c.Block:
        """Return the loop computing a hidden state between the new state and the old state."""
        new, unit = self.element("tanh", "new", entered), c.Literal(1, entered.type)
        return self.loop(self.let("hidden", (unit - update) * new + update * self.states[0]))


class _Recurrence:
    """A kernel under construction: lines of a direction, from ``item`` on; ``row`` is the number among these lines.

    ``counts`` are the numbers of steps taken at once, if all are known. ``memory`` declares the regions of scratch
    memory, and ``set_up`` fills the regions before the first step.
    """

    def __init__(self, kernel: Kernel, layer: RecurrentLayer, schedule: RecurrenceSchedule) -> None:
        (step,) = kernel.group.steps
        self.kernel, self.layer, self.schedule, self.attrs = kernel, layer, schedule, step.binding.attrs
        x, weight, recurrence, bias, *optional = step.operands
        initial, lengths = optional[: _STATES[layer.op]], optional[_STATES[layer.op] :]
        self.x, self.bias = kernel.source(x), kernel.source(bias, "bias")
        self.ends = kernel.source(lengths[0], "lengths") if lengths else None
        self.starts = [kernel.source(value, f"initial{number}") for number, value in enumerate(initial)]
        results = step.binding.results
        self.every, *self.lasts = (kernel.target(value) if value in kernel.stored else None for value in results)
        lanes, lines = kernel.unit.lanes(layer.dtype), layer.batch * layer.num_directions
        num_steps, most = layer.num_steps, schedule.steps_at_once
        self.counts: tuple[int, ...] = ()
        if isinstance(most, int) and isinstance(num_steps, int) and not lengths:
            self.counts = (most, num_steps % most)
        self.parts = parts_of(layer, schedule, lanes)
        self.padded, self.pitch = total(part.padded for part in self.parts), ceildiv(layer.hidden, lanes) * lanes
        self.most: c.Expression = c.Size(most) if isinstance(most, int) else c.Variable("most_steps")
        self.set_up: list[c.Statement] = [] if isinstance(self.most, c.Size) else [c.Let(self.most, c.Size(most))]
        self.memory: list[c.Statement] = []
        self.gates = self.region("gates", lines * most * self.padded)
        self.states = [self.region(name, lines * self.pitch) for name in ("hidden", "cell")[: len(initial)]]
        self.inner = self.region("inner", lines * self.parts[-1].padded) if layer.op == "nn.gru" else self.gates
        self.weights = self.panels(weight, "weight", layer.inputs)
        self.matrices = self.panels(recurrence, "recurrence", layer.hidden)
        self.direction, self.row, self.begin, self.slot = c.variables("direction row begin slot")
        self.shares_panels = lines == 1
        self.first: c.Expression = c.Size(0) if self.shares_panels else c.Variable(FIRST_ITEM)
        self.item = c.Size(0) if layer.batch == 1 else c.Variable("item")
        self.line, self.sequence, self.time = self.first + self.row, self.item + self.row, self.begin + self.slot
        self.span = self.most * self.padded
        self.gates_at = self.first * self.span + self.slot * self.padded
        self.limit = c.Size(layer.num_steps) if self.ends is None else c.Cast(self.ends[self.sequence], c.INDEX)

    def region(self, name: str, size: Dim) -> c.Buffer:
        """Return a new part of scratch memory."""
        region = c.Buffer(name, self.layer.dtype, c.MemoryAccess.WRITE, size)
        self.memory.append(self.kernel.in_scratch(region))
        return region

    def panels(self, value: Value, role: str, depth: Dim) -> c.Buffer:
        """Return the panels of matrices."""
        kernel, constants = self.kernel, self.kernel.scope.constants
        if isinstance(value, Constant):
            array = constants.array(value, kernel.scope.where)
            packed = [part.packed(matrix) for matrix in array for part in self.parts]
            return kernel.source(constants.derive(np.concatenate([np.zeros(0, array.dtype), *packed])), role)
        source, target = (
            kernel.source(value, role),
            self.region("panels", self.padded * depth * self.layer.num_directions),
        )
        item, steps = c.Variable("item"), (c.Size(1), c.Size(depth), c.Size(depth))
        for part in self.parts:
            for width, done, stop in part.panels:
                direction, n = item // (stop - done), (item % (stop - done) + done) * part.width
                matrix = c.Address(source, (direction * self.layer.width + part.first + n) * depth)
                address = c.Address(target, (direction * self.padded + part.first_column + n) * depth)
                arguments = (matrix, *steps, c.index_min(c.Size(part.size) - n, width), address)
                call = c.Evaluate(c.Call(pack_function(kernel, self.layer.dtype, width), arguments))
                self.set_up += loops_around((call,), [item], [(stop - done) * self.layer.num_directions], part=0)
        return target

    def run(self) -> c.Block:
        """Return the statements computing all lines."""
        if self.shares_panels:
            return self.lines(c.Size(1))
        end = c.Variable(END_ITEM)
        assert isinstance(self.first, c.Variable)
        return (c.Dispatch(self.first, end, self.lines(end), self.layer.batch * self.layer.num_directions),)

    def lines(self, end: c.Expression) -> c.Block:
        """Return the statements computing the lines from ``first`` to ``end``: per direction, the lines of a batch."""
        if not isinstance(self.item, c.Variable):
            return (c.For(self.direction, self.first, end, self.chunk(c.Size(1))),)
        count, stop = c.Variable("count"), c.Variable("stop")
        before, most = self.direction * self.layer.batch, self.schedule.lines_at_once
        chunk = (c.Let(count, c.index_min(stop - self.item, most)), *self.chunk(count))
        items = c.For(self.item, c.index_max(self.first - before, 0), stop, chunk, step=most)
        direction_body = (c.Let(stop, c.index_min(end - before, self.layer.batch)), items)
        return (c.For(self.direction, c.Size(0), c.Size(self.layer.num_directions), direction_body),)

    def chunk(self, count: c.Expression) -> c.Block:
        """Return the statements computing some lines of a direction side by side."""
        number, most, size = c.Variable("number"), c.Variable("most"), c.Size(self.layer.hidden)
        scratch_offset, tensor_offset = (
            self.line * self.pitch,
            (self.direction * self.layer.batch + self.item + self.row) * self.layer.hidden,
        )
        moves = zip(self.states, self.starts, strict=True)
        block: list[c.Statement] = [
            self.each(count, c.Copy(state, scratch_offset, start, tensor_offset, size)) for state, start in moves
        ]
        if self.ends is None:
            block.append(c.Let(most, c.Size(self.layer.num_steps)))
        else:
            longest = c.Variable("longest")
            block += [
                c.Declare(longest, c.Size(0)),
                self.each(count, c.Assign(longest, c.index_max(self.limit, longest))),
            ]
            # No length exceeds the number of steps: a bound for the work.
            block.append(c.Let(most, c.index_min(longest, self.layer.num_steps)))
        steps = c.For(self.slot, c.Size(0), c.index_min(self.most, most - self.begin), self.step(count))
        body = (c.Let(self.begin, number * self.most), *self.project(count), steps)
        block.append(c.For(number, c.Size(0), (most + (self.most - 1)) // self.most, body))
        if self.ends is not None and self.every is not None:
            turn = c.Variable("turn")
            clear = (c.Clear(self.every, self.output_offset(turn), size),)
            block.append(self.each(count, c.For(turn, self.limit, c.Size(self.layer.num_steps), clear)))
        for state, last in zip(self.states, self.lasts, strict=True):
            if last is not None:
                block.append(self.each(count, c.Copy(last, tensor_offset, state, scratch_offset, size)))
        return tuple(block)

    def each(self, count: c.Expression, *body: c.Statement, at: c.Expression | None = None) -> c.For:
        """Return the loop over ``count`` lines, optionally only over lines with a step at time ``at``."""
        has_step = None if at is None or self.ends is None else at.compare("<", self.limit)
        return c.For(self.row, c.Size(0), count, body if has_step is None else (c.If(has_step, body),))

    def by_direction(self, onward: c.Expression, backward: c.Expression) -> c.Expression:
        """Return the index for the direction."""
        if self.attrs["direction"] == "bidirectional":
            return c.Select(self.direction.compare("==", 0), onward, backward)
        return onward if self.attrs["direction"] == "forward" else backward

    def turn(self, time: c.Expression) -> c.Expression:
        """Return the index of the input taken by a sequence at a time."""
        return self.by_direction(time, self.limit - 1 - time)

    def output_offset(self, turn: c.Expression) -> c.Expression:
        """Return the offset of a hidden state among the states of all steps."""
        return (
            (turn * self.layer.num_directions + self.direction) * self.layer.batch + self.sequence
        ) * self.layer.hidden

    def project(self, count: c.Expression) -> c.Block:
        """Return the product of the input at some steps."""
        step = c.Size(self.layer.batch * self.layer.inputs)
        offset = (self.turn(self.begin) * self.layer.batch + self.item + self.row) * self.layer.inputs
        left = c.Address(self.x, offset), self.by_direction(step, step * -1)
        steps, gates = c.index_min(self.most, self.limit - self.begin), self.first * self.span + self.row * self.span
        block: c.Block = ()
        for part in self.parts:
            sums = c.Address(self.gates, gates + part.first_column), c.Size(self.padded)
            block += self.product(part, self.weights, self.layer.inputs, left, sums, steps, lines=count)
        return block

    def add_states(self, part: RecurrentPart, left: c.Buffer, pitch: Dim, count: c.Expression, sums: _Rows) -> c.Block:
        """Return the product of rows of states, added to sums."""
        rows = c.Address(left, self.first * pitch), c.Size(pitch)
        operands = (part, self.matrices, self.layer.hidden, rows, sums)
        if isinstance(self.layer.batch, int):
            return self.product(*operands, None if self.layer.batch == 1 else count)
        several = self.product(*operands, count)
        return (c.If(count.compare("==", 1), self.product(*operands, None), several),)

    def product(
        self,
        part: RecurrentPart,
        panels: c.Buffer,
        depth: Dim,
        left: _Rows,
        sums: _Rows,
        count: _Count,
        lines: _Count = None,
    ) -> c.Block:
        """Return the statements multiplying rows by the panels of a part, of some depth, and adding to the part's sums.

        A ``count`` of ``None`` is a single row, multiplied by several panels at once. With ``lines``, rows are steps,
        ``count`` of each line, and set the sums of the line.
        """
        block: list[c.Statement] = []
        first, counts = self.direction * (self.padded * depth), () if lines is None else self.counts
        for width, done, stop in part.panels:
            for at_once in self.schedule.panels_at_once if count is None else (1,):
                panel, end = c.Variable("panel"), done + (stop - done) // at_once * at_once
                at, vectors, adds = panel * part.width, width // part.lanes, c.Literal(lines is None, c.BOOL)
                steps = c.Address(panels, first + (at + part.first_column) * depth)
                address = c.Address(sums[0].buffer, sums[0].index + at)
                if count is None:
                    row = ((1, vectors), (left[0], c.Size(0)), steps, c.Size(depth), address)
                    call = multiply(self.kernel, *row, adds=adds, panels=at_once)
                else:
                    callee = block_function(self.kernel, self.layer.dtype, vectors, counts, strided=False)
                    rows = (*left, steps, c.Size(depth), count, address, sums[1], adds)
                    call = c.Evaluate(c.Call(callee, rows))
                body = (call,) if lines is None else (self.each(lines, call, at=self.begin),)
                block.append(self.over_panels(panel, done, end, at_once, body, alternates=lines is None))
                done = end
        return tuple(block)

    def over_panels(
        self, panel: c.Variable, begin: Dim, end: Dim, step: int, body: c.Block, *, alternates: bool
    ) -> c.Statement:
        """Return the loop over panels, some at a time: whole steps.

        If the loop alternates, steps at odd slots take the panels in reverse order. A step then begins with the last
        panels of the step before, still in the cache; in a single order, a cache a little too small keeps no panel.
        """
        count = (end - begin) // step
        first, last, number = c.variables(f"{FIRST_ITEM} {END_ITEM} number")
        start, stop = (first, last) if self.shares_panels else (c.Size(0), c.Size(count))
        turned = c.Select((self.slot % 2).compare("==", 1), start + stop - 1 - number, number)
        index = turned if alternates else number
        loop = c.For(number, start, stop, (c.Let(panel, index * step + begin), *body))
        return c.Dispatch(first, last, (loop,), count) if self.shares_panels else loop

    def step(self, count: c.Expression) -> c.Block:
        """Return the statements of a step of all lines with this step."""
        block: list[c.Statement] = []
        if self.ends is not None and self.layer.batch != 1:
            running = c.Variable("running")
            last = self.each(count, c.Assign(running, self.row + 1), at=self.time)
            block += [c.Declare(running, c.Size(0)), last]
            count = running

        def units(loop: Callable[[_UnitLoop], c.Block]) -> c.For:
            return self.each(count, *loop(_UnitLoop(self)), at=self.time)

        part, states = self.parts[-1], (self.states[0], self.pitch)
        block += self.add_states(self.parts[0], *states, count, (c.Address(self.gates, self.gates_at), self.span))
        if self.layer.op != "nn.gru":
            return (*block, units(_UnitLoop.lstm if self.layer.op == "nn.lstm" else _UnitLoop.rnn))
        if not self.attrs["linear_before_reset"]:
            last_gate = c.Address(self.gates, self.gates_at + part.first_column), self.span
            closed = self.add_states(part, self.inner, part.padded, count, last_gate)
            return (*block, units(_UnitLoop.opening_gru), *closed, units(_UnitLoop.closing_gru))
        width, hidden = self.layer.width, self.layer.hidden
        bias = self.direction * (2 * width) + (width + 2 * hidden)
        start = self.each(count, c.Copy(self.inner, self.line * part.padded, self.bias, bias, c.Size(hidden)))
        inner = c.Address(self.inner, self.first * part.padded), c.Size(part.padded)
        return (*block, start, *self.add_states(part, *states, count, inner), units(_UnitLoop.gru))


def _write(kernel: Kernel) -> None:
    """Write the kernel."""
    layer = RecurrentLayer.of(kernel.group.steps[0])
    default = choose_schedule(layer, kernel.unit)
    kernel.schedule = schedule = schedule_as_chosen(
        kernel, kernel.group.steps[0], default, lambda: offered_schedules(layer, kernel.unit, default)
    )
    writer = _Recurrence(kernel, layer, schedule)
    problem, steps = (layer.op, "a length does not fit the steps"), c.Size(layer.num_steps)
    check = () if writer.ends is None else range_check(kernel, *problem, writer.ends, layer.batch, c.Size(0), steps)
    kernel.finish_block((*check, *writer.memory, *writer.set_up, *writer.run()))


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    layer, shapes = RecurrentLayer.of(step), [shape_of(operand) for operand in step.operands]
    matrices = [(layer.num_directions, layer.width, depth) for depth in (layer.inputs, layer.hidden)]
    states = [(layer.num_directions, layer.batch, layer.hidden)] * _STATES[step.op]
    expected: list[tuple[Dim, ...]] = [*matrices, (layer.num_directions, 2 * layer.width), *states, (layer.batch,)]
    for index, (shape, sizes) in enumerate(zip(shapes[1:], expected, strict=False)):
        require_equal_sizes(scope, step, index + 1, shape, sizes)


FAMILY = KernelFamily(frozenset(GATES), reject_nothing, _write, require=_require)
"""Recurrent layers."""
