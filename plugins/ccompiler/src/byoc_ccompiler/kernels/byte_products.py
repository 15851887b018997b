"""Products and convolutions of 8-bit integers with constant weights, with elementwise epilogues.

Some rows of the left operand are gathered first, from a matrix or from the windows of an image, in words
(:mod:`~byoc_ccompiler.kernels.byte_words`). The gathered rows stay in the nearest cache while all panels of the weights
pass. The zero point costs nothing: its share of
each sum is the same for all rows, and is the start of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.dims import Dim, product
from byoc_core.ir import Constant

from byoc_ccompiler.attributes import int_of
from byoc_ccompiler.byte_ops import BYTE_CONVOLUTION, BYTE_PRODUCT
from byoc_ccompiler.family import Access, KernelFamily, rows_access
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import byte_winograd
from byoc_ccompiler.kernels.byte_words import choose_words, starting_sums
from byoc_ccompiler.kernels.conv2d import require_room
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue import epilogue
from byoc_ccompiler.kernels.named_schedules import schedule_as_chosen
from byoc_ccompiler.kernels.pointwise import element_sum
from byoc_ccompiler.kernels.product_schedules import SizedSchedule, check_laws
from byoc_ccompiler.kernels.tiles import in_parts
from byoc_ccompiler.kernels.winograd_plan import WinogradSchedule
from byoc_ccompiler.kernels.words import Blocks, pack_panels, word_tile
from byoc_ccompiler.rejections import reject_nothing
from byoc_ccompiler.steps import Step, dtype_of, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["FAMILY", "MAX_DEPTH"]

MAX_DEPTH = 1 << 16
"""Maximum bytes of a row: the row fits the stack, and a 32-bit sum holds the products of the largest operands."""

_GATHERED_NBYTES, _GATHERED_ROWS, _NEAR_NBYTES = 1 << 15, 48, 3 << 13
"""Maximum bytes, and rows, gathered at a time, but at least a tile; bytes of a panel staying in the nearest cache."""

_STEPS = 4
"""Bytes of a row multiplied at a time without vectors."""

_SCALAR_COLUMNS = 64
"""Columns of a panel without vectors: a C compiler vectorises for a full register of bytes at least."""

_WIDE = c.CType("int32")


@dataclass(frozen=True, slots=True)
class ByteSchedule(SizedSchedule):
    """The schedule of a product of bytes.

    Attributes:
        vectors: vectors in a row of a panel.
        tile_rows: rows with sums in registers at a time.
        block_rows: rows gathered at a time: whole tiles.
        part: words of each row multiplied by a panel at a time; the panel's share stays in the nearest cache.
    """

    vectors: int
    tile_rows: int
    block_rows: int
    part: int


def choose(num_rows: Dim, words: int, nbytes: int, columns: int, unit: VectorUnit) -> ByteSchedule:
    """Return the schedule of a product with ``words`` words of ``nbytes`` bytes in a row."""
    lanes = unit.lanes("int32")
    panel_columns = unit.panel_vectors * lanes if unit.has_vectors else _SCALAR_COLUMNS
    vectors = -(-columns // (-(-columns // panel_columns) * lanes))
    known_rows = num_rows if isinstance(num_rows, int) else _GATHERED_ROWS
    tile_rows = max(1, min(unit.panel_rows(vectors), MAX_DEPTH // (nbytes * words), known_rows))
    most_tiles = max(1, min(_GATHERED_ROWS, _GATHERED_NBYTES // (nbytes * words)) // tile_rows)
    block_rows = min(most_tiles, max(1, -(-known_rows // tile_rows))) * tile_rows
    part = -(-words // -(-words // max(1, _NEAR_NBYTES // (nbytes * vectors * lanes))))
    return ByteSchedule(vectors, tile_rows, block_rows, part)


def _offered_schedules(
    near: ByteSchedule, num_rows: Dim, words: int, nbytes: int, columns: int, unit: VectorUnit
) -> Iterator[ByteSchedule]:
    """Yield schedules near a schedule: other tiles, more or fewer rows gathered at a time, and parts of rows."""

    def with_tiles(vectors: int, tile_rows: int, block_rows: int) -> ByteSchedule:
        rows = max(1, min(tile_rows, near.block_rows))
        return replace(near, vectors=vectors, tile_rows=rows, block_rows=max(rows, block_rows // rows * rows))

    lanes = unit.lanes("int32")
    for vectors in (1, 2, 4) if unit.has_vectors else ():
        if vectors > 1 and (vectors - 1) * lanes >= columns:
            continue
        fitting = min(unit.panel_rows(vectors), MAX_DEPTH // (nbytes * words))
        yield with_tiles(vectors, fitting, near.block_rows)
    yield with_tiles(near.vectors, near.tile_rows // 2, near.block_rows)
    if not isinstance(num_rows, int) or num_rows > near.block_rows:
        yield with_tiles(near.vectors, near.tile_rows, near.block_rows * 2)
    yield with_tiles(near.vectors, near.tile_rows, near.block_rows // 2)
    yield from (replace(near, part=part) for part in (near.part * 2, -(-near.part // 2)) if part <= words)


def _byte_tile(rows: int, width: int) -> c.Function:
    """Return a C function multiplying rows of bytes by a panel, without vectors: a loop over the columns.

    The parameters and the result are the same as of :func:`~byoc_ccompiler.kernels.words.word_tile`, with bytes in
    place of words.
    """
    left, panel, start = c.Buffer("left", "uint8"), c.Buffer("panel", "int8"), c.Buffer("start", "int32")
    sums = c.Buffer("sums", "int32", c.MemoryAccess.SHARED)
    acc = c.Buffer("acc", "int32", c.MemoryAccess.WRITE, rows * width)
    count, row_step, start_step, pitch, j, n = c.variables("count row_step start_step pitch j n")

    def each(to: c.Buffer, apart: Dim | c.Expression, value: c.Expression) -> c.For:
        """Return the loops over rows and columns setting each sum."""
        columns = c.For(n, c.Size(0), c.Size(width), (c.Store(to, j * apart + n, value),))
        return c.For(j, c.Size(0), c.Size(rows), (columns,))

    def some_steps(number: int, k: c.Expression) -> c.Block:
        """Return the statements of some steps: the factors of all rows, and a loop over the columns."""
        factors = [[c.Variable("factor", _WIDE) for _ in range(number)] for _ in range(rows)]
        columns = [c.Variable("column", _WIDE) for _ in range(number)]
        column, lets = c.Variable("n"), list[c.Statement]()
        for row, values in enumerate(factors):
            lets += (c.Let(v, c.Cast(left[row_step * row + k + s], _WIDE)) for s, v in enumerate(values))
        body: list[c.Statement] = [
            c.Let(value, c.Cast(panel[(k + step) * width + column], _WIDE)) for step, value in enumerate(columns)
        ]
        for row, values in enumerate(factors):
            terms = [value * factor for value, factor in zip(columns, values, strict=True)]
            old, added = c.Variable("old", _WIDE), c.Variable("added", _WIDE)
            at = column + row * width
            body += (c.Let(old, acc[at]), c.Let(added, sum(terms[1:], start=terms[0])))
            body.append(c.Store(acc, at, element_sum(old, added)))
        return (*lets, c.For(column, c.Size(0), c.Size(width), tuple(body), kind=c.LoopKind.ROLLED))

    body = (
        c.LocalArray(acc),
        each(acc, width, start[j * start_step + n]),
        *in_parts("k", count, _STEPS, some_steps),
        each(sums, pitch, acc[j * width + n]),
    )
    return c.Function(f"byte_tile_{rows}x{width}", (left, panel, count, row_step, start, start_step, sums, pitch), body)


def _write(kernel: Kernel) -> None:
    """Write the kernel by blocks of rows times panels of weights, or by exact minimal filtering."""
    step, constants = kernel.group.steps[0], kernel.scope.constants
    x, weight, *border = step.operands
    assert isinstance(weight, Constant)
    geometry = ConvolutionGeometry.of_step(step) if step.op == BYTE_CONVOLUTION.name else None
    array = constants.array(weight, kernel.scope.where)
    # A row of weights is a window of the image: line by line, pixel by pixel, channels last.
    matrix = array if array.ndim == 2 else array.transpose(0, 2, 3, 1).reshape(array.shape[0], -1)
    columns, depth = matrix.shape
    num_rows, format_ = product(shape_of(step.result)[:-1]), choose_words(kernel.unit, depth)
    words = format_.in_row(depth)
    sizes = (num_rows, words, format_.nbytes, columns, kernel.unit)
    direct = choose(*sizes)
    filtering = None if geometry is None else byte_winograd.choose_schedule(kernel, geometry)

    def offered() -> Iterator[ByteSchedule | WinogradSchedule]:
        """Yield the best schedule of either kind first."""
        near = () if geometry is None else byte_winograd.offered_schedules(kernel, geometry)
        yield direct
        yield from (item for pair in zip_longest(near, _offered_schedules(direct, *sizes)) for item in pair if item)

    kernel.schedule = schedule = schedule_as_chosen(kernel, step, filtering or direct, offered)
    zero = int_of(step.binding, "zero_point")
    if isinstance(schedule, WinogradSchedule):
        assert geometry is not None
        byte_winograd.write(kernel, geometry, schedule, zero)
        return
    # If signed bytes are shifted, so is the zero point.
    zero += format_.shift if dtype_of(x) == "int8" else 0
    check_laws({"rows divide into full tiles": schedule.block_rows % schedule.tile_rows == 0})
    block_rows, tile_rows, part = schedule.block_rows, schedule.tile_rows, schedule.part
    blocks = Blocks(num_rows, columns, block_rows, schedule.vectors * kernel.unit.lanes("int32"))
    panel, width = blocks.panel, blocks.width
    rows = c.Buffer("rows", format_.dtype, c.MemoryAccess.WRITE, block_rows * words)
    source = kernel.source(x, "x")
    # The sums include the share of a data-dependent zero point; the share is subtracted later.
    shift = c.Cast(kernel.source(border[0], "border")[0], _WIDE) if border else None
    outside = format_.outside(zero, shift)
    beyond = c.Variable("beyond", outside.type)
    writer = format_.writer(rows, words, beyond)
    if geometry is None:
        gather = blocks.gather_rows(source, depth, depth, writer)
    else:
        gather = blocks.gather_windows(source, geometry, kernel.strides(x), writer)
    packed = pack_panels(matrix.T.astype(format_.number), width, words, format_.panel_dtype)
    panels = kernel.source(constants.derive(packed), "weights")
    starts = kernel.source(constants.derive(starting_sums(matrix, zero, width)), "starts")
    sums = c.Buffer("sums", "int32", c.MemoryAccess.WRITE, block_rows * width)
    function = _byte_tile(tile_rows, width)
    if format_.format is not None:
        function = word_tile(kernel.unit, format_.format, tile_rows, schedule.vectors, width)
    tile = kernel.shared_function(function)
    k, count, row = c.variables("k count row")

    def tiles(start: c.Address, start_step: int) -> c.For:
        factors = (c.Address(rows, row * words + k), c.Address(panels, (panel * words + k) * width))
        sum_arguments = (start, c.Size(start_step), c.Address(sums, row * width), c.Size(width))
        call = c.Evaluate(c.Call(tile, (*factors, count, c.Size(words), *sum_arguments)))
        return c.For(row, c.Size(0), blocks.m_count, (call,), step=tile_rows)

    begin, go_on = tiles(c.Address(starts, blocks.n0), 0), tiles(c.Address(sums, row * width), width)
    parts = (c.Let(count, c.index_min(c.Size(words) - k, part)), c.If(k.compare("==", 0), (begin,), (go_on,)))
    products = c.For(k, c.Size(0), c.Size(words), parts, step=part)
    multiply = (c.LocalArray(sums), products, *epilogue(kernel, blocks.tile(sums)))
    # A tile may read bytes not gathered.
    has_gaps = format_.count * words != depth or not isinstance(num_rows, int) or num_rows % tile_rows != 0
    arrays = (c.LocalArray(rows, is_zeroed=has_gaps, alignment=64), *writer.arrays)
    kernel.finish_block((blocks.loop(gather, multiply, (*arrays, c.Let(beyond, outside))),))


def _require(scope: FunctionScope, step: Step) -> None:
    if step.op == BYTE_CONVOLUTION.name:
        require_room(scope, step, "nn.conv2d")


def _reads(step: Step, index: int) -> Access:
    return Access.ROWS if step.op == BYTE_CONVOLUTION.name and index == 0 else Access.COMPACT


_OPS = frozenset({BYTE_PRODUCT.name, BYTE_CONVOLUTION.name})

FAMILY = KernelFamily(
    _OPS, reject_nothing, _write, takes_epilogue=True, require=_require, reads=_reads, writes=rows_access
)
"""Products of 8-bit integers, introduced by rewrites of regions."""
