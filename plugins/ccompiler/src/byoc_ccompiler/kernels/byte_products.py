"""Products and convolutions of 8-bit integers with constant weights, and what follows them elementwise.

Some rows of the left operand are gathered first: those of a matrix, or the windows of an image, channels last, as bytes
without a sign, where they stay in the nearest cache while all panels of the weights pass. The zero point costs nothing:
its share of each sum is the same for all rows, and the sums start with it.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from byoc_ccompiler.kernels.word_rows import ByteRows, gather_rows, gather_windows
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


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a product is cut.

    Attributes:
        blocks: of rows that are gathered at a time, whole tiles; of panels.
        depth: bytes of a row.
        words: of a row.
        vectors: vectors of sums in a row of a tile.
        tile_rows: rows of a tile.
    """

    blocks: Blocks
    depth: int
    words: int
    vectors: int
    tile_rows: int

    @classmethod
    def of(cls, kernel: Kernel, num_rows: Dim, num_columns: int, depth: int) -> _Plan:
        """Return the plan for a product of these sizes."""
        lanes, most = kernel.unit.lanes(BYTES.sum_dtype), kernel.unit.panel_vectors
        vectors = -(-num_columns // (-(-num_columns // (most * lanes)) * lanes))
        pitch = -(-depth // _QUAD) * _QUAD
        tile_rows = max(1, min(kernel.unit.panel_rows(vectors), MAX_DEPTH // pitch))
        if isinstance(num_rows, int):
            tile_rows = max(1, min(tile_rows, num_rows))
        block_rows = max(1, min(_GATHERED_ROWS, _GATHERED_NBYTES // pitch) // tile_rows) * tile_rows
        if isinstance(num_rows, int):
            block_rows = min(block_rows, max(1, -(-num_rows // tile_rows)) * tile_rows)
        return cls(Blocks(num_rows, num_columns, block_rows, vectors * lanes), depth, pitch // _QUAD, vectors, tile_rows)

    @property
    def has_gaps(self) -> bool:
        """Whether a tile may read bytes that are not gathered."""
        rows = self.blocks.num_rows
        return self.words * _QUAD != self.depth or not isinstance(rows, int) or rows % self.tile_rows != 0


def _write(kernel: Kernel) -> None:
    """Writes the kernel: blocks of rows times panels of weights."""
    step, constants = kernel.group.steps[0], kernel.scope.constants
    x, weight, *border = step.operands
    assert isinstance(weight, Constant)
    array = constants.array(weight, kernel.scope.where)
    # A row of weights is a window of the image: line by line, pixel by pixel, channels last.
    matrix = array if array.ndim == 2 else array.transpose(0, 2, 3, 1).reshape(array.shape[0], -1)
    plan = _Plan.of(kernel, product(shape_of(step.result)[:-1]), *matrix.shape)
    blocks, words = plan.blocks, plan.words
    # Bytes with a sign are moved up by half of what there are, and so is their zero point.
    zero = int_of(step.binding, "zero_point") + (128 if dtype_of(x) == "int8" else 0)
    rows = c.Buffer("rows", BYTES.dtype, c.MemoryAccess.WRITE, blocks.rows * words)
    line = c.Buffer("bytes", "uint8", c.MemoryAccess.WRITE)
    byte, source = c.CType(line.dtype), kernel.source(x, "x")
    # Of a zero point that the data tell the sums hold the share, which is subtracted behind them.
    beyond = c.Variable("beyond", byte)
    shift = c.Cast(kernel.source(border[0], "border")[0], c.CType("int32")) if border else None
    outside = c.Cast(shift + zero, byte) if shift is not None else c.Literal(zero, byte)
    writer = ByteRows(line, words * _QUAD, beyond)
    if step.op == BYTE_PRODUCT.name:
        gather = gather_rows(source[blocks.m0 * plan.depth], plan.depth, plan.depth, blocks.m_count, writer)
    else:
        shape, steps = ConvolutionGeometry.of_step(step), kernel.strides(x)
        gather = gather_windows(source, shape, shape.image_steps(steps), blocks.m0, blocks.m_count, writer)
    panels = kernel.source(constants.derive(pack_panels(matrix.T, blocks.width, words, BYTES.dtype)), "weights")
    # What the sums of each column start with: less the zero point's share. Sums wrap around.
    shares = np.zeros(-(-len(matrix) // blocks.width) * blocks.width, np.int64)
    shares[: len(matrix)] = matrix.sum(axis=1, dtype=np.int64) * -zero
    starts = kernel.source(constants.derive(shares.astype(np.int32)), "starts")
    sums = c.Buffer("sums", BYTES.sum_dtype, c.MemoryAccess.WRITE, blocks.rows * blocks.width)

    def multiply(panel: c.Expression) -> c.Block:
        at = c.Address(starts, blocks.n0)
        products = _products(kernel, plan, rows, (panels, panel * (words * blocks.width)), at, sums)
        return (c.LocalArray(sums), *products, *epilogue(kernel, blocks.tile(sums)))

    before = (
        c.LocalArray(rows, is_zeroed=plan.has_gaps, alignment=64),
        c.Alias(line, rows, c.Size(0)),
        c.Let(beyond, outside),
    )
    round_ps = blocks.rows * blocks.width * words * multiply_add_ps(kernel.unit, BYTES.sum_dtype)
    kernel.finish_block((blocks.loop((gather,), multiply, round_ps, before=before),))


def _products(
    kernel: Kernel,
    plan: _Plan,
    rows: c.Buffer,
    panel: tuple[c.Buffer, c.Expression],
    starts: c.Address,
    sums: c.Buffer,
) -> c.Block:
    """Return the loop over the tiles of a block; long sums go part by part, whose panels stay in the nearest cache."""
    words, width, tile_rows = plan.words, plan.blocks.width, plan.tile_rows
    tile = word_tile(kernel, BYTES, tile_rows, plan.vectors, width)
    most = max(1, _NEAR_NBYTES // (_QUAD * width))
    part = -(-words // -(-words // most))
    k, count, row = c.Variable("k"), c.Variable("count"), c.Variable("row")

    def tiles(start: c.Address, start_step: int) -> c.For:
        left, steps = c.Address(rows, row * words + k), c.Address(panel[0], panel[1] + k * width)
        place = c.Address(sums, row * width)
        arguments = (left, steps, count, c.Size(words), start, c.Size(start_step), place, c.Size(width))
        call = c.Evaluate(c.Call(tile, arguments))
        return c.For(row, c.Size(0), plan.blocks.m_count, (call,), step=tile_rows)

    again = tiles(c.Address(sums, row * width), width)
    parts = (
        c.Let(count, c.index_min(c.Size(words) - k, part)),
        c.If(k.compare("==", 0), (tiles(starts, 0),), (again,)),
    )
    return (c.For(k, c.Size(0), c.Size(words), parts, step=part),)


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
