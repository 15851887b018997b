"""Convolution, channels last, as a matrix product that is never written down: pixels times filters.

The rows of a register tile are pixels of the result, whatever line of the image they lie in, its columns are output
channels. The factors of a row are found through pointers, one for each tap of the filter: a run of channels of the
image, or zeros where the window reaches beyond it. So neither columns of windows nor a padded image are written.

Where the image has few channels the runs would be short: there one run is a whole line of the filter (its pixels lie
side by side), which wants an image padded with zeros; the copy is small, as the image is. Of many small images each
is copied and computed by one thread; the pixels of larger ones are shared by all, one image after another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_panels import pack_panels, packed_constant, panel_size
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm
from byoc_ccompiler.kernels.pixel_tiles import PixelTile, by_count
from byoc_ccompiler.kernels.window_rows import WindowRows
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["copy_image", "write"]

_COPY_PS = 200
"""Estimated picoseconds to copy one element."""


def write(kernel: Kernel) -> None:
    """Write the kernel of a convolution, channels last, and of what follows it elementwise."""
    (x, weight), plan = kernel.group.steps[0].operands, ImplicitGemm.of(kernel)
    shape, source = plan.shape, kernel.source(x)
    block: list[c.Statement] = []
    if isinstance(weight, Constant):
        packed = kernel.source(packed_constant(kernel, shape, weight, plan.columns), "weights")
    else:
        size = shape.groups * plan.panels * panel_size(shape, plan.columns)
        packed = c.Buffer("packed", shape.dtype, c.MemoryAccess.WRITE, size)
        filter_ = kernel.source(weight, "weight")
        block += [kernel.in_scratch(packed), *pack_panels(shape, filter_, packed, plan.columns)]
    if not plan.copies:
        kernel.finish_block((*block, _Tiles(kernel, plan, source, packed).loop()))
        return
    image, n = c.Buffer("image", shape.dtype, c.MemoryAccess.WRITE, plan.image_size), c.Variable("n")
    copy, tiles = copy_image(plan, source, image, n), _Tiles(kernel, plan, image, packed, (n,))
    images = c.For(n, c.Size(0), c.Size(shape.batch), (copy, tiles.loop()))
    if plan.is_small_image:
        copy = replace(copy, kind=c.LoopKind.SERIAL)
        body = (c.LocalArray(image), copy, *tiles.part(c.Size(0), c.Size(tiles.count)))
        round_ps = plan.image_size * _COPY_PS + tiles.count * tiles.item_ps
        images = replace(images, body=body, kind=c.LoopKind.PARALLEL, round_ps=round_ps)
    else:
        block.append(kernel.in_scratch(image))
    kernel.finish_block((*block, images))


def copy_image(plan: ImplicitGemm, source: c.Buffer, image: c.Buffer, n: c.Expression) -> c.For:
    """Return the loop that copies image number ``n``, line by line, padded with zeros."""
    shape, (batch, channel, row_step, pixel) = plan.shape, plan.steps
    left, right = (size * shape.channels for size in shape.padding[1::2])
    line, count = plan.padded[1] * shape.channels, shape.width * shape.channels
    row, y, column, k = map(c.Variable, ("row", "y", "column", "c"))
    to, from_ = c.Buffer("to", shape.dtype, c.MemoryAccess.WRITE), c.Buffer("from", shape.dtype)
    copy: c.Statement = c.Copy(to, c.Size(left), from_, c.Size(0), c.Size(count))
    if channel != 1 or pixel != shape.channels:
        store = c.Store(to, column * shape.channels + (k + left), from_[column * pixel + k * channel])
        (copy,) = loops_around((store,), (column, k), (shape.width, shape.channels))
    clear = c.Clear(to, c.Size(0), c.Size(line))
    filled: c.Block = (
        c.Alias(from_, source, n * batch + y * row_step),
        *([c.Clear(to, c.Size(0), c.Size(left))] if left else []),
        copy,
        *([c.Clear(to, c.Size(left + count), c.Size(right))] if right else []),
    )
    is_inside = c.Binary("&&", y.compare(">=", 0), y.compare("<", shape.height))
    body: c.Block = (
        c.Alias(to, image, row * line),
        c.Let(y, row - shape.padding[0]),
        c.If(is_inside, filled, (clear,)),
    )
    height = c.Size(plan.padded[0])
    return c.For(row, c.Size(0), height, body, kind=c.LoopKind.PARALLEL, round_ps=line * _COPY_PS)


@dataclass(frozen=True, slots=True)
class _Tiles:
    """The tiles of all pixels and all panels.

    Attributes:
        kernel: the convolution, and what follows it.
        plan: how it is cut.
        source: the image, or its padded copy.
        packed: the panels of the filter.
        leading: the number of the image, where each is computed by itself.
    """

    kernel: Kernel
    plan: ImplicitGemm
    source: c.Buffer
    packed: c.Buffer
    leading: tuple[c.Expression, ...] = ()

    @property
    def panels(self) -> int:
        """Panels of all groups."""
        return self.plan.shape.groups * self.plan.panels

    @property
    def count(self) -> Dim:
        """How many tiles there are."""
        return self.plan.blocks * self.panels

    @property
    def item_ps(self) -> int:
        """Estimated picoseconds of a tile."""
        plan = self.plan
        products = plan.rows * plan.runs * plan.depth * plan.columns
        return products * multiply_add_ps(self.kernel.unit, plan.shape.dtype)

    def loop(self) -> c.Dispatch:
        """Return the loop over the tiles, which threads share."""
        first, end = c.Variable("first"), c.Variable("end")
        return c.Dispatch(first, end, self.part(first, end), self.count, 1, self.count * self.item_ps)

    def part(self, first: c.Expression, end: c.Expression) -> c.Block:
        """Return the statements that compute some tiles: where the filter is large, all pixels pass one panel first."""
        plan, groups = self.plan, self.plan.shape.groups
        item, block, panel, m0, m_count, at_hand = map(
            c.Variable, ("item", "block", "panel", "m0", "m_count", "at_hand")
        )
        places = (item // self.panels, item % self.panels)
        if plan.panels_outside:
            places = (item % plan.blocks, item // plan.blocks % self.panels)
        offset = panel // plan.panels * plan.depth
        before: c.Block = ()
        found: c.Block = ()
        factors: tuple[c.Expression, ...] = (c.Address(self.source, m0 * plan.steps[3] + offset), c.Size(plan.steps[3]))
        if plan.has_pointers:
            rows, key = WindowRows.of(self.kernel, plan, self.source, plan.rows), block * groups + panel // plan.panels
            find = by_count(m_count, plan.row_counts, lambda count: rows.find(m0, count, offset))
            before = (*rows.declarations(), c.Declare(at_hand, c.Size(-1)))
            found = (c.If(at_hand.compare("!=", key), (c.Assign(at_hand, key), *find)),)
            factors = (c.Address(rows.rows, c.Size(0)), c.Size(plan.runs), c.Size(0))
        tile = PixelTile(self.kernel, plan, m0, m_count, panel, self.leading)
        body = (
            c.Let(block, places[0]),
            c.Let(panel, places[1]),
            c.Let(m0, block * plan.rows),
            c.Let(m_count, c.index_min(c.Size(plan.num_pixels) - m0, plan.rows)),
            *found,
            *tile.product(plan.row_counts, self.packed, factors, self._ahead(block, panel)),
        )
        return (*before, c.For(item, first, end, body))

    def _ahead(self, block: c.Expression, panel: c.Expression) -> tuple[c.Expression, ...]:
        """Return what to fetch: a tile's share of the next panel."""
        plan = self.plan
        if not plan.fetches:
            return ()
        assert isinstance(plan.blocks, int)
        size, share = panel_size(plan.shape, plan.columns), -(-plan.columns // plan.blocks)
        first = c.index_min(block * (size // plan.blocks), size - size // plan.columns * share)
        ahead = c.index_min(panel + 1, self.panels - 1) * size + first
        return c.Address(self.packed, c.Size(0)), ahead, c.Size(share)
