"""Attention as one tiled kernel: scores, scale, mask, softmax and values of a few queries at a time.

Keys and values are packed into panels first, once for all queries. No tensor of scores exists, except as a result. A
block of queries is a call of a C function. The function goes along the keys block by block: a tile of scores, their
exponentials under the largest score so far, and their product with the values, scaled whenever the largest score grows.
If scores are a result too, all keys form a single block.

Source of the running softmax: Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"; of its use in
attention: Dao et al. 2022, "FlashAttention".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope, c_suffix
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, ceildiv, dim_min, product, total
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Binding, Value

from byoc_ccompiler.attributes import dim_of, flag_of, float_of
from byoc_ccompiler.family import KernelFamily, any_access
from byoc_ccompiler.function_parameters import FunctionParameters
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.axes import MAX_WORKERS
from byoc_ccompiler.kernels.blocks import block_function, pack_function
from byoc_ccompiler.kernels.copies import fetch, index_term, loops_around
from byoc_ccompiler.kernels.named_schedules import schedule_as_chosen
from byoc_ccompiler.kernels.row_reducers import row_function
from byoc_ccompiler.rejections import operand_shape, reject_non_floats
from byoc_ccompiler.size_checks import require_equal_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["FAMILY"]

_VECTORS, _LINE_NBYTES = 2, 2048
"""Vectors in a row of a panel, and bytes of the scores of a query at hand at once."""

_MAX_SIZE = 512
"""The largest size of a head with the arrays of a block on the stack."""


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """The computation: queries ``(batch, heads, steps, size)`` see ``length`` keys of groups of heads.

    Values have ``width`` elements. The scores of a ``stage``, if not empty, are a result. ``has_mask_of_keys`` is
    whether a mask has a number for each key, without a ``stage`` and without a cap on scores.
    """

    dtype: str
    batch: Dim
    heads: Dim
    steps: Dim
    size: Dim
    groups: Dim
    length: Dim
    width: Dim
    stage: str
    has_mask_of_keys: bool

    @classmethod
    def of(cls, step: Step) -> AttentionLayer:
        """Return the layer computed by a step."""
        query, (_, groups, length, _), (*_, width), *masks = map(shape_of, step.operands)
        batch, heads, steps, size = query
        stage, is_capped = str(step.binding.attrs["scores"] or ""), bool(float_of(step.binding, "softcap"))
        is_per_key = any((1, 1, 1, *mask)[-3:] == (1, 1, length) for mask in masks)
        has_mask = is_per_key and not stage and not is_capped
        dtype = dtype_of(step.operands[0])
        return cls(dtype, batch, heads, steps, size, groups, length, width, stage, has_mask)


@dataclass(frozen=True, slots=True)
class AttentionSchedule:
    """The schedule of attention: blocks of queries of a single head, shared by threads.

    All numbers above 0 give the same result, but for the order of the sums. The writer does not check the limits named
    below.

    Attributes:
        panel_vectors: vectors in a row of a panel of keys or values.
        queries: queries of a block.
        keys: keys with scores at hand at once, whole panels; all keys if scores are a result.
        folds_mask: whether a mask with a number for each key is a further element of the keys, with 1 in the queries.
            Only for layers with ``has_mask_of_keys``.
        is_on_stack: whether the arrays of a block lie on the stack, not in scratch memory; their sizes are then
            known.
        workers: maximum blocks at once with arrays in scratch memory.
    """

    panel_vectors: int
    queries: int
    keys: int
    folds_mask: bool
    is_on_stack: bool
    workers: int


def choose_schedule(layer: AttentionLayer, unit: VectorUnit) -> AttentionSchedule:
    """Return the schedule of a layer: scores of a block stay in the nearest cache, like arrays of small heads."""
    vectors = _VECTORS if unit.has_vectors else unit.panel_vectors
    is_small = all(isinstance(size, int) and size <= _MAX_SIZE for size in (layer.size, layer.width))
    return AttentionSchedule(
        panel_vectors=vectors,
        queries=unit.panel_rows(vectors),
        keys=_LINE_NBYTES // dtype_info(layer.dtype).itemsize,
        folds_mask=layer.has_mask_of_keys,
        is_on_stack=unit.has_vectors and is_small and not layer.stage,
        workers=MAX_WORKERS if unit.has_vectors else 1,
    )


def offered_schedules(layer: AttentionLayer, unit: VectorUnit, near: AttentionSchedule) -> Iterator[AttentionSchedule]:
    """Yield schedules near a schedule: more or fewer keys at hand, other tiles, a mask apart from the keys."""

    def with_keys(vectors: int, keys: int) -> AttentionSchedule:
        columns = vectors * unit.lanes(layer.dtype)
        whole_panels = max(1, keys // columns) * columns
        return replace(near, panel_vectors=vectors, queries=unit.panel_rows(vectors), keys=whole_panels)

    yield from (with_keys(near.panel_vectors, keys) for keys in (near.keys * 2, near.keys // 2) if not layer.stage)
    yield from (with_keys(vectors, near.keys) for vectors in (4, 1, 2))
    if layer.has_mask_of_keys:
        yield replace(near, folds_mask=not near.folds_mask)


class _Attention:
    """A kernel under construction: packed keys and values, and the function of a block.

    ``widths`` are the elements per query in the arrays of a block.
    """

    def __init__(self, kernel: Kernel, layer: AttentionLayer, schedule: AttentionSchedule) -> None:
        (self.step,) = kernel.group.steps
        self.kernel, self.layer, self.schedule, self.type = kernel, layer, schedule, c.CType(layer.dtype)
        self.columns = schedule.panel_vectors * kernel.unit.lanes(layer.dtype)
        self.depth = layer.size + int(schedule.folds_mask)
        keys, width = (ceildiv(size, self.columns) * self.columns for size in (layer.length, layer.width))
        self.key_panels = keys * self.depth
        self.panels = self.key_panels + width * layer.length
        scores = keys if layer.stage else schedule.keys
        self.widths: dict[str, Dim] = {"queries": self.depth, "scores": scores, "results": width}
        self.widths |= {"tops": 1, "totals": 1, "scales": 1}
        written = partial(c.Buffer, dtype=layer.dtype, access=c.MemoryAccess.WRITE)
        self.arrays = {name: written(name, size=size * schedule.queries) for name, size in self.widths.items()}
        self.minus_infinity, self.zero, self.literal_one = (
            c.Literal(value, self.type) for value in (float("-inf"), 0, 1)
        )
        self.b, self.h, self.block, self.row = map(c.Variable, ("b", "h", "block", "row"))
        self.line, self.to = written("line"), written("to")
        self.query, self.parameters = self.block * schedule.queries, FunctionParameters()

    def packing(self, memory: c.Buffer) -> c.Block:
        """Return the loop packing keys and values of all heads into panels."""
        pair, n = c.Variable("pair"), c.Variable("n")
        layer, operands = self.layer, self.step.operands
        b, g, callee = pair // layer.groups, pair % layer.groups, pack_function(self.kernel, layer.dtype, self.columns)

        def packed(operand: int, start: c.Expression, steps: tuple[Dim, ...], depth: Dim, panel: c.Expression) -> c.For:
            source = self.kernel.source(operands[operand], "qkvm"[operand])
            width = layer.width if operand == 2 else layer.length
            count = c.index_min(c.Size(width) - n, self.columns)
            start_steps = (c.Address(source, start + n * steps[1]), *map(c.Size, (*steps, depth)))
            call = c.Call(callee, (*start_steps, count, c.Address(self.to, panel)))
            return c.For(n, c.Size(0), c.Size(width), (c.Evaluate(call),), step=self.columns)

        key, value, *masks = map(self.kernel.strides, operands[1:])
        body: c.Block = (
            c.Alias(self.to, memory, pair * self.panels),
            packed(1, b * key[0] + g * key[1], key[:1:-1], layer.size, n * self.depth),
            packed(2, b * value[0] + g * value[1], value[2:], layer.length, n * layer.length + self.key_panels),
        )
        if self.schedule.folds_mask:
            dims, strides = (1, 1, 1, *shape_of(operands[3]))[-4:], (0, 0, 0, *masks[0])[-4:]
            start = index_term(b, dims[0], layer.batch, strides[0])
            body += (packed(3, start, (0, strides[3]), 1, n * self.depth + layer.size * self.columns),)
        return loops_around(body, [pair], [layer.batch * layer.groups], part=0)

    def call(self, panels: c.Address, arrays: c.Address) -> c.Evaluate:
        """Return the call for a block, from the packed keys and values of a head and the memory of the arrays."""
        steps, queries, sizes = self.layer.steps, self.schedule.queries, self.parameters
        self.head = sizes.add(c.Buffer("panels", self.layer.dtype), panels)
        self.count = sizes.size(c.index_min(c.Size(steps) - self.query, queries), "count")
        # If the queries of the last block are known only in a call, its tiles compute unused rows.
        counts = {min(queries, steps), steps % queries} if isinstance(steps, int) else {queries}
        self.tile_rows = self.count if isinstance(steps, int) else c.Size(queries)
        vectors = self.schedule.panel_vectors
        self.tile = block_function(self.kernel, self.layer.dtype, vectors, counts - {0}, strided=False)
        names = {"queries": "depth", "results": "width", "scores": "pitch"}
        self.pitches = {array: sizes.size(self.widths[array], name) for array, name in names.items()}
        self.seen = sizes.add(c.Variable("length"), c.Size(self.layer.length))
        body = (*self.declarations(arrays), *self.opening(), *self.walk(), *self.closing())
        return sizes.call(self.kernel, f"attention_{c_suffix(self.layer.dtype)}", body)

    def tensor(self, name: str, value: Value) -> tuple[c.Buffer, c.Expression, c.Expression]:
        """Return a parameter for a tensor from the block's first row on, and the strides along the last two axes."""
        outputs = [result for result in self.step.binding.results if result is value]
        buffer = self.kernel.target(outputs[0]) if outputs else self.kernel.source(value, name)
        dims, strides = (1, 1, 1, 1, *shape_of(value))[-4:], (0, 0, 0, 0, *self.kernel.strides(value))[-4:]
        layer = self.layer
        scores = layer.batch, layer.heads, layer.steps, layer.length
        axes = zip(dims, scores if value in self.step.operands[3:] else dims, strides, strict=True)
        found = [index_term(c.Size(1), *axis) for axis in axes]
        start = self.b * found[0] + self.h * found[1] + self.query * found[2]
        parameter = self.parameters.add(c.Buffer(name, layer.dtype, buffer.access), c.Address(buffer, start))
        step, stride = self.parameters.size(found[2], f"{name}_step"), self.parameters.size(found[3], f"{name}_stride")
        return parameter, step, stride

    def declarations(self, arrays: c.Address) -> c.Block:
        """Return the declarations of the arrays."""
        if self.schedule.is_on_stack:
            return tuple(c.LocalArray(array, alignment=64) for array in self.arrays.values())
        memory = self.parameters.add(c.Buffer("arrays", self.layer.dtype, c.MemoryAccess.WRITE), arrays)
        sizes = [self.schedule.queries * size for size in self.widths.values()]
        offsets = [self.parameters.size(total(sizes[:number]), "offset") for number in range(len(sizes))]
        return tuple(map(c.Alias, self.arrays.values(), repeat(memory), offsets))

    def each_row(self, *body: c.Statement) -> c.Block:
        """Return the loop over the queries, with the scores of each query in the line."""
        alias = c.Alias(self.line, self.arrays["scores"], self.row * self.pitches["scores"])
        return (c.For(self.row, c.Size(0), self.count, (alias, *body)),) if body else ()

    def multiply(self, left: str, panel: c.Expression, depth: c.Expression, sums: c.Address) -> c.Evaluate:
        """Return the call multiplying the rows of an array by a panel; products of scores are added to earlier sums."""
        start, panels = c.Address(self.arrays[left], c.Size(0)), c.Address(self.head, panel)
        rows = (start, self.pitches[left], panels, depth, self.tile_rows)
        rest = (sums, self.pitches[sums.buffer.name], c.Literal(left == "scores", c.BOOL), c.Size(0), c.Size(0))
        return c.Evaluate(c.Call(self.tile, (*rows, *rest)))

    def opening(self) -> c.Block:
        """Return the statements scaling the queries, and clearing sums and results."""
        row, d, queries, pitch = self.row, c.Variable("d"), self.arrays["queries"], self.pitches["queries"]
        query, step, stride = self.tensor("query", self.step.operands[0])
        scaled = c.Store(queries, row * pitch + d, query[row * step + d * stride] * self.scale())
        start = (
            c.For(d, c.Size(0), self.parameters.size(self.layer.size, "size"), (scaled,)),
            *(c.Store(self.arrays["totals"], row, self.zero), c.Store(self.arrays["tops"], row, self.minus_infinity)),
            *((c.Store(queries, (row + 1) * pitch - 1, self.literal_one),) if self.schedule.folds_mask else ()),
        )
        rest = c.Clear(queries, self.count * pitch, self.tile_rows * pitch - self.count * pitch)
        return (
            c.For(row, c.Size(0), self.count, start),
            *(() if self.tile_rows is self.count else (rest,)),
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
        limit, first, count, last = (*map(c.Variable, ("limit", "first", "block")), self.last_key(self.count - 1))
        seen = self.seen if last is None else c.index_max(c.index_min(last + 1, self.seen), 0)
        keys = (c.Let(count, c.index_min(limit - first, self.schedule.keys)), *self.block_of_keys(first, count))
        return c.Let(limit, seen), c.For(first, c.Size(0), limit, keys, step=self.schedule.keys)

    def last_key(self, row: c.Expression) -> c.Expression | None:
        """Return the last key seen by a query; ``None`` if the query sees all."""
        if not flag_of(self.step.binding, "causal"):
            return None
        return self.parameters.size(self.query + dim_of(self.step.binding, "offset"), "last") + row

    def block_of_keys(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements for ``count`` keys from the first on."""
        t, e, pitch = c.Variable("t"), c.Variable("e"), self.pitches["queries"]
        scores, results = c.Address(self.arrays["scores"], t), c.Address(self.arrays["results"], e)
        values = self.parameters.size(self.key_panels, "values") + e * self.seen + first * self.columns
        products = self.multiply("queries", (first + t) * pitch, pitch, scores)
        sums = self.multiply("scores", values, count, results)
        return (
            c.For(t, c.Size(0), count, (products,), step=self.columns),
            *self.masked(first, count),
            *self.softmax(count),
            c.For(e, c.Size(0), self.pitches["results"], (sums,), step=self.columns),
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
        for mask, step, stride in masks:
            at = row * step + first * stride
            if stride == c.Size(1) and step != c.Size(0):
                ahead = self.schedule.keys
                block += (fetch(mask, at + ahead, ahead * dtype_info(self.layer.dtype).itemsize),)
            block += (c.For(t, c.Size(0), count, (c.Store(line, t, line[t] + mask[at + t * stride]),)),)
        last = self.last_key(row)
        if last is not None:
            block += (c.For(t, c.index_max(last + 1 - first, 0), count, (c.Store(line, t, self.minus_infinity),)),)
        return self.each_row(*block, *self.stored("masked"))

    def stored(self, stage: str, divisor: c.Expression | None = None) -> c.Block:
        """Return the statements storing the scores of a stage; none if the scores are no result."""
        results = self.step.binding.results[1:]
        if self.layer.stage != stage or results[0] not in self.kernel.stored:
            return ()
        t, (out, step, stride) = c.Variable("t"), self.tensor("stage", results[0])
        value = self.line[t] if divisor is None else self.line[t] / divisor
        return (c.For(t, c.Size(0), self.seen, (c.Store(out, self.row * step + t * stride, value),)),)

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
        for out, step, stride in outs:
            share = c.Store(out, row * step + e * stride, results[row * self.pitches["results"] + e] / divisor)
            block += (c.For(e, c.Size(0), self.parameters.size(self.layer.width, "columns"), (share,)),)
        return self.each_row(*block)


def _reject(binding: Binding) -> Rejection | None:
    """Reject numbers of heads and groups not known to divide."""
    heads, groups = operand_shape(binding, 0)[1], operand_shape(binding, 1)[1]
    are_known = isinstance(heads, int) and isinstance(groups, int)
    # Recognised attention may have any number of heads, with equally many groups, or a known fraction.
    if not are_known and (groups == 0 or heads % groups != 0):
        return Rejection("dynamic-shape", "nn.attention is compiled for a known number of heads only")
    return reject_non_floats(binding)


def _write(kernel: Kernel) -> None:
    """Write the kernel of ``nn.attention``."""
    layer = AttentionLayer.of(kernel.group.steps[0])
    default = choose_schedule(layer, kernel.unit)
    kernel.schedule = schedule = schedule_as_chosen(
        kernel, kernel.group.steps[0], default, lambda: offered_schedules(layer, kernel.unit, default)
    )
    writer, blocks = _Attention(kernel, layer, schedule), ceildiv(layer.steps, schedule.queries)
    items = layer.batch, layer.heads, blocks
    arrays_size, count = total(writer.widths.values()) * schedule.queries, product(items)
    packed, workers = product((layer.batch, layer.groups, writer.panels)), dim_min(count, schedule.workers)
    packed = 1 if packed == 0 else packed  # distinct addresses for panels and arrays
    memory = kernel.scratch_memory(packed if schedule.is_on_stack else packed + workers * arrays_size, layer.dtype)
    item, worker = c.Variable("item"), c.Variable("worker")
    pair = writer.b * layer.groups + writer.h // (layer.heads // layer.groups if layer.groups != 0 else 1)
    call = writer.call(c.Address(memory, pair * writer.panels), c.Address(memory, worker * arrays_size + packed))
    coordinates = zip((writer.b, writer.h, writer.block), c.unravelled(item, items), strict=True)
    body: c.Block = (*(c.Let(*coordinate) for coordinate in coordinates), call)
    index, rounds = item, count
    if not schedule.is_on_stack:
        body = (c.For(item, worker, c.Size(count), body, step=schedule.workers),)
        index, rounds = worker, workers
    loop = loops_around(body, [index], [rounds], part=0)
    kernel.finish_block((*writer.packing(memory), *loop))


def _require(scope: FunctionScope, step: Step) -> None:
    """Require the sizes hidden from the type rules by symbols."""
    query, key, value, *masks = map(shape_of, step.operands)
    require_equal_sizes(scope, step, 1, key, (query[0], *key[1:3], query[3]))
    require_equal_sizes(scope, step, 2, value, (query[0], *key[1:3], value[3]))
    names = step.binding.op.operand_names(len(step.operands))
    for name, mask in zip(names[3:], masks, strict=True):
        scope.require_broadcast(step.op, name, mask, (*query[:3], key[2]))


FAMILY = KernelFamily(
    frozenset({"nn.attention"}), _reject, _write, require=_require, reads=any_access, writes=any_access
)
"""Attention."""
