"""Attention of few queries: keys and values are read in their places, once for all heads of a group.

A block holds queries of all heads of a group. Scores are dot products along the elements of a key; a register tile of
the values goes along contiguous elements of a value. Nothing is packed: packing reads and writes all keys and values,
more than a few queries read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.attention_block import AttentionBlock
from byoc_ccompiler.kernels.attention_layer import AttentionLayer, AttentionSchedule
from byoc_ccompiler.kernels.blocks import block_function
from byoc_ccompiler.steps import Step
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["InPlaceAttention", "is_readable_in_place", "score_function"]

_ZERO = c.Size(0)

_LEAST_NBYTES = 16
"""Bytes of the narrowest register of a dot product, and so of the smallest head."""

_SQUARES = 4
"""Squares of keys in the nearest cache, passed by one query after the other."""

_VALUE_VECTORS = 4
"""Vectors of a tile of values: with a single row, as many sums as multiply-adds in flight."""


def is_readable_in_place(kernel: Kernel, layer: AttentionLayer, step: Step) -> bool:
    """Return whether keys and values have known, contiguous elements, enough for a register, and known groups."""
    strides = [kernel.strides(operand)[-1] for operand in step.operands[1:3]]
    sizes = layer.size, layer.heads // layer.groups if layer.groups != 0 else 1
    is_known = all(isinstance(size, int) for size in (*sizes, layer.width))
    least = _LEAST_NBYTES // dtype_info(layer.dtype).itemsize
    return is_known and int(str(layer.size)) >= least and strides == [1, 1]


class InPlaceAttention(AttentionBlock):
    """The function of a block of queries of a group of heads.

    Attributes:
        g, block: the group and the number of a block of queries.
    """

    def __init__(self, kernel: Kernel, layer: AttentionLayer, schedule: AttentionSchedule) -> None:
        self.lanes, self.width = kernel.unit.lanes(layer.dtype), int(str(layer.width))
        self.whole_columns = self.width // self.lanes * self.lanes
        schedule = replace(schedule, folds_mask=False)
        super().__init__(kernel, layer, schedule, schedule.keys, self.width)
        self.heads = int(str(layer.heads // layer.groups if layer.groups != 0 else 1))
        self.g, self.block = c.Variable("g"), c.Variable("block")

    def call(self) -> c.Evaluate:
        """Return the call for a block of a group."""
        layer, queries = self.layer, self.schedule.queries
        first, rows = self.block * queries, layer.group_queries
        self.begin(c.index_min(c.Size(rows) - first, queries))
        self.counts = (
            {min(queries, rows), rows % queries} - {0} if isinstance(rows, int) else set(range(1, queries + 1))
        )
        self.steps = self.parameters.size(layer.steps, "steps")
        self.first_query = self.parameters.size(
            _ZERO if isinstance(rows, int) and rows <= queries else first, "first_query"
        )
        self.key, self.key_step = self._rows_of("key", 1)
        self.value, self.value_step = self._rows_of("value", 2)
        return self.finish("attention_in_place", None)

    def _rows_of(self, name: str, operand: int) -> tuple[c.Buffer, c.Expression]:
        """Return a parameter for keys or values of a group, and the distance of their rows."""
        value, parameters = self.step.operands[operand], self.parameters
        batch, group, row, _ = self.kernel.strides(value)
        start = c.Address(self.kernel.source(value, name), self.b * batch + self.g * group)
        return parameters.add(c.Buffer(name, self.layer.dtype), start), parameters.size(row, f"{name}_step")

    def first_row(self, head_stride: c.Expression, step_stride: c.Expression) -> c.Expression:
        """Return the offset of the first head of the group."""
        return self.g * self.heads * head_stride

    def row_offset(self, name: str, head_stride: c.Expression, step_stride: c.Expression) -> c.Expression:
        """Return the offset of a query from the first query of the group."""
        size = self.parameters.size
        head, step = self.first_query + self.row, self.query_step(self.row)
        if self.layer.steps != 1:
            head = _ZERO if self.heads == 1 else head // self.steps
        return head * size(head_stride, f"{name}_head") + step * size(step_stride, f"{name}_step")

    def query_step(self, row: c.Expression) -> c.Expression:
        """Return the number of a row's query along the steps: rows go through the steps of each head in turn."""
        if self.layer.steps == 1:
            return _ZERO
        number = self.first_query + row
        return number if self.heads == 1 else number % self.steps

    def last_step(self) -> c.Expression:
        """Return the number of the last query of a head."""
        return self.steps - 1

    def scores(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the call multiplying queries by keys."""
        function = score_function(self.kernel.unit, self.layer.dtype, int(str(self.layer.size)))
        keys = (c.Address(self.key, first * self.key_step), self.key_step, count)
        queries = (c.Address(self.arrays["queries"], _ZERO), self.count)
        scores = (c.Address(self.arrays["scores"], _ZERO), self.pitches["scores"])
        return (self.kernel.call(function, *queries, *keys, *scores),)

    def sums(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the products of weights and values: tiles of whole vectors, and loops over the columns behind."""
        weights, results = self.arrays["scores"], self.arrays["results"]
        weight_pitch, pitch = self.pitches["scores"], self.pitches["results"]
        block: list[c.Statement] = []
        start = 0
        while start < self.whole_columns:
            vectors = min(_VALUE_VECTORS, (self.whole_columns - start) // self.lanes)
            function = block_function(self.kernel, self.layer.dtype, vectors, self.counts, strided=True)
            values = (c.Address(self.value, first * self.value_step + start), self.value_step, count)
            target = (self.count, c.Address(results, c.Size(start)), pitch, c.Literal(True, c.BOOL))
            block.append(c.Evaluate(c.Call(function, (c.Address(weights, _ZERO), weight_pitch, *values, *target))))
            start += vectors * self.lanes
        if start < self.width:
            block += self._last_columns(first, count)
        return tuple(block)

    def _last_columns(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the loops adding products of the columns not filling a vector."""
        t, e, weight = c.Variable("t"), c.Variable("e"), c.Variable("weight", self.type)
        results, at = self.arrays["results"], self.row * self.pitches["results"] + e
        value = self.value[(first + t) * self.value_step + e]
        column = c.Store(results, at, results[at] + weight * value)
        columns = c.For(e, c.Size(self.whole_columns), c.Size(self.width), (column,))
        return self.each_row(c.For(t, _ZERO, count, (c.Let(weight, self.line[t]), columns)))


@cache
def score_function(unit: VectorUnit, dtype: str, size: int) -> c.Function:
    """Return the function multiplying queries by keys: ``scores[j * pitch + t] = sum over d of q[j][d] * key[t][d]``.

    C signature: ``(queries, num_queries, keys, key_step, num_keys, scores, pitch)``. Queries have ``size`` elements and
    lie one behind the other. Keys go through the registers in squares, of as many keys as lanes in a register: a
    register for each key, then a tree of shuffles from the registers of partial sums to the register of scores. A few
    squares are read from memory for the first query, and from the nearest cache for the others. The last square repeats
    the last key: scores behind ``num_keys``, up to a whole register, are written but have no meaning.
    """
    return _ScoreFunction(unit, c.CType(dtype), size).function()


class _ScoreFunction:
    def __init__(self, unit: VectorUnit, type_: c.CType, size: int) -> None:
        lanes = unit.lanes(type_.dtype)
        while lanes > size:
            lanes //= 2
        self.type, self.size, self.lanes, self.vector = type_, size, lanes, type_.with_lanes(lanes)
        # Vectors of a query in registers, beside the sums and a product.
        self.num_parts = max(1, min(8, unit.registers - lanes - 2))
        self.queries, self.keys = c.Buffer("queries", type_.dtype), c.Buffer("keys", type_.dtype)
        self.scores = c.Buffer("scores", type_.dtype, c.MemoryAccess.WRITE)
        self.num_queries, self.key_step, self.num_keys, self.pitch = c.variables("num_queries key_step num_keys pitch")
        self.first, self.query = c.variables("first query")

    def function(self) -> c.Function:
        """Return the function."""
        chunk, end, first, lanes = *c.variables("chunk end"), self.first, self.lanes
        size = _SQUARES * lanes
        straight = [first + number for number in range(lanes)]
        repeated = [c.index_min(key, self.num_keys - 1) for key in straight]
        is_whole = (first + lanes).compare("<=", self.num_keys)
        square = (c.If(is_whole, self._square(straight), self._square(repeated)),)
        squares = c.For(first, chunk, end, square, step=lanes)
        rows = c.For(self.query, _ZERO, self.num_queries, (squares,))
        chunks = (c.Let(end, c.index_min(self.num_keys, chunk + size)), rows)
        body = (c.For(chunk, _ZERO, self.num_keys, chunks, step=size),)
        parameters = (
            self.queries,
            self.num_queries,
            self.keys,
            self.key_step,
            self.num_keys,
            self.scores,
            self.pitch,
        )
        return c.Function(f"scores_{c_suffix(self.type.dtype)}_{self.size}", parameters, body, is_contracted=True)

    def _square(self, keys: Sequence[c.Expression]) -> c.Block:
        """Return the statements multiplying a query by some keys."""
        starts = [c.Variable("start") for _ in keys]
        lets = [c.Let(start, key * self.key_step) for start, key in zip(starts, keys, strict=True)]
        sums = [c.Variable("sum", self.vector) for _ in keys]
        zero = c.Broadcast(c.Literal(0, self.type), self.lanes)
        body: list[c.Statement] = [c.Declare(total, zero) for total in sums]
        for begin in range(0, self.size, self.num_parts * self.lanes):
            body += self._products(begin, starts, sums)
        return (*lets, *body, *self._tree(sums))

    def _products(self, begin: int, starts: Sequence[c.Variable], sums: Sequence[c.Variable]) -> c.Block:
        """Return the statements adding the products of the elements from ``begin`` on, as many as held in registers."""
        end, lanes, row = min(self.size, begin + self.num_parts * self.lanes), self.lanes, self.query * self.size
        parts: list[tuple[int, c.Variable]] = []
        body: list[c.Statement] = []
        for at in range(begin, end, lanes):
            position = min(at, self.size - lanes)
            part, loaded = c.Variable("part", self.vector), c.Load(self.queries, row + position, lanes)
            body.append(c.Let(part, self._fresh(loaded, at - position)))
            parts.append((at, part))
        for start, total in zip(starts, sums, strict=True):
            for at, part in parts:
                position = min(at, self.size - lanes)
                key = self._fresh(c.Load(self.keys, start + position, lanes), at - position)
                body.append(c.Assign(total, total + part * key))
        return tuple(body)

    def _fresh(self, vector: c.Expression, num_old: int) -> c.Expression:
        """Return a vector with zeros in lanes of elements multiplied already."""
        if num_old == 0:
            return vector
        number = c.CType(f"int{8 * self.type.nbytes}")
        lane_numbers = c.Literal(tuple(range(self.lanes)), number.with_lanes(self.lanes))
        is_fresh = lane_numbers.compare(">=", c.Broadcast(c.Literal(num_old, number), self.lanes))
        return c.Select(is_fresh, vector, c.Broadcast(c.Literal(0, self.type), self.lanes))

    def _tree(self, sums: Sequence[c.Variable]) -> c.Block:
        """Return the statements adding the lanes of each sum, and storing the totals side by side.

        In each round, halves of parts of two registers become the parts of one. The parts of the two stand in turn, in
        order of the lanes' bits from last to first: registers are paired in this order too.
        """
        lanes, body = self.lanes, list[c.Statement]()
        bits = lanes.bit_length() - 1
        registers = [sums[int(f"{number:0{bits}b}"[::-1], 2)] for number in range(lanes)] if bits else list(sums)
        half = lanes // 2
        while half:
            low = tuple(lane - half + lanes if lane & half else lane for lane in range(lanes))
            high = tuple(lane + lanes if lane & half else lane + half for lane in range(lanes))
            paired = []
            for left, right in zip(registers[::2], registers[1::2], strict=True):
                added = c.Variable("added", self.vector)
                body.append(c.Let(added, c.Shuffle(left, right, low) + c.Shuffle(left, right, high)))
                paired.append(added)
            registers, half = paired, half // 2
        body.append(c.Store(self.scores, self.query * self.pitch + self.first, registers[0]))
        return tuple(body)
