"""A block of attention: the queries of a call of a C function, beside running sums of softmax and of values.

The function goes along the keys block by block: a tile of scores, their exponentials under the largest score so far,
and their product with the values, scaled whenever the largest score grows. If scores are a result too, all keys form a
single block. Subclasses place keys and values, and locate the rows of tensors.

Source of the running softmax: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; of its use in
attention: Dao et al. 2022, "FlashAttention".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import partial
from itertools import repeat

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.dims import Dim, total
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value

from byoc_ccompiler.attributes import dim_of, flag_of, float_of
from byoc_ccompiler.function_parameters import FunctionParameters
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.attention_layer import AttentionLayer, AttentionSchedule
from byoc_ccompiler.kernels.copies import fetch, index_term
from byoc_ccompiler.kernels.row_reducers import row_function
from byoc_ccompiler.steps import shape_of

__all__ = ["AttentionBlock"]


class AttentionBlock(ABC):
    """The function of a block under construction.

    Args:
        kernel: the kernel of attention.
        layer: the layer.
        schedule: the schedule.
        length: the scores of a query at hand at once.
        width: the elements of a row of results.

    Attributes:
        widths: the elements per query in the arrays of a block.
        count: the queries of the block; set by :meth:`begin`.
    """

    count: c.Expression

    def __init__(
        self, kernel: Kernel, layer: AttentionLayer, schedule: AttentionSchedule, length: Dim, width: Dim
    ) -> None:
        (self.step,) = kernel.group.steps
        self.kernel, self.layer, self.schedule, self.type = kernel, layer, schedule, c.CType(layer.dtype)
        self.depth = layer.size + int(schedule.folds_mask)
        self.widths: dict[str, Dim] = {"queries": self.depth, "scores": length, "results": width}
        self.widths |= {"tops": 1, "totals": 1, "scales": 1}
        written = partial(c.Buffer, dtype=layer.dtype, access=c.MemoryAccess.WRITE)
        self.arrays = {name: written(name, size=size * schedule.queries) for name, size in self.widths.items()}
        self.minus_infinity, self.zero, self.literal_one = (
            c.Literal(value, self.type) for value in (float("-inf"), 0, 1)
        )
        self.b, self.row = c.Variable("b"), c.Variable("row")
        self.line, self.parameters = written("line"), FunctionParameters()

    @property
    def arrays_size(self) -> Dim:
        """The elements of all arrays."""
        return total(self.widths.values()) * self.schedule.queries

    @abstractmethod
    def first_row(self, head_stride: c.Expression, step_stride: c.Expression) -> c.Expression:
        """Return the offset in a tensor of the block's first row in a batch, from the strides along heads and steps."""

    @abstractmethod
    def row_offset(self, name: str, head_stride: c.Expression, step_stride: c.Expression) -> c.Expression:
        """Return the offset of a row from the block's first row in the tensor ``name``."""

    @abstractmethod
    def query_step(self, row: c.Expression) -> c.Expression:
        """Return the number of a row's query along the steps."""

    @abstractmethod
    def last_step(self) -> c.Expression:
        """Return the largest number of a query of the block along the steps."""

    @abstractmethod
    def scores(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements multiplying the queries by ``count`` keys from the first on."""

    @abstractmethod
    def sums(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements adding the products of weights and ``count`` values from the first on."""

    def cleared_rows(self) -> c.Block:
        """Return the statements clearing rows of queries behind the block's last query."""
        return ()

    def begin(self, count: c.Expression) -> None:
        """Collect the parameters common to all blocks."""
        sizes = self.parameters
        self.count = sizes.size(count, "count")
        names = {"queries": "depth", "results": "width", "scores": "pitch"}
        self.pitches = {array: sizes.size(self.widths[array], name) for array, name in names.items()}
        self.seen = sizes.add(c.Variable("length"), c.Size(self.layer.length))

    def finish(self, name: str, arrays: c.Address | None) -> c.Evaluate:
        """Return the call of the function, with memory for the arrays; ``None``: on the stack."""
        body = (*self.declarations(arrays), *self.opening(), *self.walk(), *self.closing())
        return self.parameters.call(self.kernel, f"{name}_{c_suffix(self.layer.dtype)}", body)

    def tensor(self, name: str, value: Value) -> tuple[c.Buffer, c.Expression, c.Expression]:
        """Return a parameter for a tensor from the block's first row on, the offset of a row, and the last stride."""
        outputs = [result for result in self.step.binding.results if result is value]
        buffer = self.kernel.target(outputs[0]) if outputs else self.kernel.source(value, name)
        dims, strides = (1, 1, 1, 1, *shape_of(value))[-4:], (0, 0, 0, 0, *self.kernel.strides(value))[-4:]
        layer = self.layer
        scores = layer.batch, layer.heads, layer.steps, layer.length
        axes = zip(dims, scores if value in self.step.operands[3:] else dims, strides, strict=True)
        batch, head, step, element = (index_term(c.Size(1), *axis) for axis in axes)
        start = self.b * batch + self.first_row(head, step)
        parameter = self.parameters.add(c.Buffer(name, layer.dtype, buffer.access), c.Address(buffer, start))
        return parameter, self.row_offset(name, head, step), self.parameters.size(element, f"{name}_stride")

    def declarations(self, arrays: c.Address | None) -> c.Block:
        """Return the declarations of the arrays."""
        if arrays is None:
            return tuple(c.LocalArray(array, alignment=64) for array in self.arrays.values())
        memory = self.parameters.add(c.Buffer("arrays", self.layer.dtype, c.MemoryAccess.WRITE), arrays)
        sizes = [self.schedule.queries * size for size in self.widths.values()]
        offsets = [self.parameters.size(total(sizes[:number]), "offset") for number in range(len(sizes))]
        return tuple(map(c.Alias, self.arrays.values(), repeat(memory), offsets))

    def each_row(self, *body: c.Statement) -> c.Block:
        """Return the loop over the queries, with the scores of each query in the line."""
        alias = c.Alias(self.line, self.arrays["scores"], self.row * self.pitches["scores"])
        return (c.For(self.row, c.Size(0), self.count, (alias, *body)),) if body else ()

    def opening(self) -> c.Block:
        """Return the statements scaling the queries, and clearing sums and results."""
        row, d, queries, pitch = self.row, c.Variable("d"), self.arrays["queries"], self.pitches["queries"]
        query, offset, stride = self.tensor("query", self.step.operands[0])
        scaled = c.Store(queries, row * pitch + d, query[offset + d * stride] * self.scale())
        start = (
            c.For(d, c.Size(0), self.parameters.size(self.layer.size, "size"), (scaled,)),
            *(c.Store(self.arrays["totals"], row, self.zero), c.Store(self.arrays["tops"], row, self.minus_infinity)),
            *((c.Store(queries, (row + 1) * pitch - 1, self.literal_one),) if self.schedule.folds_mask else ()),
        )
        return (
            c.For(row, c.Size(0), self.count, start),
            *self.cleared_rows(),
            c.Clear(self.arrays["results"], c.Size(0), self.pitches["results"] * self.schedule.queries),
        )

    def scale(self) -> c.Expression:
        """Return the factor of the queries."""
        scale, size, double = self.step.binding.attrs["scale"], self.layer.size, c.CType("float64")
        if scale is not None or isinstance(size, int):
            value = 1 / math.sqrt(max(int(str(size)), 1)) if scale is None else float(str(scale))
            return c.Literal(value, self.type)
        root = c.Call(c.Callee("sqrt", np.sqrt, flops=1), (c.Cast(c.index_max(c.Size(size), 1), double),), double)
        return self.parameters.add(c.Variable("scale", self.type), c.Cast(c.Literal(1, double) / root, self.type))

    def walk(self) -> c.Block:
        """Return the statements going along the keys."""
        if self.layer.stage:
            return self.block_of_keys(c.Size(0), self.seen)
        limit, first, count, last = (*map(c.Variable, ("limit", "first", "block")), self.last_key(self.last_step()))
        seen = self.seen if last is None else c.index_max(c.index_min(last + 1, self.seen), 0)
        keys = (c.Let(count, c.index_min(limit - first, self.schedule.keys)), *self.block_of_keys(first, count))
        return c.Let(limit, seen), c.For(first, c.Size(0), limit, keys, step=self.schedule.keys)

    def last_key(self, query: c.Expression) -> c.Expression | None:
        """Return the last key seen by a query from its number along the steps; ``None`` if the query sees all."""
        if not flag_of(self.step.binding, "causal"):
            return None
        return self.parameters.size(c.Size(dim_of(self.step.binding, "offset")), "offset") + query

    def block_of_keys(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements for ``count`` keys from the first on."""
        return (
            *self.scores(first, count),
            *self.masked(first, count),
            *self.softmax(count),
            *self.sums(first, count),
        )

    def masked(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements capping and masking scores, and storing the scores of a stage."""
        row, line, t, cap = self.row, self.line, c.Variable("t"), float_of(self.step.binding, "softcap")
        masks = [self.tensor("mask", mask) for mask in self.step.operands[3:] if not self.schedule.folds_mask]
        block = self.stored("products")
        if cap:
            part, limit = c.Variable("part", self.type), c.Literal(cap, self.type)
            capped = c.Element("tanh", (part,), self.type) * limit
            block += (c.For(t, c.Size(0), count, (c.Let(part, line[t] / limit), c.Store(line, t, capped))),)
        block += self.stored("capped")
        for mask, offset, stride in masks:
            at = offset + first * stride
            if stride == c.Size(1) and offset != c.Size(0):
                ahead = self.schedule.keys
                block += (fetch(mask, at + ahead, ahead * dtype_info(self.layer.dtype).itemsize),)
            block += (c.For(t, c.Size(0), count, (c.Store(line, t, line[t] + mask[at + t * stride]),)),)
        last = self.last_key(self.query_step(row))
        if last is not None:
            block += (c.For(t, c.index_max(last + 1 - first, 0), count, (c.Store(line, t, self.minus_infinity),)),)
        return self.each_row(*block, *self.stored("masked"))

    def stored(self, stage: str, divisor: c.Expression | None = None) -> c.Block:
        """Return the statements storing the scores of a stage; none if the scores are no result."""
        results = self.step.binding.results[1:]
        if self.layer.stage != stage or results[0] not in self.kernel.stored:
            return ()
        t, (out, offset, stride) = c.Variable("t"), self.tensor("stage", results[0])
        value = self.line[t] if divisor is None else self.line[t] / divisor
        return (c.For(t, c.Size(0), self.seen, (c.Store(out, offset + t * stride, value),)),)

    def softmax(self, count: c.Expression) -> c.Block:
        """Return the statements turning scores into weights under the largest score so far, and scaling earlier sums.

        There are several loops over rows, because then the steps of different rows need not wait for each other.
        """
        tops, totals, scales, results = (self.arrays[name] for name in ("tops", "totals", "scales", "results"))
        exp = c.Callee(f"byoc_exp_nonpositive_{c_suffix(self.layer.dtype)}", np.exp, flops=1)
        row, line, t, e = self.row, self.line, c.Variable("t"), c.Variable("e")
        base, best, top, scale = (c.Variable(name, self.type) for name in ("base", "best", "top", "scale"))

        def reduced(op: str) -> c.Expression:
            function = row_function(op, self.layer.dtype, self.kernel.unit.nbytes)
            return c.Call(self.kernel.shared_function(function), (c.Address(line, c.Size(0)), count), self.type)

        def powers(index: c.Variable, end: c.Expression, array: c.Buffer, value: c.Expression) -> c.For:
            return c.For(index, c.Size(0), end, (c.Store(array, index, c.Call(exp, (value,), self.type)),))

        def lowest(value: c.Expression) -> c.Expression:
            # Before the first key seen, nothing may become NaN.
            return c.Select(value.compare("==", self.minus_infinity), self.zero, value)

        limits = (
            c.Let(best, reduced("max")),
            c.Let(top, c.Select(tops[row].compare(">", best), tops[row], best)),
            *(c.Store(scales, row, tops[row] - lowest(top)), c.Store(tops, row, top)),
        )
        at = row * self.pitches["results"] + e
        sums = (
            c.Let(scale, scales[row]),
            c.Store(totals, row, totals[row] * scale + reduced("sum")),
            c.For(e, c.Size(0), self.pitches["results"], (c.Store(results, at, results[at] * scale),)),
        )
        scaling, weights = powers(row, self.count, scales, scales[row]), powers(t, count, line, line[t] - base)
        loops = (scaling, *self.each_row(c.Let(base, lowest(tops[row])), weights))
        return (*self.each_row(*limits), *loops, *self.each_row(*sums))

    def closing(self) -> c.Block:
        """Return the statements dividing the results by the sums of the weights."""
        result, row, e, divisor = (
            self.step.binding.results[0],
            self.row,
            c.Variable("e"),
            c.Variable("total", self.type),
        )
        results, totals = self.arrays["results"], self.arrays["totals"]
        outs = [self.tensor("out", result)] if result in self.kernel.stored else []
        # Without a weight: zeros over zero, giving NaN, or zeros over 1; without a key always over 1.
        is_zero = flag_of(self.step.binding, "zero_unseen")
        unseen = totals[row].compare("==", self.zero) if is_zero else self.seen.compare("==", 0)
        block: c.Block = (
            c.Let(divisor, c.Select(unseen, self.literal_one, totals[row])),
            *self.stored("weights", divisor),
        )
        for out, offset, stride in outs:
            share = c.Store(out, offset + e * stride, results[row * self.pitches["results"] + e] / divisor)
            block += (c.For(e, c.Size(0), self.parameters.size(self.layer.width, "columns"), (share,)),)
        return self.each_row(*block)
