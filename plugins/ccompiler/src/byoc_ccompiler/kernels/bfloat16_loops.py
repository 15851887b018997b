"""Loops over blocks of rows and panels of columns, whose products are made of operands rounded to bfloat16.

Where all panels stay in the second-level cache, each block of rows is rounded on the stack and meets them all. Else
more rows are rounded at a time, as many as that cache holds beside a panel, and the panels pass, one after another,
before the next rows come: so each panel comes from memory once for many rows.

There are three forms of a product with the same meaning: matrix tiles (:mod:`~byoc_ccompiler.kernels.matrix_tiles`);
``vdpbf16ps``, the instruction of AVX-512 for pairs of products; and float32, where each number of a pair is widened,
exactly. Sums differ in their order alone, but the instructions take subnormal numbers for zero and give zero for
subnormal sums, which the last form keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv, dim_min
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue import epilogue, result_place
from byoc_ccompiler.kernels.matrix_tiles import BEGIN, END, PERMIT, tile_product
from byoc_ccompiler.kernels.word_blocks import Blocks, shared_loop
from byoc_ccompiler.kernels.word_rows import RowWriter, rounded, rounded_rows
from byoc_ccompiler.kernels.word_tiles import (
    PAIRS,
    STEP_DEPTH,
    STEP_PITCH,
    STEP_ROWS,
    STEP_WORDS,
    defined,
    pack_panels,
    word_tile,
)
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["RoundedProduct"]

_ROWS_NBYTES = 1 << 19
"""What the rounded rows of one pass may take."""

_NEAR_NBYTES = 1 << 19
"""Panels that take no more than this together stay in the second-level cache."""

_STACK_NBYTES = 5 << 14
"""What a rounded block may take on the stack, where its sums lie as well."""

_PASS_ROWS = 128
"""Rows of one pass where the length of the sums is not known."""

_ROUND_PS = 150
"""Estimated picoseconds to round one number."""

_STEP_PS = 60_000
"""Estimated picoseconds of one step of a whole block."""

_TILES = c.Variable("tiles", c.CType("int32"))
"""Whether matrix tiles may be used."""

Gather = Callable[[RowWriter], c.Statement]
"""Returns the loop that writes the rows of a block."""


class RoundedProduct:
    """Rows of factors times panels of columns.

    Args:
        kernel: where it goes.
        num_rows: how many rows.
        weights: the columns, depth x columns, where they are known.
        num_columns: how many there are.
        depth: the length of the sums.
        run: numbers of a row that lie side by side, as of :func:`~byoc_ccompiler.kernels.word_rows.rounded_rows`.
        leading: the indices along the leading axes of the result.
        has_columns: whether the result has an axis of columns.

    Attributes:
        blocks: the rows and the columns.
        num_steps: steps of the sums.
        panels: the memory of the panels.
        panel_size: the words of one.
        set_up: the statements before the loops.
    """

    def __init__(
        self,
        kernel: Kernel,
        num_rows: Dim,
        weights: NDArray | None,
        num_columns: Dim,
        depth: Dim,
        run: Dim,
        *,
        leading: tuple[c.Expression, ...] = (),
        has_columns: bool = True,
    ) -> None:
        width = 16 if isinstance(num_columns, int) and num_columns <= 16 else 32
        self.blocks, self.num_steps = Blocks(num_rows, num_columns, STEP_ROWS, width), ceildiv(depth, STEP_DEPTH)
        self.panel_size, self._block_size = self.num_steps * (STEP_WORDS * width), self.num_steps * STEP_PITCH
        self._kernel, self._depth, self._run, self._leading = kernel, depth, run, leading
        self._has_columns = has_columns
        size: Dim = 0 if self._is_near else self._block_size * (self._pass_rows // STEP_ROWS)
        self.panels, self._rounded = (
            c.Buffer(name, PAIRS.dtype, c.MemoryAccess.WRITE) for name in ("panels", "rounded")
        )
        places = [(self._rounded, c.Size(0)), (self.panels, c.Size(size))]
        if weights is None:
            size = size + self.blocks.panels * self.panel_size
        else:
            numbers = rounded(np.ascontiguousarray(weights))
            packed = pack_panels(numbers, width, int(str(self.num_steps)) * STEP_WORDS, PAIRS.dtype)
            self.panels = kernel.source(kernel.scope.constants.derive(packed), "weights")
            places.pop()
        self.set_up: c.Block = (c.Let(_TILES, c.Call(PERMIT, (), _TILES.type)),)
        if size != 0:
            scratch = kernel.scratch_memory(size, PAIRS.dtype)
            self.set_up += tuple(c.Alias(buffer, scratch, place) for buffer, place in places)

    @property
    def _is_near(self) -> bool:
        """Whether all panels are known to stay in the cache, and a block of rows to be small enough for the stack."""
        panels, rows = self.blocks.panels * self.panel_size * 4, self._block_size * 4
        return isinstance(panels, int) and isinstance(rows, int) and panels <= _NEAR_NBYTES and rows <= _STACK_NBYTES

    @property
    def _pass_rows(self) -> int:
        """Rows that are rounded at a time, whole blocks."""
        most, num_rows = _PASS_ROWS, self.blocks.num_rows
        if isinstance(self._block_size, int):
            most = max(1, _ROWS_NBYTES // (max(1, self._block_size) * 4)) * STEP_ROWS
        if not isinstance(num_rows, int):
            return most
        passes = max(1, -(-num_rows // most))
        return max(1, -(-num_rows // (passes * STEP_ROWS))) * STEP_ROWS

    def loops(self, gather: Gather) -> c.Block:
        """Return the loops: rows are rounded, and multiplied by all panels."""
        return (self._near_loop(gather) if self._is_near else self._passes(gather),)

    def _near_loop(self, gather: Gather) -> c.Dispatch:
        """Return the loop over blocks that meet all panels."""
        rows = c.Buffer("rows", PAIRS.dtype, c.MemoryAccess.WRITE, self._block_size)
        writer = rounded_rows(rows, c.Size(0), self._depth, self._run)
        before = (c.LocalArray(rows, alignment=64), *writer.arrays, _call(BEGIN))
        round_ps = self.num_steps * (_STEP_PS + STEP_ROWS * STEP_DEPTH * _ROUND_PS // self.blocks.panels)

        def product(panel: c.Expression) -> c.Block:
            return self._products(rows, c.Size(0), panel, (c.Size(0), 0))

        return self.blocks.loop(gather(writer), product, round_ps, before, _call(END))

    def _passes(self, gather: Gather) -> c.For:
        """Return the loop over passes: some rows are rounded, and multiplied by all panels."""
        blocks, m_begin, block, item = self.blocks, *map(c.Variable, ("m_begin", "block", "item"))
        # The last pass may have fewer blocks.
        count = ceildiv(dim_min(self._pass_rows, blocks.num_rows), STEP_ROWS)
        panel, at = item // count, block * self._block_size
        writer = rounded_rows(self._rounded, at, self._depth, self._run)
        first = m_begin + block * STEP_ROWS
        products = self._products(self._rounded, at, panel, self._ahead(panel, block, count))
        product = (
            c.Let(block, item % count),
            *blocks.lets(first, panel),
            c.If(blocks.m_count.compare(">", 0), products),
        )
        rounding = (*blocks.lets(first, c.Size(0)), gather(writer))
        round_ps = self.num_steps * (STEP_ROWS * STEP_DEPTH * _ROUND_PS)
        loops = (
            shared_loop(block, count, rounding, round_ps, writer.arrays),
            shared_loop(item, count * blocks.panels, product, self.num_steps * _STEP_PS, (_call(BEGIN),), _call(END)),
        )
        return c.For(m_begin, c.Size(0), c.Size(blocks.num_rows), loops, step=self._pass_rows)

    def _products(
        self, left: c.Buffer, at: c.Expression, panel: c.Expression, ahead: tuple[c.Expression, int]
    ) -> c.Block:
        """Return the statements that sum up a block by a panel, and what follows; whole blocks go where they belong.

        Args:
            left: the memory of the block.
            at: the offset of its first word.
            panel: the number of the panel.
            ahead: what of the panels is fetched meanwhile: the offset, and the lines of the cache in each step.
        """
        kernel, blocks, block = self._kernel, self.blocks, _block_function(self._kernel.unit, self.blocks.width)
        sums = c.Buffer("sums", PAIRS.sum_dtype, c.MemoryAccess.WRITE, blocks.rows * blocks.width)
        tile = blocks.tile(sums, self._leading, has_columns=self._has_columns)
        rows, columns = c.Address(left, at), c.Address(self.panels, panel * self.panel_size)
        fetched = (c.Address(self.panels, ahead[0]), c.Size(ahead[1]))

        def multiply(target: c.Buffer, offset: c.Expression, pitch: Dim) -> c.Evaluate:
            place = (c.Address(target, offset), c.Size(pitch), _TILES)
            return c.Evaluate(c.Call(block, (rows, columns, c.Size(self.num_steps), blocks.m_count, *fetched, *place)))

        buffered = (c.LocalArray(sums), multiply(sums, c.Size(0), blocks.width), *epilogue(kernel, tile))
        place = result_place(kernel, tile)
        if place is None:
            return buffered
        is_whole = (blocks.m_count.compare("==", blocks.rows), blocks.n_count.compare("==", blocks.width))
        return (c.If(c.Binary("&&", *is_whole), (multiply(*place),), buffered),)

    def _ahead(self, panel: c.Expression, block: c.Expression, blocks: Dim) -> tuple[c.Expression, int]:
        """Return what a block fetches: its share of the next panel, where not all panels stay in the cache."""
        size, panels, width = self.panel_size, self.blocks.panels, self.blocks.width
        if not (isinstance(size, int) and isinstance(blocks, int) and isinstance(panels, int)):
            return c.Size(0), 0
        if blocks == 0 or size * panels * 4 <= _NEAR_NBYTES:
            return c.Size(0), 0
        # A step of a panel has as many lines of the cache as columns.
        num_lines = -(-width // blocks)
        share = max(0, size - size // width * num_lines) // max(1, blocks - 1)
        return c.index_min(panel + 1, panels - 1) * size + block * share, num_lines


def _call(callee: c.Callee) -> c.Evaluate:
    return c.Evaluate(c.Call(callee, (_TILES,)))


@cache
def _block_function(unit: VectorUnit, width: int) -> c.Callee:
    """Return the C function that multiplies up to 32 rows by a panel.

    C signature: ``(rows, panel, num_steps, num_rows, ahead, num_lines, sums, pitch, tiles)``, as of
    :func:`~byoc_ccompiler.kernels.matrix_tiles.tile_product`. Without tiles, nothing is fetched.
    """
    rows, panel, ahead = (c.Buffer(name, PAIRS.dtype) for name in ("rows", "panel", "ahead"))
    sums = c.Buffer("sums", PAIRS.sum_dtype, c.MemoryAccess.SHARED)
    num_steps, num_rows, num_lines, pitch = map(c.Variable, ("num_steps", "num_rows", "num_lines", "pitch"))
    lanes = unit.lanes(PAIRS.sum_dtype)
    vectors = min(2, width // lanes)
    at, steps = c.Size(0), num_steps
    parameters = (rows, panel, num_steps, num_rows, ahead, num_lines, sums, pitch, _TILES)
    arguments = (c.Address(rows, at), c.Address(panel, at), steps, num_rows, c.Address(ahead, at), num_lines)
    tiled = c.Evaluate(c.Call(tile_product(width), (*arguments, c.Address(sums, at), pitch)))
    loops: list[c.Statement] = []
    done: c.Expression = at
    for count in (8, 1) if unit.registers >= 32 else (4, 1):
        row, column = c.Variable("row"), c.Variable("column")
        tile = word_tile(unit, PAIRS, count, vectors, width)
        place = (c.Address(sums, row * pitch + column), pitch)
        call = c.Call(tile, (c.Address(rows, row * STEP_WORDS), c.Address(panel, column), steps, *place))
        columns = c.For(column, at, c.Size(width), (c.Evaluate(call),), step=vectors * lanes)
        stop = num_rows // count * count
        loops.append(c.For(row, done, stop, (columns,), step=count))
        done = stop
    body = (c.If(_TILES.compare("!=", c.Literal(0, _TILES.type)), (tiled,), tuple(loops)),)
    return defined(c.simplify(c.Function(f"vec_bfloat16_block_{width}", parameters, body)))
