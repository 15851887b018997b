"""Products and convolutions, channels last, of operands rounded to bfloat16, with elementwise epilogues.

Constant operands on the right are rounded and packed during code generation. If all panels fit the second-level cache,
each block of rows is rounded on the stack and multiplied by all panels. Else as many rows are rounded at a time as fit
the cache beside a panel; each panel comes from memory once for many rows.

There are three forms of a product with the same meaning: matrix tiles; ``vdpbf16ps``, the AVX-512 instruction for pairs
of products; and float32, with each number of a pair widened, exactly. Sums differ in their order alone, but the
instructions take subnormal numbers for zero and return zero for subnormal sums; the last form keeps subnormal numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv, dim_min, product
from byoc_core.ir import Constant
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.bfloat16 import PAIRS, STEP_DEPTH, STEP_PITCH, STEP_ROWS, STEP_WORDS, rounded, rounded_rows
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.epilogue import epilogue, result_location
from byoc_ccompiler.kernels.matrix_tiles import BEGIN, END, PERMIT, TILES, tile_product
from byoc_ccompiler.kernels.product_geometry import Product
from byoc_ccompiler.kernels.product_schedules import SizedSchedule, check_laws
from byoc_ccompiler.kernels.tiles import in_parts
from byoc_ccompiler.kernels.words import Blocks, RunWriter, pack_panels, word_tile
from byoc_ccompiler.steps import Step

__all__ = ["suits_convolution", "suits_product", "write_convolution", "write_product"]

_FEW_ROWS, _PASS_ROWS, _MAX_DEPTH = 16, 128, 1 << 14
"""Rows for which no matrix is rounded; rows of a pass with sums of unknown length; numbers of a window on the stack."""

_ROWS_NBYTES, _NEAR_NBYTES, _STACK_NBYTES = 1 << 19, 1 << 19, 5 << 14
"""Bytes of a pass's rounded rows; of panels in the second-level cache; of a rounded block on the stack, beside sums."""

_PAIR = """\
/* Round two numbers to bfloat16, packed into a word. */
static inline uint32_t {name}(float low, float high) {
  return byoc_f32_to_bf16(low).bits | (uint32_t)byoc_f32_to_bf16(high).bits << 16;
}
"""

_ROUND_PAIR = c.Callee(
    "vec_round_pair", lambda *pair: rounded(np.asarray(pair)).view(np.uint32)[0], definition=_PAIR, flops=2
)


def suits_product(kernel: Kernel, p: Product) -> bool:
    """Return whether rounding is permitted and pays: operands read once are not rounded first."""
    if kernel.options.precision != "bfloat16" or p.dtype != "float32" or p.depth == 0:
        return False
    return p.weights is not None or p.known_rows is None or p.known_rows > _FEW_ROWS


def suits_convolution(step: Step, kernel: Kernel) -> bool:
    """Return whether the factors of a convolution of floats, channels last, may be rounded.

    Needed are the option, float32, one group, a constant filter, and a window of whole steps or short enough for the
    stack.
    """
    shape = ConvolutionGeometry.of_step(step)
    is_whole = shape.groups == 1 and isinstance(step.operands[1], Constant)
    is_small = shape.channels % STEP_DEPTH == 0 or shape.num_taps * shape.channels <= _MAX_DEPTH
    return kernel.options.precision == "bfloat16" and shape.dtype == "float32" and is_whole and is_small


def write_product(kernel: Kernel, p: Product) -> None:
    """Write the kernel of a suitable product with an elementwise epilogue."""
    left, right = c.Buffer("left", "float32"), c.Buffer("right", "float32")
    x, b = kernel.source(p.left.value, "x"), c.Variable("b")
    weights = p.weight_matrix(kernel)
    lets, indices = p.position(b)
    rounded_product = _RoundedProduct(kernel, (p.num_rows, p.num_columns, p.depth), weights, p.depth, *indices)
    loops = rounded_product.loops(
        lambda writer: rounded_product.blocks.gather_rows(left, p.left.row_step, p.depth, writer)
    )
    body: c.Block = (c.Alias(left, x, p.left.offset(p.batch, indices)), loops)
    if weights is None:
        y = kernel.source(p.right.value, "y")
        packing = rounded_product.packing(right, p.right.row_step, p.right.column_step)
        body = (c.Alias(right, y, p.right.offset(p.batch, indices)), *packing, *body)
    kernel.finish_block((*rounded_product.set_up, *loops_around((*lets, *body), (b,), (product(p.batch),))))


def write_convolution(kernel: Kernel) -> None:
    """Write the kernel of a suitable convolution with an elementwise epilogue."""
    step = kernel.group.steps[0]
    image, shape = step.operands[0], ConvolutionGeometry.of_step(step)
    depth, columns = shape.num_taps * shape.channels, shape.out_channels
    filters = shape.constant_filter(kernel)
    assert filters is not None
    x, strides = kernel.source(image, "x"), kernel.strides(image)
    # A row of weights has the order of a gathered window of the image.
    has_pixels = shape.image_steps(strides)[1] == 1
    matrix = filters.transpose((2, 3, 1, 0) if has_pixels else (2, 1, 3, 0)).reshape(depth, columns)
    rounded_product = _RoundedProduct(kernel, (shape.num_pixels, columns, depth), matrix, shape.channels)
    loops = rounded_product.loops(lambda writer: rounded_product.blocks.gather_windows(x, shape, strides, writer))
    kernel.finish_block((*rounded_product.set_up, loops))


@dataclass(frozen=True, slots=True)
class RoundedSchedule(SizedSchedule):
    """The schedule of a product of rounded operands.

    Attributes:
        width: columns of a panel: 16 or 32.
        pass_rows: rows rounded before the multiplication by all panels: whole blocks. ``None``: each block of rows is
            rounded on the stack before the first panel.
    """

    width: int
    pass_rows: int | None


def choose(num_rows: Dim, num_columns: Dim, depth: Dim) -> RoundedSchedule:
    """Return the schedule of a product of these sizes."""
    width, num_steps = 16 if isinstance(num_columns, int) and num_columns <= 16 else 32, ceildiv(depth, STEP_DEPTH)
    panels, block = num_steps * (STEP_WORDS * width) * ceildiv(num_columns, width), num_steps * STEP_PITCH
    limits = ((panels, _NEAR_NBYTES), (block, _STACK_NBYTES))
    if all(isinstance(size, int) and size * 4 <= nbytes for size, nbytes in limits):
        return RoundedSchedule(width, None)
    most = max(1, _ROWS_NBYTES // (block * 4)) * STEP_ROWS if isinstance(block, int) else _PASS_ROWS
    even = ceildiv(num_rows, ceildiv(num_rows, most) * STEP_ROWS) * STEP_ROWS
    return RoundedSchedule(width, even if isinstance(even, int) else most)


class _RoundedProduct:
    """Rows of factors, with runs of ``run`` numbers, times panels: weights (depth x columns), or packed first."""

    def __init__(
        self, kernel: Kernel, sizes: tuple[Dim, Dim, Dim], weights: NDArray | None, run: Dim, *leading: c.Expression
    ) -> None:
        num_rows, num_columns, self.depth = sizes
        kernel.schedule = schedule = choose(*sizes)
        self.kernel, self.run, self.leading = kernel, run, leading
        width, self.pass_rows = schedule.width, schedule.pass_rows
        check_laws(
            {
                "a panel has 16 or 32 columns": width in (16, 32),
                "rows are rounded in full blocks": (self.pass_rows or 0) % STEP_ROWS == 0,
                "arrays on the stack have a known size": bool(self.pass_rows) or isinstance(self.depth, int),
            }
        )
        self.blocks, self.num_steps = Blocks(num_rows, num_columns, STEP_ROWS, width), ceildiv(self.depth, STEP_DEPTH)
        self.panel_size, self.block_size = self.num_steps * (STEP_WORDS * width), self.num_steps * STEP_PITCH
        size = self.block_size * ((self.pass_rows or 0) // STEP_ROWS)
        self.rounded = c.Buffer("rounded", PAIRS.dtype, c.MemoryAccess.WRITE, size)
        self.panels = c.Buffer("panels", PAIRS.dtype, c.MemoryAccess.WRITE, self.blocks.panels * self.panel_size)
        in_scratch = [self.rounded] if self.pass_rows else []
        if weights is None:
            in_scratch.append(self.panels)
        else:
            numbers, words = rounded(np.ascontiguousarray(weights)), int(str(self.num_steps)) * STEP_WORDS
            packed = kernel.scope.constants.derive(pack_panels(numbers, width, words, PAIRS.dtype))
            self.panels = kernel.source(packed, "weights")
        self.set_up = (c.Let(TILES, c.Call(PERMIT, (), TILES.type)), *map(kernel.in_scratch, in_scratch))

    def packing(self, right: c.Buffer, row_step: Dim, column_step: Dim) -> c.Block:
        """Return the loop rounding and rearranging the matrix on the right, step by step of each panel."""
        width, depth, zero = self.blocks.width, c.Size(self.depth), c.Literal(0, c.CType("float32"))
        item, k, w, n, n0 = c.variables("item k w n n0")
        row, column = k * STEP_DEPTH + w * 2, n0 + n
        at = item * self.panel_size + (k * STEP_WORDS + w) * width + n
        # The inner loop runs along the contiguous axis of the matrix.
        outwards = -1 if row_step == 1 else 1

        def number(row: c.Expression, is_checked: bool) -> c.Expression:
            value = right[row * row_step + column * column_step]
            is_there = c.Binary("&&", row.compare("<", depth), column.compare("<", self.blocks.num_columns))
            return c.Select(is_there, value, zero) if is_checked else value

        def step(is_checked: bool) -> c.Block:
            pair = c.Call(_ROUND_PAIR, (number(row, is_checked), number(row + 1, is_checked)), c.CType(PAIRS.dtype))
            return loops_around((c.Store(self.panels, at, pair),), (w, n)[::outwards], (STEP_WORDS, width)[::outwards])

        ends = (((k + 1) * STEP_DEPTH).compare("<=", depth), (n0 + width).compare("<=", self.blocks.num_columns))
        steps = c.If(c.Binary("&&", *ends), step(False), step(True))
        panel = (c.Let(n0, item * width), c.For(k, c.Size(0), c.Size(self.num_steps), (steps,)))
        return loops_around(panel, (item,), (self.blocks.panels,), part=0)

    def loops(self, gather: Callable[[RunWriter], c.For]) -> c.Statement:
        """Return the loops rounding and multiplying rows; ``gather`` returns the loop writing the rows of a block."""
        blocks, zero = self.blocks, c.Size(0)
        if self.pass_rows is None:
            rows = c.Buffer("rows", PAIRS.dtype, c.MemoryAccess.WRITE, self.block_size)
            writer = rounded_rows(rows, zero, self.depth, self.run)
            before = (c.LocalArray(rows, alignment=64), *writer.arrays, BEGIN)
            products = self._products(c.Address(rows, zero), blocks.panel, zero, 0)
            return blocks.loop(gather(writer), products, before, END)
        m_begin, block, item = c.variables("m_begin block item")
        # The last pass may have fewer blocks.
        count = ceildiv(dim_min(self.pass_rows, blocks.num_rows), STEP_ROWS)
        panel, at, first = item // count, block * self.block_size, m_begin + block * STEP_ROWS
        writer = rounded_rows(self.rounded, at, self.depth, self.run)
        products = self._products(c.Address(self.rounded, at), panel, *self._ahead(panel, block, count))
        is_there = c.If(blocks.m_count.compare(">", 0), products)
        product = (c.Let(block, item % count), *blocks.lets(first, panel), is_there)
        rounding = (*blocks.lets(first, zero), gather(writer))
        loops = (
            blocks.shared_loop(block, count, rounding, writer.arrays),
            blocks.shared_loop(item, count * blocks.panels, product, (BEGIN,), END),
        )
        return c.For(m_begin, zero, c.Size(blocks.num_rows), loops, step=self.pass_rows)

    def _products(self, left: c.Address, panel: c.Expression, ahead: c.Expression, num_lines: int) -> c.Block:
        """Return the statements multiplying a block by a panel, with the epilogue.

        Without an epilogue, the sums of whole blocks go straight to the result, if its rows lie at equal distances.

        Each step meanwhile prefetches ``num_lines`` cache lines from offset ``ahead`` of the panels on.
        """
        kernel, blocks, block = self.kernel, self.blocks, _block_function(self.kernel, self.blocks.width)
        sums = c.Buffer("sums", PAIRS.sum_dtype, c.MemoryAccess.WRITE, blocks.rows * blocks.width)
        tile = blocks.tile(sums, self.leading)
        factors = (left, c.Address(self.panels, panel * self.panel_size), c.Size(self.num_steps), blocks.m_count)

        def multiply(target: c.Buffer, offset: c.Expression, pitch: Dim) -> c.Evaluate:
            fetched, target_address = (c.Address(self.panels, ahead), c.Size(num_lines)), c.Address(target, offset)
            return c.Evaluate(c.Call(block, (*factors, *fetched, target_address, c.Size(pitch), TILES)))

        buffered = (c.LocalArray(sums), multiply(sums, c.Size(0), blocks.width), *epilogue(kernel, tile))
        location = result_location(kernel, tile)
        if location is None:
            return buffered
        is_whole = (blocks.m_count.compare("==", blocks.rows), blocks.n_count.compare("==", blocks.width))
        return (c.If(c.Binary("&&", *is_whole), (multiply(*location),), buffered),)

    def _ahead(self, panel: c.Expression, block: c.Expression, blocks: Dim) -> tuple[c.Expression, int]:
        """Return the prefetch of a block: the offset among the panels, and the cache lines in each step.

        A block prefetches a share of the next panel; nothing if all panels stay in the cache.
        """
        size, panels, width = self.panel_size, self.blocks.panels, self.blocks.width
        total_size = size * panels
        if not isinstance(total_size, int) or total_size * 4 <= _NEAR_NBYTES or not isinstance(blocks, int):
            return c.Size(0), 0
        # A step of a panel has as many lines of the cache as columns.
        num_lines = -(-width // blocks)
        share = (size - size // width * num_lines) // max(1, blocks - 1)
        return c.index_min(panel + 1, panels - 1) * size + block * share, num_lines


def _block_function(kernel: Kernel, width: int) -> c.Callee:
    """Return the C function multiplying up to 32 rows by a panel.

    C signature: ``(rows, panel, num_steps, num_rows, ahead, num_lines, sums, pitch, tiles)``, as of
    :func:`~byoc_ccompiler.kernels.matrix_tiles.tile_product`. Without tiles, nothing is prefetched.
    """
    rows, panel, ahead = (c.Buffer(name, PAIRS.dtype) for name in ("rows", "panel", "ahead"))
    sums = c.Buffer("sums", PAIRS.sum_dtype, c.MemoryAccess.SHARED)
    num_steps, num_rows, num_lines, pitch, column = c.variables("num_steps num_rows num_lines pitch column")
    unit, zero = kernel.unit, c.Size(0)
    vectors = min(2, width // unit.lanes(PAIRS.sum_dtype))
    parameters = (rows, panel, num_steps, num_rows, ahead, num_lines, sums, pitch, TILES)
    arguments = tuple(c.Address(item, zero) if isinstance(item, c.Buffer) else item for item in parameters[:-1])

    def multiply(count: int, row: c.Expression) -> c.Block:
        tile = kernel.shared_function(word_tile(unit, PAIRS, count, vectors, width))
        left, first_sum = c.Address(rows, row * STEP_WORDS), c.Address(sums, row * pitch + column)
        call = c.Evaluate(c.Call(tile, (left, c.Address(panel, column), num_steps, first_sum, pitch)))
        return (c.For(column, zero, c.Size(width), (call,), step=vectors * unit.lanes(PAIRS.sum_dtype)),)

    loops = in_parts("row", num_rows, 8 if unit.registers >= 32 else 4, multiply)
    tiled = c.Evaluate(c.Call(tile_product(width), arguments))
    body = (c.If(TILES.compare("!=", c.Literal(0, TILES.type)), (tiled,), loops),)
    return kernel.shared_function(c.simplify(c.Function(f"vec_bfloat16_block_{width}", parameters, body)))
