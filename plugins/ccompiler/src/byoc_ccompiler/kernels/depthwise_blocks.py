"""Blocks of a depthwise convolution, or of one with small groups: neighbouring outputs summed up in registers.

Vectors lie along the channels. A depthwise convolution multiplies each pixel by the weights of a tap at a time. In
larger groups an output channel meets several input channels: the value of an input channel fills the lanes of the
group, from memory if a group is whole vectors, else by a shuffle of a pixel. All products of a value follow one
another, those of all taps meeting the pixel within a line of the filter: with the weights of a line in registers, a
value is loaded or shuffled once for them all.

A small filter is unrolled. A large filter of a depthwise convolution has loops over the taps, around the products of a
block; so code and decoded instructions stay few, and the sums stay in registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Self

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.errors import InternalError

from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import copy_nest, fetch_line, loops_around
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.tiles import in_lanes
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = [
    "DepthwiseBlock",
    "DepthwiseSchedule",
    "choose_blocks",
    "filter_taps",
    "has_small_filter",
    "has_suited_filter",
    "offered_blocks",
]

_CHUNK = 256  # maximum channels of a block with sums waiting together
_MAX_TAPS = 72  # weights of an output channel multiplied without a loop
_MOST_PRODUCTS = 800  # maximum products of a vector of channels without a loop: more code than processors keep decoded
_MOST_COLUMNS = 8  # outputs of a block to the right
_MOST_LINE_PRODUCTS = 96  # maximum products of a vector of channels with a line of a large filter, without a loop
_MAX_REACH = 32  # rows and columns read by a block with an unrolled filter: at the border each has an address
_MAX_POINTERS = 1 << 11  # addresses of pixels of a block on the stack: of a large or dilated filter
_MAX_SCALAR_REACH = 16  # the same without vectors, on small machines
_FIRST = c.Size(0)

_PixelSource = Literal["inside", "rows", "border"]  # found by their distances, or by the address of each row or pixel


@dataclass(frozen=True, slots=True)
class DepthwiseSchedule:
    """The schedule of a depthwise convolution.

    Attributes:
        rows: the outputs summed together, down.
        columns: the outputs summed together, to the right.
        chunk: channels of a block with sums waiting together: whole vectors; the last chunk has at least a vector.
    """

    rows: int
    columns: int
    chunk: int


class DepthwiseBlock:
    """A block of a convolution under a schedule: ``count`` channels from ``c0`` on, and the array of sums.

    The block reads ``in_rows`` times ``in_columns`` pixels; the steps count elements of the image. ``rows_read`` and
    ``columns_read`` are the positions of the pixels with an address each at the border.

    Raises:
        InternalError: the schedule is not legal.
    """

    def __init__(
        self, kernel: Kernel, geometry: ConvolutionGeometry, schedule: DepthwiseSchedule, row_step: Dim, pixel_step: Dim
    ) -> None:
        (down, right), (height, width), lanes = geometry.strides, _reach(geometry), kernel.unit.lanes(geometry.dtype)
        self.kernel, self.geometry, self.row_step, self.pixel_step = kernel, geometry, row_step, pixel_step
        self.rows, self.columns, self.chunk, self.lanes = schedule.rows, schedule.columns, schedule.chunk, lanes
        self.in_rows, self.in_columns = (self.rows - 1) * down + height, (self.columns - 1) * right + width
        self.rows_read, self.columns_read = _positions(geometry, schedule)
        self.num_products = geometry.num_taps * geometry.group_channels  # of an output
        self.c0, self.count, self.y = c.variables("c0 c_count y")
        self.sums = c.Buffer("sums", geometry.dtype, c.MemoryAccess.WRITE, self.rows * self.columns * self.chunk)
        if not _has_filters(geometry, kernel.unit):
            raise InternalError("schedule", "needs groups dividing a vector, and at least a vector of channels")
        if min(self.rows, self.columns) < 1 or not _is_chunk(self.chunk, geometry.channels, lanes):
            raise InternalError("schedule", "does not divide outputs into blocks of full vectors", got=str(schedule))
        if not has_small_filter(geometry, kernel.unit) and self.num_pointers > _MAX_POINTERS:
            raise InternalError("schedule", "has too many pointers", got=str(self.num_pointers))

    @property
    def num_pointers(self) -> int:
        """Addresses of pixels at the border."""
        return self.rows_read.count * self.columns_read.count

    def sum_up(self, source: _PixelSource, taps: c.Buffer, *pixels: c.Expression) -> c.Evaluate:
        """Return the statement summing up the block from pixels found through the given source."""
        first = self.c0 if self.geometry.group_channels == 1 else self.c0 * self.num_products
        operands = (*pixels, c.Address(taps, first), self.count, c.Address(self.sums, _FIRST))
        return self.kernel.call(_sum_function(self, source), *operands)

    def chunks(
        self, image: c.Expression, y0: c.Expression, x0: c.Expression, summed: c.Statement, before: c.Block = ()
    ) -> c.For:
        """Return the loop over the chunks of channels of a block with a given image, first row and first column.

        ``summed`` sums up a chunk; ``before`` stands before the epilogue of the sums of row ``y``.
        """
        geometry, chunk, c0, count, x_count = self.geometry, self.chunk, self.c0, self.count, c.Variable("x_count")
        offset, end = (self.y - y0) * (self.columns * chunk), c.index_min(y0 + self.rows, geometry.out_height)
        leading = (image, self.y) if "H" in geometry.layout else (image,)
        tile = SumsTile(self.sums, chunk, x0, x_count, c0, count, leading=leading, offset=offset)
        body = (
            c.Let(count, c.index_min(c.Size(chunk), c.Size(geometry.channels) - c0)),
            c.Let(x_count, c.index_min(c.Size(self.columns), c.Size(geometry.out_width) - x0)),
            c.LocalArray(self.sums, alignment=self.kernel.unit.nbytes or None),
            summed,
            c.For(self.y, y0, end, (*before, *epilogue(self.kernel, tile))),
        )
        return c.For(c0, _FIRST, c.Size(geometry.channels), body, step=chunk)


@dataclass(frozen=True, slots=True)
class _Positions:
    """The rows, or the columns, read by a block, each with an address at the border.

    All positions in the reach of a block have an address, or only the positions met by a tap: then the positions met by
    a tap follow one another.

    Attributes:
        count: the addresses.
        outputs: the outputs of a block.
        stride: from an output to the next.
        dilation: from a tap to the next.
        is_by_tap: whether only the positions met by a tap have an address.
    """

    count: int
    outputs: int
    stride: int
    dilation: int
    is_by_tap: bool

    @classmethod
    def of(cls, outputs: int, stride: int, taps: int, dilation: int) -> Self:
        """Return the fewer positions."""
        reach = (outputs - 1) * stride + (taps - 1) * dilation + 1
        return cls(min(reach, taps * outputs), outputs, stride, dilation, taps * outputs < reach)

    def number(self, output: c.Expression, tap: c.Expression) -> c.Expression:
        """Return the number of the position of a tap of an output."""
        return tap * self.outputs + output if self.is_by_tap else output * self.stride + tap * self.dilation

    def offset(self, number: c.Expression) -> c.Expression:
        """Return the distance of a position from the first."""
        if not self.is_by_tap:
            return number
        return number // self.outputs * self.dilation + number % self.outputs * self.stride


def _positions(geometry: ConvolutionGeometry, schedule: DepthwiseSchedule) -> tuple[_Positions, _Positions]:
    """Return the rows and the columns with an address at the border."""
    sizes = zip(
        (schedule.rows, schedule.columns),
        geometry.strides,
        (geometry.filter_height, geometry.filter_width),
        geometry.dilation,
        strict=True,
    )
    rows, columns = (_Positions.of(*of_axis) for of_axis in sizes)
    return rows, columns


def _reach(geometry: ConvolutionGeometry) -> tuple[int, int]:
    """Return the numbers of rows and columns spanned by a filter."""
    down, right = geometry.dilation
    return (geometry.filter_height - 1) * down + 1, (geometry.filter_width - 1) * right + 1


def _is_chunk(size: int, channels: int, lanes: int) -> bool:
    """Return whether channels divide into chunks of a size: whole vectors, with at least a vector in the last chunk."""
    return size > 0 and size % lanes == 0 and (size >= channels or not 0 < channels % size < lanes)


def _has_filters(geometry: ConvolutionGeometry, unit: VectorUnit) -> bool:
    """Return whether groups have as many output as input channels, some groups a vector, and all at least a vector."""
    lanes = unit.lanes(geometry.dtype)
    is_grouped = geometry.groups > 1 and geometry.out_channels == geometry.channels >= lanes
    return is_grouped and lanes % geometry.group_channels == 0


def _num_weights(geometry: ConvolutionGeometry, unit: VectorUnit) -> int:
    """Return the weights of an output channel multiplied without a loop; groups of a whole vector have a loop."""
    has_loop = geometry.group_channels == unit.lanes(geometry.dtype)
    return geometry.num_taps * (1 if has_loop else geometry.group_channels)


def _max_reach(unit: VectorUnit) -> int:
    return _MAX_REACH if unit.has_vectors else _MAX_SCALAR_REACH


def has_suited_filter(geometry: ConvolutionGeometry, unit: VectorUnit) -> bool:
    """Return whether blocks of a convolution are summed in registers.

    Groups are small, and filters small enough to be unrolled; or, with vectors, each channel is convolved by itself,
    and the pixels of a block have few addresses.
    """
    if has_small_filter(geometry, unit):
        return True
    if not unit.has_vectors or geometry.group_channels > 1 or not _has_filters(geometry, unit):
        return False
    rows, columns = _positions(geometry, DepthwiseSchedule(1, 1, unit.lanes(geometry.dtype)))
    return rows.count * columns.count <= _MAX_POINTERS


def has_small_filter(geometry: ConvolutionGeometry, unit: VectorUnit) -> bool:
    """Return whether groups are small, and filters small enough to be unrolled."""
    if not _has_filters(geometry, unit):
        return False
    is_near = max(_reach(geometry)) + geometry.strides[0] <= _max_reach(unit)
    return is_near and _num_weights(geometry, unit) <= _MAX_TAPS


def choose_blocks(geometry: ConvolutionGeometry, unit: VectorUnit) -> DepthwiseSchedule:
    """Return blocks of at most 8 columns: few blocks, with few outputs beyond the result."""
    down, total = geometry.strides[0], geometry.out_width
    is_short = 2 * _MOST_COLUMNS * _num_weights(geometry, unit) <= _MOST_PRODUCTS
    rows = 2 if unit.registers >= 32 and down == 1 and geometry.out_height != 1 and is_short else 1
    room = unit.registers // 2 - 2
    if geometry.group_channels > 1:  # Registers for sums, the weights of a line, and a value.
        room = max(room, unit.registers - rows * geometry.filter_width - 2)
    sizes = range(max(1, min(room // rows, _most_columns(geometry, unit, rows), _MOST_COLUMNS)), 0, -1)
    columns = min(sizes, key=lambda size: -(-total // size) * (size + 1)) if isinstance(total, int) else sizes[0]
    channels, lanes = geometry.channels, unit.lanes(geometry.dtype)
    padded_channels = -(-channels // lanes) * lanes
    chunks = range(min(_CHUNK // lanes * lanes, padded_channels), 0, -lanes)
    chunk = next((size for size in chunks if _is_chunk(size, channels, lanes)), padded_channels)
    return DepthwiseSchedule(rows, columns, chunk)


def _most_columns(geometry: ConvolutionGeometry, unit: VectorUnit, rows: int) -> int:
    """Return the most outputs of a block to the right with room for the addresses at the border; 0 for too many rows.

    An unrolled filter has at least one output in a block of any rows.
    """
    if has_small_filter(geometry, unit):
        return max(1, (_max_reach(unit) - _reach(geometry)[1]) // geometry.strides[1] + 1)
    for columns in range(_MOST_COLUMNS, 0, -1):
        down, right = _positions(geometry, DepthwiseSchedule(rows, columns, 1))
        if down.count * right.count <= _MAX_POINTERS:
            return columns
    return 0


def offered_blocks(
    kernel: Kernel, geometry: ConvolutionGeometry, near: DepthwiseSchedule
) -> Iterator[DepthwiseSchedule]:
    """Yield legal schedules near a schedule: blocks of other rows and columns, and other chunks of channels."""
    unit, lanes = kernel.unit, kernel.unit.lanes(geometry.dtype)
    for rows in (1, 2, 3):
        most = _most_columns(geometry, unit, rows)
        room = min((unit.registers - 2) // rows, most, _MOST_COLUMNS)
        yield from (
            DepthwiseSchedule(rows, columns, near.chunk)
            for columns in dict.fromkeys((room, max(1, room // 2)))
            if most > 0
        )
    for size in (near.chunk // 2, near.chunk * 2, near.chunk // 4):
        chunk = size // lanes * lanes
        if _is_chunk(chunk, geometry.channels, lanes):
            yield replace(near, chunk=chunk)


def filter_taps(kernel: Kernel, geometry: ConvolutionGeometry) -> tuple[c.Buffer, c.Block]:
    """Return the filter in the order read by a block, and the statements rearranging a computed filter.

    The order is that of taps, with the weights of all channels side by side. Of groups the order is that of vectors of
    output channels, lines of the filter, input channels of the group, and taps of a line, with the weights of a vector
    side by side: a block reads them in sequence. The last vector may begin inside the one before.
    """
    channels, size, array = geometry.channels, geometry.group_channels, geometry.constant_filter(kernel)
    if array is not None:
        packed = array.reshape(channels, size, geometry.filter_height, geometry.filter_width).transpose(2, 1, 3, 0)
        if size > 1:
            lanes = kernel.unit.lanes(geometry.dtype)
            firsts = (min(first, channels - lanes) for first in range(0, channels, lanes))
            packed = np.stack([packed[..., first : first + lanes] for first in firsts])
        return kernel.source(kernel.scope.constants.derive(np.ascontiguousarray(packed)), "weights"), ()
    if size > 1:
        raise InternalError("schedule", "needs a constant filter of groups")
    taps = kernel.scratch_memory(geometry.num_taps * channels, geometry.dtype)
    sizes, steps = (geometry.filter_height, geometry.filter_width, channels), geometry.weight_steps
    source = kernel.source(kernel.group.steps[0].operands[1], "weight")
    return taps, kernel.lower(*copy_nest(taps, source, sizes, compact_strides(sizes), (*steps[2:], steps[0])))


def _sum_function(block: DepthwiseBlock, source: _PixelSource) -> c.Function:
    """Return a function summing up a block for some channels.

    Parameters: ``(from[, row_step][, pixel_step], taps, count, sums)``, with the symbolic steps only; or ``(at, first,
    taps, count, sums)``, with the addresses of the rows or pixels, and the offset of the first channel of the first
    pixel.
    """
    dtype, lanes, num_sums = block.geometry.dtype, block.lanes, block.rows * block.columns
    pixels, count, c1, k = _Pixels(block, source), *c.variables("count c1 k")
    taps, sums = c.Buffer("taps", dtype), c.Buffer("sums", dtype, c.MemoryAccess.WRITE)
    acc = c.Buffer("acc", dtype, c.MemoryAccess.WRITE, num_sums * lanes)
    if block.geometry.group_channels == 1:
        products = _depthwise_products(block, pixels, taps, acc)
    else:
        weights = c.Buffer("weights", dtype)
        of_vector = c.Alias(weights, taps, c1 * block.num_products)
        products = (of_vector, *_group_products(block, pixels, weights, acc))
    body = (
        # The last vector may begin inside the one before.
        c.Let(pixels.channel, c.index_min(c1, count - lanes) if lanes > 1 else c1),
        c.LocalArray(acc, lanes=lanes),
        _each(k, num_sums, c.Store(acc, k * lanes, in_lanes(c.Literal(0, c.CType(dtype)), lanes))),
        *products,
        _each(k, num_sums, c.Store(sums, k * block.chunk + pixels.channel, c.Load(acc, k * lanes, lanes))),
    )
    loop, comment = c.For(c1, _FIRST, count, body, step=lanes), "// Sum up a block of outputs for some channels."
    parameters = (*pixels.parameters, taps, count, sums)
    return c.Function(f"depthwise_{source}", parameters, (loop,), None, (comment,), is_contracted=True)


class _Pixels:
    """The pixels read by a block, and the first ``channel`` of the current vector."""

    def __init__(self, block: DepthwiseBlock, source: _PixelSource) -> None:
        dtype, dims = block.geometry.dtype, {"row_step": block.row_step, "pixel_step": block.pixel_step}
        self._block, self._source = block, source
        self._at, self._image = c.PointerArray("at", dtype), c.Buffer("from", dtype)
        self._first, self.channel = c.variables("first c")
        self._row_step, self._pixel_step = (
            c.Size(dim) if isinstance(dim, int) else c.Variable(name) for name, dim in dims.items()
        )
        steps = [step for step in (self._row_step, self._pixel_step) if isinstance(step, c.Variable)]
        self.parameters: tuple[c.Buffer | c.Variable, ...] = (
            (self._image, *steps) if source == "inside" else (self._at, self._first)
        )

    def find(
        self, row: c.Expression, column: c.Expression, number: c.Expression
    ) -> tuple[c.Block, c.Buffer, c.Expression]:
        """Return the statements finding a pixel, a buffer, and the offset of the current vector's channels there.

        ``number`` is the number of the pixel's address at the border.
        """
        if self._source == "inside":
            return (), self._image, row * self._row_step + column * self._pixel_step + self.channel
        line, offset = c.Buffer("line", self._image.dtype), self._first + self.channel
        if self._source == "rows":
            return (c.Alias(line, self._at, row),), line, offset + column * self._pixel_step
        return (c.Alias(line, self._at, number),), line, offset


def _each(index: c.Variable, count: int, *body: c.Statement) -> c.For:
    return c.For(index, _FIRST, c.Size(count), body, kind=c.LoopKind.UNROLLED)


def _depthwise_products(block: DepthwiseBlock, pixels: _Pixels, taps: c.Buffer, acc: c.Buffer) -> c.Block:
    """Return the loops adding the products of a depthwise convolution, tap by tap."""
    geometry, lanes, (i, j, y, x) = block.geometry, block.lanes, c.variables("i j y x")
    (down, right), (below, beside) = geometry.strides, geometry.dilation
    tap, total = c.Variable("tap", c.CType(geometry.dtype).with_lanes(lanes)), (y * block.columns + x) * lanes
    number = block.rows_read.number(y, i) * block.columns_read.count + block.columns_read.number(x, j)
    found, line, at = pixels.find(y * down + i * below, x * right + j * beside, number)
    weights = c.Load(taps, (i * geometry.filter_width + j) * geometry.channels + pixels.channel, lanes)
    added = c.Store(acc, total, c.Load(acc, total, lanes) + c.Load(line, at, lanes) * tap)
    of_tap = (c.Let(tap, weights), _each(y, block.rows, _each(x, block.columns, *found, added)))
    if has_small_filter(geometry, block.kernel.unit):
        return (_each(i, geometry.filter_height, _each(j, geometry.filter_width, *of_tap)),)
    is_short = geometry.filter_width * block.rows * block.columns <= _MOST_LINE_PRODUCTS
    taps_of_line = loops_around(of_tap, (j,), (geometry.filter_width,))
    return loops_around(
        (_each(j, geometry.filter_width, *of_tap),) if is_short else taps_of_line, (i,), (geometry.filter_height,)
    )


def _group_products(block: DepthwiseBlock, pixels: _Pixels, weights: c.Buffer, acc: c.Buffer) -> c.Block:
    """Return the statements adding the products of groups of channels, row by row of the image."""
    geometry, statements = block.geometry, list[c.Statement]()
    down, below = geometry.strides[0], geometry.dilation[0]
    for row in range(block.in_rows):
        pairs = itertools.product(range(block.rows), range(geometry.filter_height))
        lines = [(y, i) for y, i in pairs if y * down + i * below == row]
        if lines:
            statements += _row_products(block, pixels, row, lines, weights, acc)
    return tuple(statements)


def _row_products(
    block: DepthwiseBlock,
    pixels: _Pixels,
    row: int,
    lines: Sequence[tuple[int, int]],
    weights: c.Buffer,
    acc: c.Buffer,
) -> c.Block:
    """Return the statements adding the products of a row of the image.

    Args:
        block: the block of outputs.
        pixels: the pixels read by the block.
        row: the number of the row.
        lines: the rows of outputs meeting the row, each with its line of the filter.
        weights: the weights of the vector, as by :func:`filter_taps`.
        acc: the sums.
    """
    geometry, lanes, size = block.geometry, block.lanes, block.geometry.group_channels
    right, beside, width = geometry.strides[1], geometry.dilation[1], geometry.filter_width
    vector, is_whole = c.CType(geometry.dtype).with_lanes(lanes), size == lanes
    met: dict[int, list[tuple[int, int]]] = {}
    for x, j in itertools.product(range(block.columns), range(width)):
        met.setdefault(x * right + j * beside, []).append((x, j))
    numbers = {
        column: block.rows_read.number(c.Size(lines[0][0]), c.Size(lines[0][1])) * block.columns_read.count
        + block.columns_read.number(*map(c.Size, met[column][0]))
        for column in met
    }
    found = {column: pixels.find(c.Size(row), c.Size(column), numbers[column]) for column in sorted(met)}

    def of_channel(channel: c.Expression, value_at: Callable[[c.Buffer, c.Expression], c.Expression]) -> c.Block:
        """Return the statements adding the products of an input channel of the groups, given its value in a pixel."""
        taps = {(i, j): c.Variable("tap", vector) for _, i in lines for j in range(width)}
        statements: list[c.Statement] = []
        for (i, j), tap in taps.items():
            offset = ((channel + i * size) * width + j) * lanes
            statements.append(c.Let(tap, c.Load(weights, offset, lanes)))
            if is_whole and (0, i) in lines:  # The weights of the next vector, once.
                statements.append(fetch_line(weights, offset + block.num_products * lanes))
        for column, (_, line, at) in found.items():
            value = c.Variable("value", vector)
            statements.append(c.Let(value, value_at(line, at)))
            for (y, i), (x, j) in itertools.product(lines, met[column]):
                total = c.Size((y * block.columns + x) * lanes)
                statements.append(c.Store(acc, total, c.Load(acc, total, lanes) + value * taps[i, j]))
        return tuple(statements)

    def shuffled(channel: int, line: c.Buffer, at: c.Expression) -> c.Expression:
        pixel, order = c.Load(line, at, lanes), tuple(lane // size * size + channel for lane in range(lanes))
        return c.Shuffle(pixel, pixel, order)

    before = itertools.chain.from_iterable(statements for statements, _, _ in found.values())
    if is_whole:
        k = c.Variable("k")
        body = of_channel(k, lambda line, at: c.Broadcast(line[at + k], lanes))
        return (*before, c.For(k, _FIRST, c.Size(size), body))
    of_channels = (of_channel(c.Size(channel), partial(shuffled, channel)) for channel in range(size))
    return (*before, *itertools.chain.from_iterable(of_channels))
