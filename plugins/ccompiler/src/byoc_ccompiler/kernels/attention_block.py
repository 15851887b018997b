"""The C function that computes a block of queries of an attention, from the packed keys and values of their head.

The queries go along the keys block by block: a tile of scores, their exponentials under the largest score so far, and
their product with the values, which is scaled whenever the largest score grows. Source of the running softmax: Milakov
and Gimelshein 2018, "Online normalizer calculation for softmax"; of its use in attention: Dao et al. 2022,
"FlashAttention". Where scores are a result too, all keys are one block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim, ceildiv, total
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value

from byoc_ccompiler.attributes import dim_of, flag_of, float_of
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.blocks import block_function
from byoc_ccompiler.kernels.epilogue import index_term
from byoc_ccompiler.kernels.fetching import fetch
from byoc_ccompiler.kernels.row_reducers import row_function
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["AttentionBlock", "AttentionPlan"]

_VECTORS = 2
"""Vectors in a row of a panel."""

_LINE_NBYTES = 2048
"""Bytes of the scores of one query that are at hand at once."""

_MAX_SIZE = 512
"""The largest size of a head for which the arrays of a block lie on the stack."""


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """The sizes of one attention, as of ``(B, H, S, D), (B, G, T, D), (B, G, T, E)``, and of its tiles.

    Attributes:
        rows: queries of a block.
        columns: columns of a panel.
        keys: keys whose scores are at hand at once.
        stage: the stage whose scores are a result; empty for none.
        has_mask: whether a mask of one number for each key is one more element of the keys, and 1 of the queries.
    """

    batch: Dim
    heads: Dim
    groups: Dim
    steps: Dim
    length: Dim
    size: Dim
    width: Dim
    rows: int
    columns: int
    keys: int
    stage: str
    has_mask: bool

    @classmethod
    def of_kernel(cls, kernel: Kernel, step: Step) -> AttentionPlan:
        """Return the plan of a kernel that is one attention."""
        (batch, heads, steps, size), (_, groups, length, _), (*_, width) = map(shape_of, step.operands[:3])
        stage, dtype = str(step.binding.attrs["scores"] or ""), dtype_of(step.operands[0])
        tile = (kernel.unit.panel_rows(_VECTORS), _VECTORS * kernel.unit.lanes(dtype))
        keys = _LINE_NBYTES // dtype_info(dtype).itemsize
        spread = any((1, 1, 1, *shape_of(mask))[-3:] == (1, 1, length) for mask in step.operands[3:])
        has_mask = spread and not stage and not float_of(step.binding, "softcap")
        return cls(batch, heads, groups, steps, length, size, width, *tile, keys, stage, has_mask)

    @property
    def depth(self) -> Dim:
        """Elements of a query and of a key in a product."""
        return self.size + int(self.has_mask)

    @property
    def key_panels(self) -> Dim:
        """Elements of the packed keys of one head."""
        return ceildiv(self.length, self.columns) * self.columns * self.depth

    @property
    def padded_width(self) -> Dim:
        """Elements of a row of results before they are divided."""
        return ceildiv(self.width, self.columns) * self.columns

    @property
    def panels(self) -> Dim:
        """Elements of the packed keys and values of one head."""
        return self.key_panels + self.padded_width * self.length

    @property
    def pitch(self) -> Dim:
        """Elements from one row of scores to the next."""
        return ceildiv(self.length, self.columns) * self.columns if self.stage else self.keys

    @property
    def arrays(self) -> dict[str, Dim]:
        """The elements of the arrays that a block needs."""
        rows = {"queries": self.depth, "scores": self.pitch, "results": self.padded_width}
        return {name: size * self.rows for name, size in {**rows, "tops": 1, "totals": 1, "scales": 1}.items()}

    @property
    def is_local(self) -> bool:
        """Whether the arrays lie on the stack."""
        is_small = all(isinstance(size, int) and size <= _MAX_SIZE for size in (self.size, self.width))
        return is_small and not self.stage


class AttentionBlock:
    """A call of the function, and the function under construction.

    Args:
        kernel: the kernel that calls it.
        plan: the sizes.
        place: the numbers of the image and of the head, and the first query.
    """

    def __init__(self, kernel: Kernel, plan: AttentionPlan, place: Sequence[c.Expression]) -> None:
        (self._step,) = kernel.group.steps
        self._kernel, self._plan, self._place = kernel, plan, place
        self._dtype = dtype_of(self._step.operands[0])
        self._type = c.CType(self._dtype)
        self._none = c.Literal(float("-inf"), self._type)
        self._arguments: dict[c.Buffer | c.Variable, c.Expression] = {}
        self._sizes: dict[c.Expression, c.Variable] = {}
        arrays = plan.arrays.items()
        self._arrays = {name: c.Buffer(name, self._dtype, c.MemoryAccess.WRITE, size) for name, size in arrays}

    def call(self, panels: c.Address, mine: c.Address | None) -> c.Evaluate:
        """Return the call.

        Args:
            panels: where the packed keys and values of the head lie.
            mine: scratch memory for the arrays; ``None`` where they lie on the stack.
        """
        plan, steps = self._plan, self._plan.steps
        self._panels = self._buffer("panels", panels)
        self._count = self._size(c.index_min(c.Size(steps) - self._place[2], plan.rows), "count")
        # Where only a call shows how many queries the last block has, its tiles compute rows that nobody reads.
        counts = {min(plan.rows, steps), steps % plan.rows} if isinstance(steps, int) else {plan.rows}
        self._tile_rows = self._count if isinstance(steps, int) else c.Size(plan.rows)
        self._tile = block_function(self._kernel, self._dtype, _VECTORS, counts - {0}, strided=False)
        self._depth, self._width = self._size(plan.depth, "depth"), self._size(plan.padded_width, "width")
        self._pitch, self._length = self._size(plan.pitch, "pitch"), c.Variable("length")
        self._arguments[self._length] = c.Size(plan.length)
        body = (*self._declarations(mine), *self._opening(), *self._walk(), *self._closing())
        function = c.simplify(c.Function(f"attention_{c_suffix(self._dtype)}", tuple(self._arguments), body))
        return c.Evaluate(c.Call(self._kernel.shared_function(function), tuple(self._arguments.values())))

    def _buffer(self, name: str, start: c.Address, access: c.MemoryAccess = c.MemoryAccess.READ) -> c.Buffer:
        """Return a parameter that points to memory of the kernel."""
        buffer = c.Buffer(name, self._dtype, access)
        self._arguments[buffer] = start
        return buffer

    def _size(self, value: c.Expression | Dim, name: str) -> c.Expression:
        """Return a size or an index of the kernel: a parameter, unless it is a known number."""
        value = value if isinstance(value, c.Expression) else c.Size(value)
        if isinstance(value, c.Size) and isinstance(value.dim, int):
            return value
        if value not in self._sizes:
            self._sizes[value] = c.Variable(name)
            self._arguments[self._sizes[value]] = value
        return self._sizes[value]

    def _tensor(self, name: str, value: Value) -> tuple[c.Buffer, c.Expression, c.Expression]:
        """Return a parameter for a tensor from the block's first row on, and its strides along the last two axes."""
        plan, dims, strides = self._plan, shape_of(value), self._kernel.strides(value)
        made = [result for result in self._step.binding.results if result is value]
        buffer = self._kernel.target(made[0]) if made else self._kernel.source(value, name)
        scores = (plan.batch, plan.heads, plan.steps, plan.length)[4 - len(dims) :]
        wholes = scores if value in self._step.operands[3:] else dims
        found = [index_term(c.Size(1), *axis) for axis in zip(dims, wholes, strides, strict=True)]
        found = [*[c.Size(0)] * (4 - len(dims)), *found]
        start: c.Expression = c.Size(0)
        for index, stride in zip(self._place, found, strict=False):
            start = start + index * stride
        parameter = self._buffer(name, c.Address(buffer, start), buffer.access)
        return parameter, self._size(found[2], f"{name}_step"), self._size(found[3], f"{name}_stride")

    def _declarations(self, mine: c.Address | None) -> c.Block:
        """Return the declarations of the arrays."""
        if mine is None:
            return tuple(c.LocalArray(array, alignment=64) for array in self._arrays.values())
        memory, sizes = self._buffer("mine", mine, c.MemoryAccess.WRITE), list(self._plan.arrays.values())
        places = (self._size(total(sizes[:number]), "place") for number in range(len(sizes)))
        return tuple(c.Alias(array, memory, place) for array, place in zip(self._arrays.values(), places, strict=True))

    def _rows(self, body: Callable[[c.Expression, c.Buffer], c.Block]) -> c.Block:
        """Return the loop over the queries, with the scores of each."""
        row, line = c.Variable("row"), c.Buffer("line", self._dtype, c.MemoryAccess.WRITE)
        statements = body(row, line)
        alias = c.Alias(line, self._arrays["scores"], row * self._pitch)
        return (c.For(row, c.Size(0), self._count, (alias, *statements)),) if statements else ()

    def _multiply(self, left: str, panel: c.Expression, depth: c.Expression, sums: c.Address) -> c.Evaluate:
        """Return the call that multiplies the rows of an array by a panel; sums of results are added to."""
        arrays = {"queries": self._depth, "scores": self._pitch, "results": self._width}
        adds = c.Literal(left == "scores", c.BOOL)
        start, panels = c.Address(self._arrays[left], c.Size(0)), c.Address(self._panels, panel)
        operands = (start, arrays[left], panels, depth, self._tile_rows, sums, arrays[sums.buffer.name], adds)
        return c.Evaluate(c.Call(self._tile, (*operands, c.Size(0), c.Size(0))))

    def _opening(self) -> c.Block:
        """Return the statements that scale the queries, and set sums and results to zero."""
        row, d, queries = c.Variable("row"), c.Variable("d"), self._arrays["queries"]
        query, step, stride = self._tensor("query", self._step.operands[0])
        scaled = c.Store(queries, row * self._depth + d, query[row * step + d * stride] * self._scale())
        start: list[c.Statement] = [
            c.For(d, c.Size(0), self._size(self._plan.size, "size"), (scaled,)),
            c.Store(self._arrays["totals"], row, c.Literal(0, self._type)),
            c.Store(self._arrays["tops"], row, self._none),
        ]
        if self._plan.has_mask:
            start.append(c.Store(queries, (row + 1) * self._depth - 1, c.Literal(1, self._type)))
        filled = self._tile_rows * self._depth - self._count * self._depth
        return (
            c.For(row, c.Size(0), self._count, tuple(start)),
            *(() if self._tile_rows is self._count else (c.Clear(queries, self._count * self._depth, filled),)),
            c.Clear(self._arrays["results"], c.Size(0), self._width * self._plan.rows),
        )

    def _scale(self) -> c.Expression:
        given, size, double = self._step.binding.attrs["scale"], self._plan.size, c.CType("float64")
        if given is not None or isinstance(size, int):
            value = 1 / math.sqrt(max(int(str(size)), 1)) if given is None else float(str(given))
            return c.Literal(value, self._type)
        root = c.Call(c.Callee("sqrt", np.sqrt, flops=1), (c.Cast(c.index_max(c.Size(size), 1), double),), double)
        scale = c.Variable("scale", self._type)
        self._arguments[scale] = c.Cast(c.Literal(1, double) / root, self._type)
        return scale

    def _walk(self) -> c.Block:
        """Return the statements that go along the keys."""
        if self._plan.stage:
            return self._keys(c.Size(0), self._length)
        limit, first, count, last = (*map(c.Variable, ("limit", "first", "block")), self._last(self._count - 1))
        seen = self._length if last is None else c.index_max(c.index_min(last + 1, self._length), 0)
        some = c.Let(count, c.index_min(limit - first, self._plan.keys))
        return (
            c.Let(limit, seen),
            c.For(first, c.Size(0), limit, (some, *self._keys(first, count)), step=self._plan.keys),
        )

    def _last(self, row: c.Expression) -> c.Expression | None:
        """Return the last key that a query sees; ``None`` where it sees all."""
        if not flag_of(self._step.binding, "causal"):
            return None
        return self._size(self._place[2] + dim_of(self._step.binding, "offset"), "last") + row

    def _keys(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements that deal with so many keys from the first one on."""
        plan, t, e = self._plan, c.Variable("t"), c.Variable("e")
        scores, results = c.Address(self._arrays["scores"], t), c.Address(self._arrays["results"], e)
        values = self._size(plan.key_panels, "values") + e * self._length + first * plan.columns
        products = self._multiply("queries", (first + t) * self._depth, self._depth, scores)
        sums = self._multiply("scores", values, count, results)
        return (
            c.For(t, c.Size(0), count, (products,), step=plan.columns),
            *self._masked(first, count),
            *self._softmax(count),
            c.For(e, c.Size(0), self._width, (sums,), step=plan.columns),
        )

    def _masked(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements that cap and mask scores, and store those of a stage."""
        t, cap, zero = c.Variable("t"), float_of(self._step.binding, "softcap"), c.Size(0)
        masks = [self._tensor("mask", mask) for mask in self._step.operands[3:] if not self._plan.has_mask]

        def of_row(row: c.Expression, line: c.Buffer) -> c.Block:
            block = self._stored("products", row, line)
            if cap:
                part, limit = c.Variable("part", self._type), c.Literal(cap, self._type)
                capped = c.Element("tanh", (part,), self._type) * limit
                block += (c.For(t, zero, count, (c.Let(part, line[t] / limit), c.Store(line, t, capped))),)
            block += self._stored("capped", row, line)
            for mask, step, stride in masks:
                at = row * step + first * stride
                if stride == c.Size(1) and step != zero:
                    block += (fetch(mask, at + self._plan.keys, self._plan.keys * dtype_info(self._dtype).itemsize),)
                block += (c.For(t, zero, count, (c.Store(line, t, line[t] + mask[at + t * stride]),)),)
            last = self._last(row)
            if last is not None:
                block += (c.For(t, c.index_max(last + 1 - first, 0), count, (c.Store(line, t, self._none),)),)
            return block + self._stored("masked", row, line)

        return self._rows(of_row)

    def _stored(self, stage: str, row: c.Expression, line: c.Buffer, divisor: c.Expression | None = None) -> c.Block:
        """Return the statements that store the scores of a stage, where they are a result."""
        results = self._step.binding.results[1:]
        if self._plan.stage != stage or results[0] not in self._kernel.stored:
            return ()
        t, (out, step, stride) = c.Variable("t"), self._tensor("stage", results[0])
        value = line[t] if divisor is None else line[t] / divisor
        return (c.For(t, c.Size(0), self._length, (c.Store(out, row * step + t * stride, value),)),)

    def _softmax(self, count: c.Expression) -> c.Block:
        """Return the statements that turn scores to weights under the largest score so far, and scale what was summed.

        The loops over rows are several, so that the steps of one row need not wait for those of another.
        """
        tops, totals, scales, results = (self._arrays[name] for name in ("tops", "totals", "scales", "results"))
        exp = c.Callee(f"byoc_exp_nonpositive_{c_suffix(self._dtype)}", np.exp, flops=1)
        t, e, base, best, top, scale = (
            c.Variable(name, c.INDEX if name in "te" else self._type)
            for name in ("t", "e", "base", "best", "top", "scale")
        )

        def reduced(op: str, line: c.Buffer) -> c.Expression:
            function = row_function(self._kernel.unit, op, self._dtype)
            return c.Call(function, (c.Address(line, c.Size(0)), count), self._type)

        def powers(index: c.Variable, end: c.Expression, array: c.Buffer, value: c.Expression) -> c.For:
            return c.For(index, c.Size(0), end, (c.Store(array, index, c.Call(exp, (value,), self._type)),))

        def limits(row: c.Expression, line: c.Buffer) -> c.Block:
            return (
                c.Let(best, reduced("max", line)),
                c.Let(top, c.Select(tops[row].compare(">", best), tops[row], best)),
                c.Store(scales, row, tops[row] - lowest(top)),
                c.Store(tops, row, top),
            )

        def lowest(value: c.Expression) -> c.Expression:
            # Where no key is seen yet, nothing may become NaN for that.
            return c.Select(value.compare("==", self._none), c.Literal(0, self._type), value)

        def weights(row: c.Expression, line: c.Buffer) -> c.Block:
            return (c.Let(base, lowest(tops[row])), powers(t, count, line, line[t] - base))

        def sums(row: c.Expression, line: c.Buffer) -> c.Block:
            at = row * self._width + e
            return (
                c.Let(scale, scales[row]),
                c.Store(totals, row, totals[row] * scale + reduced("sum", line)),
                c.For(e, c.Size(0), self._width, (c.Store(results, at, results[at] * scale),)),
            )

        row = c.Variable("row")
        scaling = powers(row, self._count, scales, scales[row])
        return (*self._rows(limits), scaling, *self._rows(weights), *self._rows(sums))

    def _closing(self) -> c.Block:
        """Return the statements that divide the results by the sums of the weights."""
        result, whole, e = self._step.binding.results[0], c.Variable("total", self._type), c.Variable("e")
        results, totals, zero = self._arrays["results"], self._arrays["totals"], c.Literal(0, self._type)
        outs = [self._tensor("out", result)] if result in self._kernel.stored else []

        def of_row(row: c.Expression, line: c.Buffer) -> c.Block:
            # Without a weight: zeros over zero, which is NaN, or over one; without a key always the latter.
            is_zero = flag_of(self._step.binding, "zero_unseen")
            unseen = totals[row].compare("==", zero) if is_zero else self._length.compare("==", 0)
            block: c.Block = (c.Let(whole, c.Select(unseen, c.Literal(1, self._type), totals[row])),)
            block += self._stored("weights", row, line, whole)
            for out, step, stride in outs:
                share = c.Store(out, row * step + e * stride, results[row * self._width + e] / whole)
                block += (c.For(e, c.Size(0), self._size(self._plan.width, "columns"), (share,)),)
            return block

        return self._rows(of_row)
