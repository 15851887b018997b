"""Blocks of outputs of a depthwise convolution, channels last, summed up in registers along the channels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from byoc_core.authoring import c
from byoc_core.dims import Dim

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue import SumsTile
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["DepthwiseBlock", "PixelSource", "choose_block", "filter_reach", "has_suited_filter", "sum_function"]

_CHUNK = 256
"""Channels of a block whose sums wait together, at most."""

_MAX_TAPS = 49
_MAX_REACH = 32
"""Rows and columns of pixels that a block reads, at most: the loops over them are unrolled."""


class PixelSource(Enum):
    """How a block finds its pixels: by their distances, by the address of each row, or of each pixel."""

    STEPS = "inside"
    ROWS = "rows"
    PIXELS = "border"


@dataclass(frozen=True, slots=True)
class DepthwiseBlock:
    """The outputs that are summed up together, and the pixels that they read.

    Attributes:
        geometry: the sizes of the convolution.
        unit: the vector registers.
        rows: rows of outputs.
        columns: columns of outputs.
        pixel_step: elements from one pixel of the image to the next.
        row_step: elements from one row of the image to the next.
    """

    geometry: ConvolutionGeometry
    unit: VectorUnit
    rows: int
    columns: int
    pixel_step: Dim
    row_step: Dim

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.unit.lanes(self.geometry.dtype)

    @property
    def in_rows(self) -> int:
        """Rows from the first that is read to the last."""
        return (self.rows - 1) * self.geometry.strides[0] + filter_reach(self.geometry, 0)

    @property
    def in_columns(self) -> int:
        """Columns from the first that is read to the last."""
        return (self.columns - 1) * self.geometry.strides[1] + filter_reach(self.geometry, 1)

    @property
    def chunk(self) -> int:
        """Channels of one chunk: whole vectors, and no fewer than a vector for the last chunk."""
        channels = self.geometry.channels
        whole = -(-channels // self.lanes) * self.lanes
        for size in range(min(_CHUNK // self.lanes * self.lanes, whole), 0, -self.lanes):
            if channels % size == 0 or channels % size >= self.lanes or size >= channels:
                return size
        return whole

    def chunk_loop(
        self,
        place: tuple[c.Expression, c.Variable, c.Variable],
        summed: Callable[[c.Variable, c.Variable, c.Buffer], c.Block],
        stored: Callable[[c.Variable, SumsTile], c.Block],
    ) -> c.For:
        """Return the loop over the chunks of channels of a block.

        Args:
            place: the image of the block, its first row and its first column.
            summed: returns the statements that sum up a chunk: its first channel, its channels, the array of the sums.
            stored: returns what follows the sums of one row: its number, and the sums.
        """
        geometry, chunk, (image, y0, x0) = self.geometry, self.chunk, place
        c0, count, x_count, y = (c.Variable(name) for name in ("c0", "c_count", "x_count", "y"))
        sums = c.Buffer("sums", geometry.dtype, c.MemoryAccess.WRITE, self.rows * self.columns * chunk)
        offset = (y - y0) * (self.columns * chunk)
        tile = SumsTile(sums, chunk, x0, x_count, c0, count, leading=(image, y), offset=offset)
        body = (
            c.Let(count, c.index_min(c.Size(chunk), c.Size(geometry.channels) - c0)),
            c.Let(x_count, c.index_min(c.Size(self.columns), c.Size(geometry.out_width) - x0)),
            c.LocalArray(sums, alignment=self.unit.nbytes),
            *summed(c0, count, sums),
            c.For(y, y0, c.index_min(y0 + self.rows, geometry.out_height), stored(y, tile)),
        )
        return c.For(c0, c.Size(0), c.Size(geometry.channels), body, step=chunk)


def has_suited_filter(geometry: ConvolutionGeometry, unit: VectorUnit) -> bool:
    """Tells whether a convolution has as many groups as channels, before and after, and a filter that is summed here.

    There must be channels for a vector, and the filter must be small enough for unrolled loops.
    """
    is_depthwise = geometry.is_depthwise and geometry.out_channels == geometry.channels
    reach = max(filter_reach(geometry, axis) for axis in (0, 1))
    is_small = geometry.num_taps <= _MAX_TAPS and reach + geometry.strides[0] <= _MAX_REACH
    return is_depthwise and is_small and geometry.channels >= unit.lanes(geometry.dtype)


def choose_block(geometry: ConvolutionGeometry, unit: VectorUnit, row_step: Dim, pixel_step: Dim) -> DepthwiseBlock:
    """Gives the block that computes fewest outputs beyond the result's, the largest of them."""
    room = unit.registers - min(geometry.num_taps, unit.registers // 2) - 2
    rows = 2 if unit.registers >= 32 and geometry.strides[0] == 1 and geometry.out_height != 1 else 1
    width = geometry.out_width
    reach = (_MAX_REACH - filter_reach(geometry, 1)) // geometry.strides[1] + 1
    sizes = range(max(1, min(room // rows, reach, 8)), 0, -1)
    columns = min(sizes, key=lambda size: -(-width // size) * (size + 1)) if isinstance(width, int) else sizes[0]
    return DepthwiseBlock(geometry, unit, rows, columns, pixel_step, row_step)


def filter_reach(geometry: ConvolutionGeometry, axis: int) -> int:
    """Gives how many rows (axis 0) or columns (1) a filter spans."""
    return ((geometry.filter_height, geometry.filter_width)[axis] - 1) * geometry.dilation[axis] + 1


def sum_function(block: DepthwiseBlock, source: PixelSource) -> c.Function:
    """Return a function that sums up a block for some channels.

    Parameters: ``(from[, row_step][, pixel_step], taps, count, sums)``, the steps where they are not known; or
    ``(at, first, taps, count, sums)``, with the addresses of the rows or pixels, and how far behind them the first
    channel of the first pixel lies.
    """
    geometry, lanes, dtype = block.geometry, block.lanes, block.geometry.dtype
    height, width, num_sums = geometry.filter_height, geometry.filter_width, block.rows * block.columns
    image, at, taps = c.Buffer("from", dtype), c.PointerArray("at", dtype), c.Buffer("taps", dtype)
    sums, tap, acc = (
        c.Buffer(name, dtype, c.MemoryAccess.WRITE, size)
        for name, size in (("sums", None), ("tap", geometry.num_taps * lanes), ("acc", num_sums * lanes))
    )
    first, count, c1, channel = (c.Variable(name) for name in ("first", "count", "c1", "c"))
    dims = {"row_step": block.row_step, "pixel_step": block.pixel_step}
    row_step, pixel_step = (c.Size(dim) if isinstance(dim, int) else c.Variable(name) for name, dim in dims.items())

    i, j, k, y, x, down, right = (c.Variable(name) for name in ("i", "j", "k", "y", "x", "down", "right"))
    parameters: tuple[c.Buffer | c.Variable, ...] = (at, first)
    pixel, line, place = c.Variable("pixel", c.CType(dtype, lanes)), c.Buffer("line", dtype), first + channel
    pointed: c.Block = (c.Alias(line, at, i * block.in_columns + j),)
    if source is PixelSource.ROWS:
        place, pointed = place + j * pixel_step, (c.Alias(line, at, i),)
    elif source is PixelSource.STEPS:
        line, place, pointed = image, i * row_step + j * pixel_step + channel, ()
        parameters = (image, *(step for step in (row_step, pixel_step) if isinstance(step, c.Variable)))

    total = (y * block.columns + x) * lanes
    factor = c.Load(tap, (down // geometry.dilation[0] * width + right // geometry.dilation[1]) * lanes, lanes)
    added = c.Store(acc, total, c.Load(acc, total, lanes) + pixel * factor)
    in_row = (c.Let(right, j - x * geometry.strides[1]), _if_tap(right, geometry.dilation[1], width, added))
    in_rows = (
        c.Let(down, i - y * geometry.strides[0]),
        _if_tap(down, geometry.dilation[0], height, _each(x, block.columns, *in_row)),
    )
    from_taps = c.Load(taps, (i * width + j) * geometry.channels + channel, lanes)
    summed = (*pointed, c.Let(pixel, c.Load(line, place, lanes)), _each(y, block.rows, *in_rows))
    body = (
        # The last vector may begin inside the one before.
        c.Let(channel, c.index_min(c1, count - lanes)),
        c.LocalArray(tap, lanes=lanes),
        c.LocalArray(acc, lanes=lanes),
        _each(i, height, _each(j, width, c.Store(tap, (i * width + j) * lanes, from_taps))),
        _each(k, num_sums, c.Store(acc, k * lanes, c.Broadcast(c.Literal(0, c.CType(dtype)), lanes))),
        _each(i, block.in_rows, _each(j, block.in_columns, *summed)),
        _each(k, num_sums, c.Store(sums, k * block.chunk + channel, c.Load(acc, k * lanes, lanes))),
    )
    loop, comment = c.For(c1, c.Size(0), count, body, step=lanes), "// Sums up a block of outputs for some channels."
    name, parameters = f"depthwise_{source.value}", (*parameters, taps, count, sums)
    return c.Function(name, parameters, (loop,), None, (comment,), is_contracted=True)


def _each(index: c.Variable, count: int, *body: c.Statement) -> c.For:
    return c.For(index, c.Size(0), c.Size(count), body, kind=c.LoopKind.UNROLLED)


def _if_tap(distance: c.Expression, apart: int, count: int, statement: c.Statement) -> c.If:
    """Return a statement that runs where a filter has a tap so many pixels behind its first.

    The conditions stand one inside the other: of `&&` gcc makes code that moves more sums out of registers.
    """
    has_tap = c.If((distance // apart).compare("<", count), (statement,))
    return c.If(distance.compare(">=", 0), (c.If((distance % apart).compare("==", 0), (has_tap,)),))
