"""Depthwise convolution, channels last, alone and in a chain: each channel by itself, vectors along the channels.

Small groups of channels are computed alike, alone.

A block of neighbouring outputs, in one or two rows, is summed in registers; see
:mod:`byoc_ccompiler.kernels.depthwise_blocks`. If all windows of a block lie inside the image, pixels are found by
their distances. At the border each pixel has a separate address, outside the image the address of a pixel of zeros. The
sums of a block wait in a small array for the epilogue of the convolution.

A chain, with the pointwise convolutions around, is computed in one pass over rows. Rows of the image of the depthwise
convolution are computed at first use. A ring holds as many rows as read by a block, with zeros beside the rows for
padding. Each thread has a ring for its neighbouring rows; rows needed by two threads are computed by both. The rows of
the result are multiplied by the filters of the last convolution a few at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry, ImagePixels, known_size
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.depthwise_blocks import (
    DepthwiseBlock,
    DepthwiseSchedule,
    choose_blocks,
    filter_taps,
    has_suited_filter,
    offered_blocks,
)
from byoc_ccompiler.kernels.implicit_gemm import copy_image
from byoc_ccompiler.kernels.named_schedules import schedule_as_chosen
from byoc_ccompiler.kernels.pixel_schedule import PixelSchedule, choose_tiles, has_gaps
from byoc_ccompiler.kernels.pixel_tiles import PixelLoop, PixelPlan, WindowRows

__all__ = ["ChainSchedule", "choose_schedule", "write", "write_chain"]

_MOST_PARTS = 16  # maximum rings with room: the threads sharing a chain
_FIRST = c.Size(0)
_NOTHING: c.Block = ()


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


def choose_schedule(kernel: Kernel, geometry: ConvolutionGeometry) -> DepthwiseSchedule | None:
    """Return the schedule of a convolution with filters summed up in registers; ``None`` for any other."""
    image, weight = kernel.group.steps[0].operands
    has_rows = geometry.layout.endswith("C") and kernel.strides(image)[-1] == 1
    has_filter = geometry.group_channels == 1 or isinstance(weight, Constant)
    is_suited = has_rows and has_filter and has_suited_filter(geometry, kernel.unit)
    return choose_blocks(geometry, kernel.unit) if is_suited else None


def write(kernel: Kernel, geometry: ConvolutionGeometry, schedule: DepthwiseSchedule) -> None:
    """Write the kernel of a depthwise convolution with an elementwise epilogue."""
    image = ImagePixels(kernel)
    block = DepthwiseBlock(kernel, geometry, schedule, image.row_step, image.pixel_step)
    taps, declared = filter_taps(kernel, geometry)
    item, n, y0, x0, row, column = c.variables("item n y0 x0 row col")
    at = c.PointerArray("at", geometry.dtype, c.MemoryAccess.WRITE, block.num_pointers)
    num_rows = (geometry.out_height + (block.rows - 1)) // block.rows
    number, block_row = c.unravelled(item, (geometry.batch, num_rows))
    is_border = geometry.misses(row, column, block.in_rows, block.in_columns)
    steps = tuple(c.Size(step) for step in (block.row_step, block.pixel_step) if not isinstance(step, int))
    inside = block.sum_up("inside", taps, c.Address(image.buffer, image.offset(n, row, column) + block.c0), *steps)
    summed = c.If(is_border, (block.sum_up("border", taps, c.Address(at, _FIRST), block.c0),), (inside,))
    offsets = (block.rows_read.offset, block.columns_read.offset)
    columns = (
        c.Let(column, x0 * geometry.strides[1] - geometry.padding[1]),
        c.LocalArray(at),
        c.If(is_border, image.pointers(at, n, row, column, block.columns_read.count, offsets=offsets)),
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


def choose_chain(kernel: Kernel) -> ChainSchedule:
    """Return the schedule of a chain group."""
    steps = [group.steps[0] for group in kernel.group.chain]
    shapes, unit = list(map(ConvolutionGeometry.of_step, steps)), kernel.unit
    at = next(index for index, shape in enumerate(shapes) if shape.is_depthwise)
    shape, usual = shapes[at], choose_blocks(shapes[at], unit)
    block = schedule_as_chosen(kernel, steps[at], usual, lambda: offered_blocks(kernel, shape, usual))
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
        self.outputs = outputs = DepthwiseBlock(self.depthwise, shape, schedule.depthwise, 0, shape.channels)
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
        taps, packed = filter_taps(self.depthwise, shape)
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
