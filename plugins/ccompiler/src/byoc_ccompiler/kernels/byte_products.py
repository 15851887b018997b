"""Products and convolutions of 8-bit integers with constant weights, and what follows them elementwise.

Some rows of the left operand are gathered first: those of a matrix, or the windows of an image, channels last, as bytes
without a sign, where they stay in the nearest cache while all panels of the weights pass. The zero point costs nothing:
its share of each sum is the same for all rows, and the sums start with it.
"""

from __future__ import annotations

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, product
from byoc_core.ir import Constant

from byoc_ccompiler.attributes import int_of
from byoc_ccompiler.byte_ops import BYTE_CONVOLUTION, BYTE_PRODUCT
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.conv2d import require_room
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue import epilogue
from byoc_ccompiler.kernels.word_blocks import Blocks
from byoc_ccompiler.kernels.word_rows import byte_rows, gather_rows, gather_windows
from byoc_ccompiler.kernels.word_tiles import BYTES, pack_panels, word_tile
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["FAMILY", "MAX_DEPTH"]

MAX_DEPTH = 1 << 16
"""Bytes of a row: so many at least fit into the stack, and into one sum of 32 bits where both operands are largest."""

_GATHERED_NBYTES, _GATHERED_ROWS = 1 << 15, 48
"""Bytes of rows, and rows, that are gathered at a time, if one tile's do not have more."""

_NEAR_NBYTES = 3 << 13
"""Bytes of a panel that stay in the nearest cache while the rows of a block pass."""

_QUAD = 4
"""Bytes of a word."""


def _write(kernel: Kernel) -> None:
    """Writes the kernel: blocks of rows, gathered at a time, times panels of weights."""
    step, constants = kernel.group.steps[0], kernel.scope.constants
    x, weight, *border = step.operands
    assert isinstance(weight, Constant)
    array = constants.array(weight, kernel.scope.where)
    # A row of weights is a window of the image: line by line, pixel by pixel, channels last.
    matrix = array if array.ndim == 2 else array.transpose(0, 2, 3, 1).reshape(array.shape[0], -1)
    columns, depth = matrix.shape
    num_rows, words, lanes = product(shape_of(step.result)[:-1]), -(-depth // _QUAD), kernel.unit.lanes(BYTES.sum_dtype)
    vectors = -(-columns // (-(-columns // (kernel.unit.panel_vectors * lanes)) * lanes))
    tile_rows, block_rows = _rows_at_a_time(kernel, num_rows, vectors, words * _QUAD)
    blocks = Blocks(num_rows, columns, block_rows, vectors * lanes)
    # Bytes with a sign are moved up by half of what there are, and so is their zero point.
    zero = int_of(step.binding, "zero_point") + (128 if dtype_of(x) == "int8" else 0)
    rows = c.Buffer("rows", BYTES.dtype, c.MemoryAccess.WRITE, block_rows * words)
    line = c.Buffer("bytes", "uint8", c.MemoryAccess.WRITE)
    byte, source = c.CType(line.dtype), kernel.source(x, "x")
    # Of a zero point that the data tell the sums hold the share, which is subtracted behind them.
    beyond = c.Variable("beyond", byte)
    shift = c.Cast(kernel.source(border[0], "border")[0], c.CType("int32")) if border else None
    outside = c.Cast(shift + zero, byte) if shift is not None else c.Literal(zero, byte)
    writer = byte_rows(line, words * _QUAD, beyond)
    if step.op == BYTE_PRODUCT.name:
        gather = gather_rows(source[blocks.m0 * depth], depth, depth, blocks.m_count, writer)
    else:
        shape = ConvolutionGeometry.of_step(step)
        gather = gather_windows(source, shape, kernel.strides(x), blocks.m0, blocks.m_count, writer)
    panels = kernel.source(constants.derive(pack_panels(matrix.T, blocks.width, words, BYTES.dtype)), "weights")
    # What the sums of each column start with: less the zero point's share. Sums wrap around.
    shares = np.zeros(-(-columns // blocks.width) * blocks.width, np.int64)
    shares[:columns] = matrix.sum(axis=1, dtype=np.int64) * -zero
    starts = kernel.source(constants.derive(shares.astype(np.int32)), "starts")
    sums = c.Buffer("sums", BYTES.sum_dtype, c.MemoryAccess.WRITE, block_rows * blocks.width)
    tile = word_tile(kernel.unit, BYTES, tile_rows, vectors, blocks.width)
    k, count, row = c.Variable("k"), c.Variable("count"), c.Variable("row")
    # Long sums go part by part, whose panels stay in the nearest cache.
    part = -(-words // -(-words // max(1, _NEAR_NBYTES // (_QUAD * blocks.width))))

    def tiles(panel: c.Expression, start: c.Address, start_step: int) -> c.For:
        left, steps = c.Address(rows, row * words + k), c.Address(panels, (panel * words + k) * blocks.width)
        place = (start, c.Size(start_step), c.Address(sums, row * blocks.width), c.Size(blocks.width))
        call = c.Evaluate(c.Call(tile, (left, steps, count, c.Size(words), *place)))
        return c.For(row, c.Size(0), blocks.m_count, (call,), step=tile_rows)

    def multiply(panel: c.Expression) -> c.Block:
        begin = tiles(panel, c.Address(starts, blocks.n0), 0)
        go_on = tiles(panel, c.Address(sums, row * blocks.width), blocks.width)
        parts = (c.Let(count, c.index_min(c.Size(words) - k, part)), c.If(k.compare("==", 0), (begin,), (go_on,)))
        products = c.For(k, c.Size(0), c.Size(words), parts, step=part)
        return (c.LocalArray(sums), products, *epilogue(kernel, blocks.tile(sums)))

    # A tile may read bytes that are not gathered.
    has_gaps = words * _QUAD != depth or not isinstance(num_rows, int) or num_rows % tile_rows != 0
    array_of_rows = c.LocalArray(rows, is_zeroed=has_gaps, alignment=64)
    before = (array_of_rows, c.Alias(line, rows, c.Size(0)), c.Let(beyond, outside))
    round_ps = block_rows * blocks.width * words * multiply_add_ps(kernel.unit, BYTES.sum_dtype)
    kernel.finish_block((blocks.loop(gather, multiply, round_ps, before),))


def _rows_at_a_time(kernel: Kernel, num_rows: Dim, vectors: int, pitch: int) -> tuple[int, int]:
    """Return the rows of a tile, and those that are gathered at a time, whole tiles."""
    tile = max(1, min(kernel.unit.panel_rows(vectors), MAX_DEPTH // pitch))
    if isinstance(num_rows, int):
        tile = max(1, min(tile, num_rows))
    block = max(1, min(_GATHERED_ROWS, _GATHERED_NBYTES // pitch) // tile) * tile
    return tile, min(block, max(1, -(-num_rows // tile)) * tile) if isinstance(num_rows, int) else block


def _require(scope: FunctionScope, step: Step) -> None:
    if step.op == BYTE_CONVOLUTION.name:
        require_room(scope, step, "nn.conv2d")


def _reads(step: Step, index: int) -> Access:
    is_image = step.op == BYTE_CONVOLUTION.name and index == 0
    return Access.ROWS if is_image else Access.COMPACT


def _writes(step: Step, index: int) -> Access:
    return Access.ROWS


FAMILY = KernelFamily(
    frozenset({BYTE_PRODUCT.name, BYTE_CONVOLUTION.name}),
    reject_nothing,
    _write,
    takes_epilogue=True,
    require=_require,
    reads=_reads,
    writes=_writes,
)
"""Products of 8-bit integers, which regions are rewritten to."""
