"""A depthwise convolution with the pointwise ones around it, channels last, in one pass over rows.

Rows of the image of the depthwise convolution are computed when they are first wanted, and lie in a ring of as many as
its windows span, with zeros beside them where it pads. Each thread has a ring for the neighbouring rows that it
computes; rows that two threads want both compute. The rows that the depthwise convolution computes are multiplied by
the filters of the last one a few at a time.
"""

from __future__ import annotations

from byoc_core.authoring import c

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry, ImagePixels, known
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.depthwise import DepthwiseBlock, filter_taps, sum_function
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.implicit_gemm import copy_image
from byoc_ccompiler.kernels.pixel_tiles import PixelLoop, WindowRows
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["write_chain"]

_MOST_PARTS = 16  # rings that there is room for: the threads that share the work, at most
_START = c.Size(0)
_NOTHING: c.Block = ()


def write_chain(kernel: Kernel) -> None:
    """Write the kernel of a group that is a chain."""
    kernel.finish_block(_Chain(kernel).block())


class _Chain:
    """The pieces of the kernel: the convolutions, ``expand`` and ``project`` where they are computed, and the memory.

    ``ring`` holds the rows of the image at hand, of which ``ready`` have been computed; behind it lies ``nothing``, a
    row of zeros. ``lines`` are the rows that wait for the last convolution.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, chain = kernel, kernel.group.chain
        shapes = [ConvolutionGeometry.of_step(group.steps[0]) for group in chain]
        at = next(index for index, shape in enumerate(shapes) if shape.is_depthwise)
        self.shape = shape = shapes[at]
        names = ("ring", "nothing", "lines", "ring_row", "line_row")
        buffers = [c.Buffer(name, shape.dtype, c.MemoryAccess.WRITE) for name in names]
        self.ring, self.nothing, self.lines, self.ring_row, self.line_row = buffers
        self.batch, self.ready = c.Variable("batch"), c.Variable("ready")
        strides, has_project = (0, 0, shape.channels, 1), at + 1 < len(chain)
        self.expand = kernel.part(chain[0], self.ring_row, strides) if at else None
        self.depthwise = kernel.part(chain[at], *((self.line_row, strides) if has_project else ()))
        self.project = kernel.part(chain[-1]) if has_project else None
        self.tile = tile = DepthwiseBlock(shape, kernel.unit, 0, shape.channels)
        self.width, self.out_width, self.out_height = map(known, (shape.width, shape.out_width, shape.out_height))
        self.blocks_down = -(-self.out_height // tile.rows)
        self.line_size, self.left = self.out_width * shape.channels, shape.padding[1] * shape.channels
        # What the last block reads, and at least the row and what pads it before.
        last = (-(-self.out_width // tile.columns) - 1) * tile.columns * shape.strides[1]
        self.row_size = max((last + tile.in_columns) * shape.channels, self.left + self.width * shape.channels)
        products = self.line_size * (shape.num_taps * 2 + (shapes[-1].out_channels if has_project else 0))
        if at:
            products += self.width * shape.strides[0] * shape.channels * (shapes[0].channels * shapes[0].num_taps)
        self.block_ps = products * tile.rows * multiply_add_ps(tile.unit, shape.dtype)

    def block(self) -> c.Block:
        """Return the statements of the kernel."""
        shape, row_size, in_rows = self.shape, self.row_size, self.tile.in_rows
        num_blocks = known(shape.batch) * self.blocks_down
        grain = -(-num_blocks // _MOST_PARTS)
        waiting, nbytes = self.tile.rows * self.line_size if self.project else 0, self.tile.unit.nbytes
        part_size = -(-((in_rows + 1) * row_size + waiting) // nbytes) * nbytes
        rings = c.Buffer("rings", shape.dtype, c.MemoryAccess.WRITE, -(-num_blocks // grain) * part_size)
        allocated = self.kernel.in_scratch(rings)
        taps, packed = filter_taps(self.depthwise, shape)
        copied, declared, row = self._row()
        first, end, item, k = map(c.Variable, ("first", "end", "item", "k"))
        behind = self.left + self.width * shape.channels
        sides = [(place, size) for place, size in ((0, self.left), (behind, row_size - behind)) if size > 0]
        cleared = tuple(c.Clear(self.ring, k * row_size + place, c.Size(size)) for place, size in sides)
        part = (
            c.Alias(self.ring, rings, first // grain * part_size),
            c.Alias(self.nothing, self.ring, c.Size(in_rows * row_size)),
            c.Alias(self.lines, self.nothing, c.Size(row_size)),
            c.Clear(self.nothing, _START, c.Size(row_size)),
            *loops_around(cleared, [k], [in_rows]),
            *declared,
            c.Declare(self.ready, _START),
            c.For(item, first, end, self._rows(item, first, row, taps)),
        )
        loop = c.Dispatch(first, end, part, num_blocks, grain, num_blocks * self.block_ps)
        return (allocated, *packed, *copied, loop)

    def _rows(self, item: c.Variable, first: c.Variable, row: c.Block, taps: c.Buffer) -> c.Block:
        """Return the statements that compute a block of rows."""
        shape, tile, in_rows = self.shape, self.tile, self.tile.in_rows
        y0, y, x0, top, k, stop = map(c.Variable, ("y0", "y", "x0", "top", "k", "stop"))
        rows = c.PointerArray("rows", shape.dtype, c.MemoryAccess.WRITE, in_rows)
        is_first = c.Binary("||", item.compare("==", first), y0.compare("==", 0))
        is_inside = c.Binary("&&", y.compare(">=", 0), y.compare("<", shape.height))
        place = c.Address(self.ring, y % in_rows * self.row_size)
        pointer = c.Select(is_inside, place, c.Address(self.nothing, _START))

        def summed(c0: c.Variable, count: c.Variable, sums: c.Buffer) -> c.Block:
            callee = self.depthwise.shared_function(sum_function(tile, "rows"))
            pixels = (c.Address(rows, _START), x0 * (shape.strides[1] * shape.channels) + c0)
            return (c.Evaluate(c.Call(callee, (*pixels, c.Address(taps, c0), count, c.Address(sums, _START)))),)

        def stored(y: c.Variable, sums: SumsTile) -> c.Block:
            return (c.Alias(self.line_row, self.lines, (y - y0) * self.line_size), *epilogue(self.depthwise, sums))

        chunks = tile.chunk_loop((self.batch, y0, x0), summed, stored)
        return (
            c.Let(self.batch, item // self.blocks_down),
            c.Let(y0, item % self.blocks_down * tile.rows),
            c.Let(top, y0 * shape.strides[0] - shape.padding[0]),
            c.Let(stop, c.index_min(c.Size(shape.height), top + in_rows)),
            c.Assign(self.ready, c.index_max(c.Select(is_first, _START, self.ready), top)),
            c.While(self.ready.compare("<", stop), (*row, c.Assign(self.ready, self.ready + 1))),
            c.LocalArray(rows),
            *loops_around((c.Let(y, top + k), c.Store(rows, k, pointer)), [k], [in_rows]),
            c.For(x0, _START, c.Size(shape.out_width), (chunks,), tile.columns),
            *self._products(y0),
        )

    def _row(self) -> tuple[c.Block, c.Block, c.Block]:
        """Return the statements before all parts and before each, and those that write row ``ready`` to the ring."""
        shape, width, k = self.shape, self.width, c.Variable("k")
        place = c.Alias(self.ring_row, self.ring, self.ready % self.tile.in_rows * self.row_size + self.left)
        if self.expand is None:
            image = ImagePixels(self.depthwise)
            count = width if image.pixel_step == shape.channels else 1
            pixel, size = image.offset(self.batch, self.ready, k * count), count * shape.channels
            copy = c.Copy(self.ring_row, k * size, image.buffer, pixel, c.Size(size))
            return _NOTHING, _NOTHING, (place, *loops_around((copy,), [k], [width // count]))
        loop, image = PixelLoop(self.expand, [width]), ImagePixels(self.expand)
        plan, source, pixel = loop.plan, image.buffer, image.offset(self.batch, self.ready, loop.pixel)
        factors: tuple[c.Expression, ...] = (c.Address(source, pixel), c.Size(image.pixel_step))
        copied, declared, find = _NOTHING, _NOTHING, _NOTHING
        if not plan.shape.is_pointwise:  # The first convolution of a network: there is one image.
            if plan.copies:
                plan, source, copy_loop = copy_image(plan, source, _START)
                copied = (self.kernel.in_scratch(source), copy_loop)
            rows = WindowRows(plan, source, plan.rows)
            declared = rows.declared
            find, factors = rows.of_tile(self.ready * width + loop.pixel, loop.count, loop.counts)
        row = loop.over(c.Size(width), factors, loop.pixel, (self.batch, self.ready), find)
        return copied, declared, (place, row)

    def _products(self, y0: c.Variable) -> c.Block:
        """Return the statements that multiply the rows that wait."""
        if self.project is None:
            return ()
        width, height, channels = self.out_width, self.out_height, self.shape.channels
        counts = {width * min(self.tile.rows, height), width * (height % self.tile.rows)} - {0}
        loop, end = PixelLoop(self.project, counts), c.Variable("p_end")
        factors = (c.Address(self.lines, loop.pixel * channels), c.Size(channels))
        num_rows = c.index_min(c.Size(self.tile.rows), height - y0)
        return (c.Let(end, num_rows * width), loop.over(end, factors, y0 * width + loop.pixel, (self.batch,)))
