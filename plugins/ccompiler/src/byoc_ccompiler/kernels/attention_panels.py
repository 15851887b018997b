"""Attention over packed keys and values: panels, once for all queries, and blocks of queries of a single head."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.attention_block import AttentionBlock
from byoc_ccompiler.kernels.attention_layer import AttentionLayer, AttentionSchedule
from byoc_ccompiler.kernels.blocks import block_function, pack_function
from byoc_ccompiler.kernels.copies import index_term, loops_around
from byoc_ccompiler.steps import shape_of

__all__ = ["PanelAttention"]


class PanelAttention(AttentionBlock):
    """The packing of keys and values, and the function of a block over panels.

    Attributes:
        panels: the elements of the panels of a group of heads.
        h, block: the head and the number of a block of queries.
    """

    def __init__(self, kernel: Kernel, layer: AttentionLayer, schedule: AttentionSchedule) -> None:
        self.columns = schedule.panel_vectors * kernel.unit.lanes(layer.dtype)
        keys, width = (ceildiv(size, self.columns) * self.columns for size in (layer.length, layer.width))
        super().__init__(kernel, layer, schedule, keys if layer.stage else schedule.keys, width)
        self.key_panels = keys * self.depth
        self.panels = self.key_panels + width * layer.length
        self.h, self.block = c.Variable("h"), c.Variable("block")
        self.to = c.Buffer("to", layer.dtype, c.MemoryAccess.WRITE)
        self.query = self.block * schedule.queries

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

    def call(self, panels: c.Address, arrays: c.Address | None) -> c.Evaluate:
        """Return the call for a block, from the packed keys and values of a head and the memory of the arrays."""
        steps, queries, layer = self.layer.steps, self.schedule.queries, self.layer
        self.head = self.parameters.add(c.Buffer("panels", layer.dtype), panels)
        self.begin(c.index_min(c.Size(steps) - self.query, queries))
        # If the queries of the last block are known only in a call, its tiles compute unused rows.
        counts = {min(queries, steps), steps % queries} if isinstance(steps, int) else {queries}
        self.tile_rows = self.count if isinstance(steps, int) else c.Size(queries)
        vectors = self.schedule.panel_vectors
        self.tile = block_function(self.kernel, layer.dtype, vectors, counts - {0}, strided=False)
        return self.finish("attention", arrays)

    def first_row(self, head_stride: c.Expression, step_stride: c.Expression) -> c.Expression:
        """Return the offset of the first query of the block."""
        return self.h * head_stride + self.query * step_stride

    def row_offset(self, name: str, head_stride: c.Expression, step_stride: c.Expression) -> c.Expression:
        """Return the offset of a query of the block."""
        return self.row * self.parameters.size(step_stride, f"{name}_step")

    def query_step(self, row: c.Expression) -> c.Expression:
        """Return the number of a query of the block along the steps."""
        return self.parameters.size(self.query, "first_query") + row

    def last_step(self) -> c.Expression:
        """Return the number of the block's last query."""
        return self.query_step(self.count - 1)

    def cleared_rows(self) -> c.Block:
        """Return the statements clearing the unused rows computed by tiles."""
        if self.tile_rows is self.count:
            return ()
        pitch = self.pitches["queries"]
        rest = self.tile_rows * pitch - self.count * pitch
        return (c.Clear(self.arrays["queries"], self.count * pitch, rest),)

    def scores(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the loop over the panels of keys."""
        t, pitch = c.Variable("t"), self.pitches["queries"]
        scores = c.Address(self.arrays["scores"], t)
        products = self.multiply("queries", (first + t) * pitch, pitch, scores)
        return (c.For(t, c.Size(0), count, (products,), step=self.columns),)

    def sums(self, first: c.Expression, count: c.Expression) -> c.Block:
        """Return the loop over the panels of values."""
        e, results = c.Variable("e"), self.arrays["results"]
        values = self.parameters.size(self.key_panels, "values") + e * self.seen + first * self.columns
        products = self.multiply("scores", values, count, c.Address(results, e))
        return (c.For(e, c.Size(0), self.pitches["results"], (products,), step=self.columns),)

    def multiply(self, left: str, panel: c.Expression, depth: c.Expression, sums: c.Address) -> c.Evaluate:
        """Return the call multiplying the rows of an array by a panel; products of scores are added to earlier sums."""
        start, panels = c.Address(self.arrays[left], c.Size(0)), c.Address(self.head, panel)
        rows = (start, self.pitches[left], panels, depth, self.tile_rows)
        rest = (sums, self.pitches[sums.buffer.name], c.Literal(left == "scores", c.BOOL))
        return c.Evaluate(c.Call(self.tile, (*rows, *rest)))
