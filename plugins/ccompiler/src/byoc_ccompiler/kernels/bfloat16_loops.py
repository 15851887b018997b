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
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM
from byoc_core.dims import Dim, ceildiv, dim_min

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue import epilogue, result_place
from byoc_ccompiler.kernels.matrix_tiles import BEGIN, END, PERMIT, tile_product
from byoc_ccompiler.kernels.word_blocks import Blocks
from byoc_ccompiler.kernels.word_rows import STEP_DEPTH, RoundedRows
from byoc_ccompiler.kernels.word_tiles import PAIRS, STEP_ROWS, STEP_WORDS, word_tile

__all__ = ["RoundedProduct", "panel_columns"]

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

_LINE_WORDS = 16
"""Words in a line of the cache."""

_TILES = c.Variable("tiles", c.CType("int32"))
"""Whether matrix tiles may be used."""

Gather = Callable[[RoundedRows], c.Block]
"""Returns the statements that write the rows of a block."""


def panel_columns(columns: Dim) -> int:
    """Return the columns of a panel of a matrix of so many."""
    return 16 if isinstance(columns, int) and columns <= 16 else 32


@dataclass(frozen=True, slots=True)
class RoundedProduct:
    """Rows of factors times panels of columns.

    Attributes:
        kernel: where it goes.
        blocks: the rows and the columns.
        depth: the length of the sums.
        run: numbers of a row that lie side by side, as of :class:`~byoc_ccompiler.kernels.word_rows.RoundedRows`.
        panels: the memory of the panels.
        rounded: that of the rounded rows, where they do not lie on the stack.
        leading: the indices along the leading axes of the result.
        has_columns: whether the result has an axis of columns.
    """

    kernel: Kernel
    blocks: Blocks
    depth: Dim
    run: Dim
    panels: c.Buffer
    rounded: c.Buffer
    leading: tuple[c.Expression, ...] = ()
    has_columns: bool = True

    @property
    def num_steps(self) -> Dim:
        """The steps of the sums."""
        return ceildiv(self.depth, STEP_DEPTH)

    @property
    def panel_size(self) -> Dim:
        """The words of one panel."""
        return self.num_steps * (STEP_WORDS * self.blocks.width)

    @property
    def block_size(self) -> Dim:
        """The words of a block of rows."""
        return self.num_steps * (STEP_WORDS * STEP_ROWS)

    @property
    def is_near(self) -> bool:
        """Whether all panels are known to stay in the cache, and a block of rows to be small enough for the stack."""
        panels, rows = self.blocks.panels * self.panel_size * 4, self.block_size * 4
        return isinstance(panels, int) and isinstance(rows, int) and panels <= _NEAR_NBYTES and rows <= _STACK_NBYTES

    @property
    def pass_rows(self) -> int:
        """Rows that are rounded at a time, whole blocks."""
        most, num_rows = _PASS_ROWS, self.blocks.num_rows
        if isinstance(self.block_size, int):
            most = max(1, _ROWS_NBYTES // (max(1, self.block_size) * 4)) * STEP_ROWS
        if not isinstance(num_rows, int):
            return most
        passes = max(1, -(-num_rows // most))
        return max(1, -(-num_rows // (passes * STEP_ROWS))) * STEP_ROWS

    @property
    def pass_blocks(self) -> Dim:
        """Blocks of one pass; the last may have fewer rows, or none."""
        return ceildiv(dim_min(self.pass_rows, self.blocks.num_rows), STEP_ROWS)

    @property
    def scratch(self) -> Dim:
        """Words of scratch memory for the rounded rows, where they do not lie on the stack."""
        return 0 if self.is_near else self.pass_rows * self.num_steps * STEP_WORDS

    def loops(self, gather: Gather) -> c.Block:
        """Return the loops: rows are rounded, and multiplied by all panels. They stand behind :meth:`set_up`."""
        return (self._near_loop(gather),) if self.is_near else (self._passes(gather),)

    @staticmethod
    def set_up() -> c.Block:
        """Return the statements before all loops."""
        return (c.Let(_TILES, c.Call(PERMIT, (), _TILES.type)),)

    def _near_loop(self, gather: Gather) -> c.Dispatch:
        """Return the loop over blocks that meet all panels."""
        assert isinstance(self.block_size, int)
        rows = c.Buffer("rows", PAIRS.dtype, c.MemoryAccess.WRITE, self.block_size)
        writer = RoundedRows(rows, c.Size(0), self.depth, self.run)
        product_ps = self.num_steps * (_STEP_PS + STEP_ROWS * STEP_DEPTH * _ROUND_PS)
        return self.blocks.loop(
            gather(writer),
            lambda panel: self._products(rows, c.Size(0), panel, (c.Size(0), 0)),
            product_ps,
            before=(c.LocalArray(rows, alignment=64), *writer.arrays, _call(BEGIN)),
            after=(_call(END),),
        )

    def _passes(self, gather: Gather) -> c.For:
        """Return the loop over passes: some rows are rounded, and multiplied by all panels."""
        m_begin, block, item = c.Variable("m_begin"), c.Variable("block"), c.Variable("item")
        count, panel = self.pass_blocks, item // self.pass_blocks
        writer = RoundedRows(self.rounded, block * self.block_size, self.depth, self.run)
        rounding = (*self.blocks.lets(block, c.Size(0), m_begin), *gather(writer))
        products = (
            c.Let(block, item % count),
            *self.blocks.lets(block, panel, m_begin),
            c.If(
                self.blocks.m_count.compare(">", 0),
                self._products(self.rounded, block * self.block_size, panel, self._ahead(panel, block)),
            ),
        )

        def shared(index: c.Variable, number: Dim, body: c.Block, round_ps: Dim, before: c.Block, *after: c.Statement) -> c.Dispatch:
            first, end = c.Variable(FIRST_ITEM), c.Variable(END_ITEM)
            part = (*before, c.For(index, first, end, body), *after)
            return c.Dispatch(first, end, part, number, 1, number * round_ps)

        round_ps = self.num_steps * (STEP_ROWS * STEP_DEPTH * _ROUND_PS)
        loops = (
            shared(block, count, rounding, round_ps, writer.arrays),
            shared(item, count * self.blocks.panels, products, self.num_steps * _STEP_PS, (_call(BEGIN),), _call(END)),
        )
        return c.For(m_begin, c.Size(0), c.Size(self.blocks.num_rows), loops, step=self.pass_rows)

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
        blocks, block = self.blocks, _block_function(self.kernel, self.blocks.width)
        sums = c.Buffer("sums", PAIRS.sum_dtype, c.MemoryAccess.WRITE, blocks.rows * blocks.width)
        tile = blocks.tile(sums, self.leading, has_columns=self.has_columns)
        rows, columns = c.Address(left, at), c.Address(self.panels, panel * self.panel_size)
        fetched = (c.Address(self.panels, ahead[0]), c.Size(ahead[1]))

        def multiply(target: c.Buffer, offset: c.Expression, pitch: Dim) -> c.Evaluate:
            place = (c.Address(target, offset), c.Size(pitch), _TILES)
            return c.Evaluate(c.Call(block, (rows, columns, c.Size(self.num_steps), blocks.m_count, *fetched, *place)))

        buffered = (c.LocalArray(sums), multiply(sums, c.Size(0), blocks.width), *epilogue(self.kernel, tile))
        place = result_place(self.kernel, tile)
        if place is None:
            return buffered
        is_whole = (blocks.m_count.compare("==", blocks.rows), blocks.n_count.compare("==", blocks.width))
        return (c.If(c.Binary("&&", *is_whole), (multiply(*place),), buffered),)

    def _ahead(self, panel: c.Expression, block: c.Expression) -> tuple[c.Expression, int]:
        """Return what a block fetches: its share of the next panel, where not all panels stay in the cache."""
        size, blocks, panels = self.panel_size, self.pass_blocks, self.blocks.panels
        if not (isinstance(size, int) and isinstance(blocks, int) and isinstance(panels, int)) or blocks == 0:
            return c.Size(0), 0
        if size * panels * 4 <= _NEAR_NBYTES:
            return c.Size(0), 0
        num_lines = -(-self.blocks.width * STEP_WORDS // _LINE_WORDS // blocks)
        share = max(0, size - int(str(self.num_steps)) * num_lines * _LINE_WORDS) // max(1, blocks - 1)
        return c.index_min(panel + 1, panels - 1) * size + block * share, num_lines


def _call(callee: c.Callee) -> c.Evaluate:
    return c.Evaluate(c.Call(callee, (_TILES,)))


def _block_function(kernel: Kernel, width: int) -> c.Callee:
    """Return the C function that multiplies up to 32 rows by a panel.

    C signature: ``(rows, panel, num_steps, num_rows, ahead, num_lines, sums, pitch, tiles)``, as of
    :func:`~byoc_ccompiler.kernels.matrix_tiles.tile_product`. Without tiles, nothing is fetched.
    """
    rows, panel, ahead = (c.Buffer(name, PAIRS.dtype) for name in ("rows", "panel", "ahead"))
    sums = c.Buffer("sums", PAIRS.sum_dtype, c.MemoryAccess.SHARED)
    num_steps, num_rows, num_lines, pitch = map(c.Variable, ("num_steps", "num_rows", "num_lines", "pitch"))
    lanes = kernel.unit.lanes(PAIRS.sum_dtype)
    vectors = min(2, width // lanes)
    at, steps = c.Size(0), num_steps
    parameters = (rows, panel, num_steps, num_rows, ahead, num_lines, sums, pitch, _TILES)
    arguments = (c.Address(rows, at), c.Address(panel, at), steps, num_rows, c.Address(ahead, at), num_lines)
    tiled = c.Evaluate(c.Call(tile_product(width), (*arguments, c.Address(sums, at), pitch)))
    loops: list[c.Statement] = []
    done: c.Expression = at
    for count in (8, 1) if kernel.unit.registers >= 32 else (4, 1):
        row, column = c.Variable("row"), c.Variable("column")
        tile = word_tile(kernel, PAIRS, count, vectors, width)
        place = (c.Address(sums, row * pitch + column), pitch)
        call = c.Call(tile, (c.Address(rows, row * STEP_WORDS), c.Address(panel, column), steps, *place))
        columns = c.For(column, at, c.Size(width), (c.Evaluate(call),), step=vectors * lanes)
        stop = num_rows // count * count
        loops.append(c.For(row, done, stop, (columns,), step=count))
        done = stop
    body = (c.If(_TILES.compare("!=", c.Literal(0, _TILES.type)), (tiled,), tuple(loops)),)
    return kernel.shared_function(c.simplify(c.Function(f"bfloat16_block_{width}", parameters, body)))
