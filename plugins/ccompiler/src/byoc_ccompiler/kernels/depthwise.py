"""Depthwise convolution, channels last, alone and in a chain: each channel by itself, vectors along the channels.

Groups of 2 or 4 channels are computed alike, alone. The lanes of a pixel are turned within each group, and multiplied
by the weights between each output channel and the input channel then in its lane, until each output channel has met all
input channels of the group.

A block of neighbouring outputs, in one or two rows, is summed in registers; each pixel is loaded once for the whole
block. If all windows of a block lie inside the image, pixels are found by their distances. At the border each pixel has
a separate address, outside the image the address of a pixel of zeros. The sums of a block wait in a small array for
the epilogue of the convolution.

A chain, with the pointwise convolutions around, is computed in one pass over rows. Rows of the image of the depthwise
convolution are computed at first use. A ring holds as many rows as read by a block, with zeros beside the rows for
padding. Each thread has a ring for its neighbouring rows; rows needed by two threads are computed by both. The rows of
the result are multiplied by the filters of the last convolution a few at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.errors import InternalError
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel, compact_strides
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry, ImagePixels, known_size
from byoc_ccompiler.kernels.copies import copy_nest, loops_around
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.implicit_gemm import copy_image
from byoc_ccompiler.kernels.named_schedules import schedule_as_chosen
from byoc_ccompiler.kernels.pixel_schedule import PixelSchedule, choose_tiles, has_gaps
from byoc_ccompiler.kernels.pixel_tiles import PixelLoop, PixelPlan, WindowRows
from byoc_ccompiler.kernels.tiles import in_lanes
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = [
    "ChainSchedule",
    "DepthwiseSchedule",
    "choose_schedule",
    "has_suited_filter",
    "offered_schedules",
    "write",
    "write_chain",
]

_CHUNK = 256  # maximum channels of a block with sums waiting together
_GROUPS = (1, 2, 4)  # channels of a group: the lanes turn by one instruction
_MAX_TAPS = 49  # weights of an output channel
_MAX_REACH = 32  # rows and columns read by a block: at the border each has an address
_MAX_SCALAR_REACH = 16  # the same without vectors, on small machines
_MOST_PARTS = 16  # maximum rings with room: the threads sharing a chain
_FIRST = c.Size(0)
_NOTHING: c.Block = ()

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


@dataclass(frozen=True, slots=True)
class ChainSchedule:
    """The schedule of a chain.

    Attributes:
        depthwise: the blocks of the depthwise convolution.
        expand: the tiles of the convolution before; ``None`` without such a convolution.
        project: the tiles of the convolution behind; ``None`` without such a convolution.
        grain: blocks of rows staying with a thread, and with the thread's ring.
    """

    depthwise: DepthwiseSchedule
    expand: PixelSchedule | None
    project: PixelSchedule | None
    grain: int


class _Block:
    """A block of a convolution under a schedule: ``count`` channels from ``c0`` on, and the array of sums.

    The block reads ``in_rows`` times ``in_columns`` pixels; the steps count elements of the image.

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
        self.c0, self.count, self.y = c.variables("c0 c_count y")
        self.sums = c.Buffer("sums", geometry.dtype, c.MemoryAccess.WRITE, self.rows * self.columns * self.chunk)
        if not _has_filters(geometry, kernel.unit):
            raise InternalError("schedule", "needs small groups, and at least a vector of channels")
        if min(self.rows, self.columns) < 1 or not _is_chunk(self.chunk, geometry.channels, lanes):
            raise InternalError("schedule", "does not divide outputs into blocks of full vectors", got=str(schedule))

    def sum_up(self, source: _PixelSource, taps: c.Buffer, *pixels: c.Expression) -> c.Evaluate:
        """Return the statement summing up the block from pixels found through the given source."""
        operands = (*pixels, c.Address(taps, self.c0), self.count, c.Address(self.sums, _FIRST))
        return self.kernel.call(_sum_function(self, source), *operands)

    def chunks(
        self, image: c.Expression, y0: c.Expression, x0: c.Expression, summed: c.Statement, before: c.Block = ()
    ) -> c.For:
        """Return the loop over the chunks of channels of a block with a given image, first row and first column.

        ``summed`` sums up a chunk; ``before`` stands before the epilogue of the sums of row ``y``.
        """
        geometry, chunk, c0, count, x_count = self.geometry, self.chunk, self.c0, self.count, c.Variable("x_count")
        offset, end = (self.y - y0) * (self.columns * chunk), c.index_min(y0 + self.rows, geometry.out_height)
        tile = SumsTile(self.sums, chunk, x0, x_count, c0, count, leading=(image, self.y), offset=offset)
        body = (
            c.Let(count, c.index_min(c.Size(chunk), c.Size(geometry.channels) - c0)),
            c.Let(x_count, c.index_min(c.Size(self.columns), c.Size(geometry.out_width) - x0)),
            c.LocalArray(self.sums, alignment=self.kernel.unit.nbytes or None),
            summed,
            c.For(self.y, y0, end, (*before, *epilogue(self.kernel, tile))),
        )
        return c.For(c0, _FIRST, c.Size(geometry.channels), body, step=chunk)


def _reach(geometry: ConvolutionGeometry) -> tuple[int, int]:
    """Return the numbers of rows and columns spanned by a filter."""
    down, right = geometry.dilation
    return (geometry.filter_height - 1) * down + 1, (geometry.filter_width - 1) * right + 1


def _is_chunk(size: int, channels: int, lanes: int) -> bool:
    """Return whether channels divide into chunks of a size: whole vectors, with at least a vector in the last chunk."""
    return size > 0 and size % lanes == 0 and (size >= channels or not 0 < channels % size < lanes)


def _has_filters(geometry: ConvolutionGeometry, unit: VectorUnit) -> bool:
    """Return whether groups have as many output as input channels, few, and all groups at least a vector of them."""
    lanes, size = unit.lanes(geometry.dtype), geometry.group_channels
    is_grouped = geometry.groups > 1 and geometry.out_channels == geometry.channels
    return is_grouped and size in _GROUPS and lanes % size == 0 and geometry.channels >= lanes


def _max_reach(unit: VectorUnit) -> int:
    return _MAX_REACH if unit.has_vectors else _MAX_SCALAR_REACH


def has_suited_filter(geometry: ConvolutionGeometry, unit: VectorUnit) -> bool:
    """Return whether groups are small, and filters small enough to be unrolled."""
    is_small = geometry.num_taps * geometry.group_channels <= _MAX_TAPS
    is_near = max(_reach(geometry)) + geometry.strides[0] <= _max_reach(unit)
    return is_small and is_near and _has_filters(geometry, unit)


def choose_schedule(kernel: Kernel, geometry: ConvolutionGeometry) -> DepthwiseSchedule | None:
    """Return the schedule of a convolution with filters summed up in registers; ``None`` for any other."""
    image, weight = kernel.group.steps[0].operands
    has_rows = geometry.layout == "NHWC" and kernel.strides(image)[-1] == 1
    has_filter = geometry.group_channels == 1 or isinstance(weight, Constant)
    is_suited = has_rows and has_filter and has_suited_filter(geometry, kernel.unit)
    return _choose_blocks(geometry, kernel.unit) if is_suited else None


def _choose_blocks(geometry: ConvolutionGeometry, unit: VectorUnit) -> DepthwiseSchedule:
    """Return blocks of at most 8 columns: few blocks, with few outputs beyond the result."""
    (down, right), (_, width), total = geometry.strides, _reach(geometry), geometry.out_width
    rows = 2 if unit.registers >= 32 and down == 1 and geometry.out_height != 1 else 1
    room = (unit.registers // 2 - 2) // rows
    sizes = range(max(1, min(room, (_max_reach(unit) - width) // right + 1, 8)), 0, -1)
    columns = min(sizes, key=lambda size: -(-total // size) * (size + 1)) if isinstance(total, int) else sizes[0]
    channels, lanes = geometry.channels, unit.lanes(geometry.dtype)
    padded_channels = -(-channels // lanes) * lanes
    chunks = range(min(_CHUNK // lanes * lanes, padded_channels), 0, -lanes)
    chunk = next((size for size in chunks if _is_chunk(size, channels, lanes)), padded_channels)
    return DepthwiseSchedule(rows, columns, chunk)


def offered_schedules(
    kernel: Kernel, geometry: ConvolutionGeometry, near: DepthwiseSchedule
) -> Iterator[DepthwiseSchedule]:
    """Yield legal schedules near a schedule: blocks of other rows and columns, and other chunks of channels."""
    unit, lanes, width = kernel.unit, kernel.unit.lanes(geometry.dtype), _reach(geometry)[1]
    most = max(1, (_max_reach(unit) - width) // geometry.strides[1] + 1)
    for rows in (1, 2, 3):
        room = max(1, min((unit.registers - 2) // rows, most, 8))
        yield from (
            DepthwiseSchedule(rows, columns, near.chunk) for columns in dict.fromkeys((room, max(1, room // 2)))
        )
    for size in (near.chunk // 2, near.chunk * 2, near.chunk // 4):
        chunk = size // lanes * lanes
        if _is_chunk(chunk, geometry.channels, lanes):
            yield replace(near, chunk=chunk)


def _filter_taps(kernel: Kernel, geometry: ConvolutionGeometry) -> tuple[c.Buffer, c.Block]:
    """Return the filter tap by tap, output channels side by side, and the statements rearranging a computed filter.

    A tap has a row of weights for each turn of the lanes: of output channel ``o``, the weight of input channel
    ``(o + turn) % size`` of the group.
    """
    channels, size, array = geometry.channels, geometry.group_channels, geometry.constant_filter(kernel)
    if array is not None:
        turned = (np.arange(channels)[:, np.newaxis] + np.arange(size)) % size
        weights = np.take_along_axis(array.reshape(channels, size, geometry.num_taps), turned[..., np.newaxis], axis=1)
        packed = np.ascontiguousarray(weights.transpose(2, 1, 0))
        return kernel.source(kernel.scope.constants.derive(packed), "weights"), ()
    if size > 1:
        raise InternalError("schedule", "needs a constant filter of groups")
    taps = kernel.scratch_memory(geometry.num_taps * channels, geometry.dtype)
    sizes, steps = (geometry.filter_height, geometry.filter_width, channels), geometry.weight_steps
    source = kernel.source(kernel.group.steps[0].operands[1], "weight")
    return taps, kernel.lower(*copy_nest(taps, source, sizes, compact_strides(sizes), (*steps[2:], steps[0])))


def write(kernel: Kernel, geometry: ConvolutionGeometry, schedule: DepthwiseSchedule) -> None:
    """Write the kernel of a depthwise convolution with an elementwise epilogue."""
    image = ImagePixels(kernel)
    block = _Block(kernel, geometry, schedule, image.row_step, image.pixel_step)
    taps, declared = _filter_taps(kernel, geometry)
    item, n, y0, x0, row, column = c.variables("item n y0 x0 row col")
    at = c.PointerArray("at", geometry.dtype, c.MemoryAccess.WRITE, block.in_rows * block.in_columns)
    num_rows = (geometry.out_height + (block.rows - 1)) // block.rows
    number, block_row = c.unravelled(item, (geometry.batch, num_rows))
    is_border = geometry.misses(row, column, block.in_rows, block.in_columns)
    steps = tuple(c.Size(step) for step in (block.row_step, block.pixel_step) if not isinstance(step, int))
    inside = block.sum_up("inside", taps, c.Address(image.buffer, image.offset(n, row, column) + block.c0), *steps)
    summed = c.If(is_border, (block.sum_up("border", taps, c.Address(at, _FIRST), block.c0),), (inside,))
    columns = (
        c.Let(column, x0 * geometry.strides[1] - geometry.padding[1]),
        c.LocalArray(at),
        c.If(is_border, image.pointers(at, n, row, column, block.in_columns)),
        block.chunks(n, y0, x0, summed),
    )
    body = (
        c.Let(n, number),
        c.Let(y0, block_row * block.rows),
        c.Let(row, y0 * geometry.strides[0] - geometry.padding[0]),
        c.For(x0, _FIRST, c.Size(geometry.out_width), columns, step=block.columns),
    )
    loop = loops_around(body, [item], [geometry.batch * num_rows], part=0)
    kernel.finish_block((*declared, *loop))


def _sum_function(block: _Block, source: _PixelSource) -> c.Function:
    """Return a function summing up a block for some channels.

    Parameters: ``(from[, row_step][, pixel_step], taps, count, sums)``, with the symbolic steps only; or ``(at, first,
    taps, count, sums)``, with the addresses of the rows or pixels, and the offset of the first channel of the first
    pixel.
    """
    geometry, dtype, lanes = block.geometry, block.geometry.dtype, block.lanes
    num_sums, (down, right), (below, beside) = block.rows * block.columns, geometry.strides, geometry.dilation
    at, sums = c.PointerArray("at", dtype), c.Buffer("sums", dtype, c.MemoryAccess.WRITE)
    image, taps, line = (c.Buffer(name, dtype) for name in ("from", "taps", "line"))
    acc = c.Buffer("acc", dtype, c.MemoryAccess.WRITE, num_sums * lanes)
    first, count, c1, channel = c.variables("first count c1 c")
    dims = {"row_step": block.row_step, "pixel_step": block.pixel_step}
    row_step, pixel_step = (c.Size(dim) if isinstance(dim, int) else c.Variable(name) for name, dim in dims.items())
    i, j, k, y, x = c.variables("i j k y x")
    row, column, total = y * down + i * below, x * right + j * beside, (y * block.columns + x) * lanes
    pointed, pixel = {
        "inside": ((), c.Load(image, row * row_step + column * pixel_step + channel, lanes)),
        "rows": ((c.Alias(line, at, row),), c.Load(line, first + channel + column * pixel_step, lanes)),
        "border": ((c.Alias(line, at, row * block.in_columns + column),), c.Load(line, first + channel, lanes)),
    }[source]
    steps = [step for step in (row_step, pixel_step) if isinstance(step, c.Variable)]
    found: tuple[c.Buffer | c.Variable, ...] = (image, *steps) if source == "inside" else (at, first)
    number, size = i * geometry.filter_width + j, geometry.group_channels

    def each(index: c.Variable, count: int, *body: c.Statement) -> c.For:
        return c.For(index, _FIRST, c.Size(count), body, kind=c.LoopKind.UNROLLED)

    def of_turn(turn: int) -> c.Block:
        """Return the statements adding the products of all pixels, with lanes turned, by one vector of weights."""
        tap = c.Variable("tap", pixel.type)
        order = tuple(lane // size * size + (lane + turn) % size for lane in range(lanes))
        met = c.Shuffle(pixel, pixel, order) if turn else pixel
        added = c.Store(acc, total, c.Load(acc, total, lanes) + met * tap)
        weights = c.Load(taps, (number * size + turn) * geometry.channels + channel, lanes)
        return c.Let(tap, weights), each(y, block.rows, each(x, block.columns, *pointed, added))

    of_tap = [statement for turn in range(size) for statement in of_turn(turn)]
    body = (
        # The last vector may begin inside the one before.
        c.Let(channel, c.index_min(c1, count - lanes) if lanes > 1 else c1),
        c.LocalArray(acc, lanes=lanes),
        each(k, num_sums, c.Store(acc, k * lanes, in_lanes(c.Literal(0, c.CType(dtype)), lanes))),
        each(i, geometry.filter_height, each(j, geometry.filter_width, *of_tap)),
        each(k, num_sums, c.Store(sums, k * block.chunk + channel, c.Load(acc, k * lanes, lanes))),
    )
    loop, comment = c.For(c1, _FIRST, count, body, step=lanes), "// Sum up a block of outputs for some channels."
    parameters = (*found, taps, count, sums)
    return c.Function(f"depthwise_{source}", parameters, (loop,), None, (comment,), is_contracted=True)


def choose_chain(kernel: Kernel) -> ChainSchedule:
    """Return the schedule of a chain group."""
    steps = [group.steps[0] for group in kernel.group.chain]
    shapes, unit = list(map(ConvolutionGeometry.of_step, steps)), kernel.unit
    at = next(index for index, shape in enumerate(shapes) if shape.is_depthwise)
    shape, usual = shapes[at], _choose_blocks(shapes[at], unit)
    block = schedule_as_chosen(kernel, steps[at], usual, lambda: offered_schedules(kernel, shape, usual))
    height, width = known_size(shape.out_height), known_size(shape.out_width)
    expand = project = None
    if at:
        image = shapes[0].image_steps(kernel.strides(steps[0].operands[0]))
        expand = choose_tiles(unit, shapes[0], shape.width, has_gaps(shapes[0], image))
    if at + 1 < len(shapes):
        project = choose_tiles(unit, shapes[-1], width * min(block.rows, height))
    grain = -(-known_size(shape.batch) * -(-height // block.rows) // (_MOST_PARTS if unit.has_vectors else 1))
    return ChainSchedule(block, expand, project, grain)


def write_chain(kernel: Kernel) -> None:
    """Write the kernel of a chain group."""
    kernel.schedule = schedule = choose_chain(kernel)
    kernel.finish_block(_Chain(kernel, schedule).block())


class _Chain:
    """The parts of a chain's kernel: the convolutions, optionally ``expand`` and ``project``, and the memory.

    ``ring`` holds the current rows of the image, with ``ready`` rows computed; behind the ring lies ``nothing``, a row
    of zeros. ``outputs`` is a block of outputs of the depthwise convolution. ``lines`` are the rows waiting for the
    last convolution.
    """

    def __init__(self, kernel: Kernel, schedule: ChainSchedule) -> None:
        self.kernel, self.schedule, chain = kernel, schedule, kernel.group.chain
        shapes = [ConvolutionGeometry.of_step(group.steps[0]) for group in chain]
        at = 0 if schedule.expand is None else 1
        self.shape = shape = shapes[at]
        names = ("ring", "nothing", "lines", "ring_row", "line_row")
        buffers = [c.Buffer(name, shape.dtype, c.MemoryAccess.WRITE) for name in names]
        self.ring, self.nothing, self.lines, self.ring_row, self.line_row = buffers
        self.batch, self.ready = c.variables("batch ready")
        strides = (0, 0, shape.channels, 1)
        self.depthwise = kernel.part(chain[at], *((self.line_row, strides) if schedule.project else ()))
        self.expand = self.project = None
        if schedule.expand is not None:
            self.expand = PixelPlan(kernel.part(chain[0], self.ring_row, strides), shapes[0], schedule.expand)
        if schedule.project is not None:
            self.project = PixelPlan(kernel.part(chain[-1]), shapes[-1], schedule.project)
        self.outputs = outputs = _Block(self.depthwise, shape, schedule.depthwise, 0, shape.channels)
        self.width, self.out_width, self.out_height = map(known_size, (shape.width, shape.out_width, shape.out_height))
        self.blocks_down = -(-self.out_height // outputs.rows)
        self.line_size, self.left = self.out_width * shape.channels, shape.padding[1] * shape.channels
        # The elements read by the last block, and at least the row with the padding before.
        last = (-(-self.out_width // outputs.columns) - 1) * outputs.columns * shape.strides[1]
        self.row_size = max((last + outputs.in_columns) * shape.channels, self.left + self.width * shape.channels)

    def block(self) -> c.Block:
        """Return the statements of the kernel."""
        shape, row_size, in_rows = self.shape, self.row_size, self.outputs.in_rows
        num_blocks = known_size(shape.batch) * self.blocks_down
        grain, nbytes = self.schedule.grain, self.kernel.unit.nbytes or 1
        waiting = self.outputs.rows * self.line_size if self.project else 0
        part_size = -(-((in_rows + 1) * row_size + waiting) // nbytes) * nbytes
        rings = c.Buffer("rings", shape.dtype, c.MemoryAccess.WRITE, -(-num_blocks // grain) * part_size)
        allocated = self.kernel.in_scratch(rings)
        taps, packed = _filter_taps(self.depthwise, shape)
        copied, declared, row = self._row()
        first, end, item, k = c.variables("first end item k")
        behind = self.left + self.width * shape.channels
        sides = [(offset, size) for offset, size in ((0, self.left), (behind, row_size - behind)) if size > 0]
        cleared = tuple(c.Clear(self.ring, k * row_size + offset, c.Size(size)) for offset, size in sides)
        part = (
            c.Alias(self.ring, rings, first // grain * part_size),
            c.Alias(self.nothing, self.ring, c.Size(in_rows * row_size)),
            c.Alias(self.lines, self.nothing, c.Size(row_size)),
            c.Clear(self.nothing, _FIRST, c.Size(row_size)),
            *loops_around(cleared, [k], [in_rows]),
            *declared,
            c.Declare(self.ready, _FIRST),
            c.For(item, first, end, self._rows(item, first, row, taps)),
        )
        loop = c.Dispatch(first, end, part, num_blocks, grain)
        return (allocated, *packed, *copied, loop)

    def _rows(self, item: c.Variable, first: c.Variable, row: c.Block, taps: c.Buffer) -> c.Block:
        """Return the statements computing a block of rows."""
        shape, outputs, in_rows = self.shape, self.outputs, self.outputs.in_rows
        y0, y, x0, top, k, stop = c.variables("y0 y x0 top k stop")
        rows = c.PointerArray("rows", shape.dtype, c.MemoryAccess.WRITE, in_rows)
        is_first = c.Binary("||", item.compare("==", first), y0.compare("==", 0))
        is_inside = c.Binary("&&", y.compare(">=", 0), y.compare("<", shape.height))
        row_address = c.Address(self.ring, y % in_rows * self.row_size)
        pointer = c.Select(is_inside, row_address, c.Address(self.nothing, _FIRST))
        pixel = x0 * (shape.strides[1] * shape.channels) + outputs.c0
        summed = outputs.sum_up("rows", taps, c.Address(rows, _FIRST), pixel)
        line = c.Alias(self.line_row, self.lines, (outputs.y - y0) * self.line_size)
        chunks = outputs.chunks(self.batch, y0, x0, summed, (line,))
        return (
            c.Let(self.batch, item // self.blocks_down),
            c.Let(y0, item % self.blocks_down * outputs.rows),
            c.Let(top, y0 * shape.strides[0] - shape.padding[0]),
            c.Let(stop, c.index_min(c.Size(shape.height), top + in_rows)),
            c.Assign(self.ready, c.index_max(c.Select(is_first, _FIRST, self.ready), top)),
            c.While(self.ready.compare("<", stop), (*row, c.Assign(self.ready, self.ready + 1))),
            c.LocalArray(rows),
            *loops_around((c.Let(y, top + k), c.Store(rows, k, pointer)), [k], [in_rows]),
            c.For(x0, _FIRST, c.Size(shape.out_width), (chunks,), outputs.columns),
            *self._products(y0),
        )

    def _row(self) -> tuple[c.Block, c.Block, c.Block]:
        """Return the statements before all parts, before each part, and the writes of row ``ready`` to the ring."""
        shape, width, k = self.shape, self.width, c.Variable("k")
        ring_alias = c.Alias(self.ring_row, self.ring, self.ready % self.outputs.in_rows * self.row_size + self.left)
        if self.expand is None:
            image = ImagePixels(self.depthwise)
            count = width if image.pixel_step == shape.channels else 1
            pixel, size = image.offset(self.batch, self.ready, k * count), count * shape.channels
            copy = c.Copy(self.ring_row, k * size, image.buffer, pixel, c.Size(size))
            return _NOTHING, _NOTHING, (ring_alias, *loops_around((copy,), [k], [width // count]))
        plan, loop, image = self.expand, PixelLoop(self.expand, [width]), ImagePixels(self.expand.kernel)
        source, pixel = image.buffer, image.offset(self.batch, self.ready, loop.pixel)
        factors: tuple[c.Expression, ...] = (c.Address(source, pixel), c.Size(image.pixel_step))
        copied, declared, find = _NOTHING, _NOTHING, _NOTHING
        if not plan.shape.is_pointwise:  # The first convolution of a network: a single image.
            if plan.schedule.copies:
                plan, source, copy_loop = copy_image(plan, source, _FIRST)
                copied = (self.kernel.in_scratch(source), copy_loop)
            rows, first = WindowRows(plan, source, plan.rows), self.ready * width + loop.pixel
            declared, (find, factors) = rows.declared, rows.of_tile(first, loop.count, loop.counts)
        row = loop.over(c.Size(width), factors, loop.pixel, (self.batch, self.ready), find)
        return copied, declared, (ring_alias, row)

    def _products(self, y0: c.Variable) -> c.Block:
        """Return the statements multiplying the waiting rows."""
        if self.project is None:
            return ()
        width, height, channels = self.out_width, self.out_height, self.shape.channels
        counts = {width * min(self.outputs.rows, height), width * (height % self.outputs.rows)} - {0}
        loop, end = PixelLoop(self.project, counts), c.Variable("p_end")
        factors = (c.Address(self.lines, loop.pixel * channels), c.Size(channels))
        num_rows = c.index_min(c.Size(self.outputs.rows), height - y0)
        return (c.Let(end, num_rows * width), loop.over(end, factors, y0 * width + loop.pixel, (self.batch,)))
