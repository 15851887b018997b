"""A depthwise convolution with the pointwise ones around it, channels last, in one pass over rows.

Rows of the image of the depthwise convolution are computed when they are first wanted, and lie in a ring of as many as
its windows span, with zeros beside them where it pads. Each thread has a ring for the neighbouring rows that it
computes; rows that two threads want both compute. What the depthwise convolution gives is multiplied by the filters of
the last one a few rows at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.dims import Dim

from byoc_ccompiler.kernel import Group, Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.depthwise import DepthwiseBlock, choose_block, filter_taps, sum_function
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.image_pixels import ImagePixels
from byoc_ccompiler.kernels.implicit_gemm import copy_image
from byoc_ccompiler.kernels.pixel_tiles import PixelLoop, by_count
from byoc_ccompiler.kernels.window_rows import WindowRows
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["write_chain"]

_MOST_PARTS = 16
"""Rings that there is room for: the threads that share the work, at most."""

_START = c.Size(0)


def write_chain(kernel: Kernel) -> None:
    """Write the kernel of a group that is a chain."""
    kernel.finish_block(_Chain.of(kernel).block(kernel))


def _geometry(group: Group) -> ConvolutionGeometry:
    return ConvolutionGeometry.of_step(group.steps[0])


def _known(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


@dataclass(frozen=True, slots=True)
class _Chain:
    """The pieces of the kernel.

    Attributes:
        expand: what makes the image of the depthwise convolution, if it is computed here.
        depthwise: the depthwise convolution.
        project: what reads its result, if that is computed here.
        shape: the sizes of the depthwise convolution.
        tile: the outputs of the depthwise convolution that are summed up together.
        ring: the rows of the image at hand.
        nothing: a row of zeros.
        lines: the rows that wait for the last convolution.
        ring_row: a row of the ring, behind its padding.
        line_row: a row of those that wait.
        batch: the number of the image.
        ready: the rows of the image that have been computed.
    """

    expand: Kernel | None
    depthwise: Kernel
    project: Kernel | None
    shape: ConvolutionGeometry
    tile: DepthwiseBlock
    ring: c.Buffer
    nothing: c.Buffer
    lines: c.Buffer
    ring_row: c.Buffer
    line_row: c.Buffer
    batch: c.Variable
    ready: c.Variable

    @classmethod
    def of(cls, kernel: Kernel) -> _Chain:
        """Return the pieces of a kernel whose group is a chain."""
        chain = kernel.group.chain
        at = next(index for index, group in enumerate(chain) if _geometry(group).is_depthwise)
        shape, has_project = _geometry(chain[at]), at + 1 < len(chain)
        names = ("ring", "nothing", "lines", "ring_row", "line_row")
        ring, nothing, lines, ring_row, line_row = (c.Buffer(n, shape.dtype, c.MemoryAccess.WRITE) for n in names)
        strides = (0, 0, shape.channels, 1)
        return cls(
            kernel.part(chain[0], ring_row, strides) if at else None,
            kernel.part(chain[at], line_row, strides) if has_project else kernel.part(chain[at]),
            kernel.part(chain[-1]) if has_project else None,
            shape,
            choose_block(shape, kernel.unit, 0, shape.channels),
            *(ring, nothing, lines, ring_row, line_row),
            c.Variable("batch"),
            c.Variable("ready"),
        )

    @property
    def blocks_down(self) -> int:
        """Blocks of rows in an image."""
        return -(-_known(self.shape.out_height) // self.tile.rows)

    @property
    def num_blocks(self) -> int:
        """Blocks of rows in all images."""
        return _known(self.shape.batch) * self.blocks_down

    @property
    def grain(self) -> int:
        """Blocks of rows that one thread computes, at least."""
        return -(-self.num_blocks // _MOST_PARTS)

    @property
    def line_size(self) -> int:
        """Elements of a row of the depthwise convolution's result."""
        return _known(self.shape.out_width) * self.shape.channels

    @property
    def row_size(self) -> int:
        """Elements of a row of the ring: what the last block reads, and at least the row and what pads it before."""
        blocks, (_, left, _, _) = -(-_known(self.shape.out_width) // self.tile.columns), self.shape.padding
        step = self.tile.columns * self.shape.strides[1]
        pixels = max((blocks - 1) * step + self.tile.in_columns, left + _known(self.shape.width))
        return pixels * self.shape.channels

    @property
    def part_size(self) -> int:
        """Elements of a part's memory: the ring, a row of zeros, and the rows that wait for the last convolution."""
        waiting = self.tile.rows * self.line_size if self.project else 0
        alignment = self.tile.unit.nbytes
        return -(-((self.tile.in_rows + 1) * self.row_size + waiting) // alignment) * alignment

    def block(self, kernel: Kernel) -> c.Block:
        """Return the statements of the kernel."""
        parts = -(-self.num_blocks // self.grain)
        rings = c.Buffer("rings", self.shape.dtype, c.MemoryAccess.WRITE, parts * self.part_size)
        allocated = kernel.in_scratch(rings)
        taps, packed = filter_taps(self.depthwise, self.shape)
        copied, declared, row = self._row(kernel)
        first, end, item, k = map(c.Variable, ("first", "end", "item", "k"))
        left, row_size = self.shape.padding[1] * self.shape.channels, self.row_size
        behind = left + _known(self.shape.width) * self.shape.channels
        sides = [(place, size) for place, size in ((0, left), (behind, row_size - behind)) if size > 0]
        part = (
            c.Alias(self.ring, rings, first // self.grain * self.part_size),
            c.Alias(self.nothing, self.ring, c.Size(self.tile.in_rows * row_size)),
            c.Alias(self.lines, self.nothing, c.Size(row_size)),
            c.Clear(self.nothing, _START, c.Size(row_size)),
            *loops_around(
                tuple(c.Clear(self.ring, k * row_size + place, c.Size(size)) for place, size in sides),
                [k],
                [self.tile.in_rows],
            ),
            *declared,
            c.Declare(self.ready, _START),
            c.For(item, first, end, self._rows(item, first, row, taps)),
        )
        work_ps = self.num_blocks * self._block_ps()
        return (allocated, *packed, *copied, c.Dispatch(first, end, part, self.num_blocks, self.grain, work_ps))

    def _rows(self, item: c.Variable, first: c.Variable, row: c.Block, taps: c.Buffer) -> c.Block:
        """Return the statements that compute a block of rows."""
        shape, tile = self.shape, self.tile
        y0, y, x0, top, k, stop = map(c.Variable, ("y0", "y", "x0", "top", "k", "stop"))
        rows = c.PointerArray("rows", shape.dtype, c.MemoryAccess.WRITE, tile.in_rows)
        height, is_first = c.Size(shape.height), c.Binary("||", item.compare("==", first), y0.compare("==", 0))
        is_inside = c.Binary("&&", y.compare(">=", 0), y.compare("<", shape.height))
        place = c.Address(self.ring, y % tile.in_rows * self.row_size)
        pointer = c.Select(is_inside, place, c.Address(self.nothing, _START))

        def summed(c0: c.Variable, count: c.Variable, sums: c.Buffer) -> c.Block:
            callee = self.depthwise.shared_function(sum_function(tile, "rows"))
            pixels = (c.Address(rows, _START), x0 * (shape.strides[1] * shape.channels) + c0)
            return (c.Evaluate(c.Call(callee, (*pixels, c.Address(taps, c0), count, c.Address(sums, _START)))),)

        def stored(y: c.Variable, sums: SumsTile) -> c.Block:
            return (c.Alias(self.line_row, self.lines, (y - y0) * self.line_size), *epilogue(self.depthwise, sums))

        return (
            c.Let(self.batch, item // self.blocks_down),
            c.Let(y0, item % self.blocks_down * tile.rows),
            c.Let(top, y0 * shape.strides[0] - shape.padding[0]),
            c.Let(stop, c.index_min(height, top + tile.in_rows)),
            c.Assign(self.ready, c.index_max(c.Select(is_first, _START, self.ready), top)),
            c.While(self.ready.compare("<", stop), (*row, c.Assign(self.ready, self.ready + 1))),
            c.LocalArray(rows),
            *loops_around((c.Let(y, top + k), c.Store(rows, k, pointer)), [k], [tile.in_rows]),
            c.For(
                x0,
                _START,
                c.Size(shape.out_width),
                (tile.chunk_loop((self.batch, y0, x0), summed, stored),),
                tile.columns,
            ),
            *self._products(y0),
        )

    def _block_ps(self) -> int:
        """Return the estimated picoseconds of a block of rows."""
        shape, rows = self.shape, self.tile.rows
        products = self.line_size * rows * (shape.num_taps * 2)
        if self.expand is not None:
            source = _geometry(self.expand.group)
            depth = source.channels * source.num_taps
            products += _known(shape.width) * rows * shape.strides[0] * shape.channels * depth
        if self.project is not None:
            products += self.line_size * rows * _geometry(self.project.group).out_channels
        return products * multiply_add_ps(self.tile.unit, shape.dtype)

    def _row(self, kernel: Kernel) -> tuple[c.Block, c.Block, c.Block]:
        """Return what stands before all parts and before each, and what writes the row ``ready`` to the ring."""
        shape, width, k = self.shape, _known(self.shape.width), c.Variable("k")
        left = shape.padding[1] * shape.channels
        place = c.Alias(self.ring_row, self.ring, self.ready % self.tile.in_rows * self.row_size + left)
        if self.expand is None:
            image = ImagePixels.of(self.depthwise)
            count = width if image.pixel_step == shape.channels else 1
            pixel = image.offset(self.batch, self.ready, k * count)
            size = c.Size(count * shape.channels)
            copy = c.Copy(self.ring_row, k * (count * shape.channels), image.buffer, pixel, size)
            return (), (), (place, *loops_around((copy,), [k], [width // count]))
        loop, image, leading = PixelLoop.of(self.expand, [width]), ImagePixels.of(self.expand), (self.batch, self.ready)
        if loop.plan.shape.is_pointwise:
            pixel = image.offset(self.batch, self.ready, loop.pixel)
            factors = (c.Address(image.buffer, pixel), c.Size(image.pixel_step))
            return (), (), (place, loop.over(c.Size(width), factors, loop.pixel, leading))
        source = image.buffer
        copied: c.Block = ()
        row = self.batch * shape.height + self.ready
        if loop.plan.copies:
            source = c.Buffer("image", shape.dtype, c.MemoryAccess.WRITE, loop.plan.image_size)
            copied, row = (kernel.in_scratch(source), copy_image(loop.plan, image.buffer, source, _START)), self.ready
        rows = WindowRows.of(self.expand, loop.plan, source, loop.plan.rows)
        find = by_count(loop.count, loop.counts, lambda count: rows.find(row * width + loop.pixel, count, _START))
        runs = (c.Address(rows.rows, _START), c.Size(loop.plan.runs), _START)
        return copied, rows.declarations(), (place, loop.over(c.Size(width), runs, loop.pixel, leading, find))

    def _products(self, y0: c.Variable) -> c.Block:
        """Return the statements that multiply the rows that wait."""
        if self.project is None:
            return ()
        width, height = _known(self.shape.out_width), _known(self.shape.out_height)
        counts = {width * min(self.tile.rows, height), width * (height % self.tile.rows)} - {0}
        loop, end = PixelLoop.of(self.project, counts), c.Variable("p_end")
        factors = (c.Address(self.lines, loop.pixel * self.shape.channels), c.Size(self.shape.channels))
        num_rows = c.index_min(c.Size(self.tile.rows), height - y0)
        return (c.Let(end, num_rows * width), loop.over(end, factors, y0 * width + loop.pixel, (self.batch,)))
