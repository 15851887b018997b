"""Convolution, channels last, as an implicit matrix product of pixels times filters.

The rows of a register tile are pixels of the result, in any lines of the image; the columns are output channels. The
factors of a row are found through pointers, a pointer for each tap of the filter: a run of channels of the image, or
zeros if the window reaches beyond the image. Neither columns of windows nor a padded image are written.

If the image has few channels, a run is a whole line of the filter, with pixels side by side. The runs need an image
padded with zeros; the copy is small, like the image. Of many small images, each is copied and computed by one thread.
"""

from __future__ import annotations

from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry, known_size
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.epilogue import collapsed_step
from byoc_ccompiler.kernels.pixel_schedule import PixelSchedule
from byoc_ccompiler.kernels.pixel_tiles import PixelPlan, PixelTile, WindowRows, pack_filter
from byoc_ccompiler.kernels.tiles import multiply

__all__ = ["copy_image", "write"]

_FEW_BLOCKS = 40  # maximum tiles passing one panel before the next is needed from memory
_MAX_UNROLLED_CHANNELS = 16  # maximum channels copied one after another
_STACK_NBYTES = 1 << 14  # maximum size of a padded copy of an image on the stack of each thread
_START = c.Size(0)


def write(kernel: Kernel, shape: ConvolutionGeometry, schedule: PixelSchedule) -> None:
    """Write the kernel of a convolution, channels last, with an elementwise epilogue."""
    plan, source = PixelPlan(kernel, shape, schedule), kernel.source(kernel.group.steps[0].operands[0])
    packed, block = pack_filter(plan)
    if not schedule.copies:
        tiles_of = _tiles if schedule.depth_block is None else _tiles_of_few
        kernel.finish_block((*block, tiles_of(plan, source, packed)))
        return
    n = c.Variable("n")
    plan, image, copy = copy_image(plan, source, n)
    size, tiles = image.size, _tiles(plan, image, packed, (n,))
    images = c.For(n, _START, c.Size(shape.batch), (copy, tiles))
    if shape.batch != 1 and isinstance(size, int) and size * dtype_info(shape.dtype).itemsize <= _STACK_NBYTES:
        all_tiles = c.substitute(tiles.body, {tiles.first: _START, tiles.end: c.Size(tiles.count)})
        body = (c.LocalArray(image), replace(copy, kind=c.LoopKind.SERIAL), *all_tiles)
        images = replace(images, body=body, kind=c.LoopKind.PARALLEL)
    else:
        block = (*block, kernel.in_scratch(image))
    kernel.finish_block((*block, images))


def copy_image(plan: PixelPlan, source: c.Buffer, n: c.Expression) -> tuple[PixelPlan, c.Buffer, c.For]:
    """Return the padded copy of image number ``n``, the plan for the copy, and the loop copying line by line."""
    shape, (batch, channel, row_step, pixel), (top, left, bottom, right) = plan.shape, plan.steps, plan.shape.padding
    height, width = shape.height + top + bottom, shape.width + left + right
    line, count = width * shape.channels, shape.width * shape.channels
    left, right = left * shape.channels, right * shape.channels
    row, y, column, k = c.variables("row y column c")
    image = c.Buffer("image", shape.dtype, c.MemoryAccess.WRITE, height * line)
    to, from_ = c.Buffer("to", shape.dtype, c.MemoryAccess.WRITE), c.Buffer("from", shape.dtype)
    copy: c.Block = (c.Copy(to, c.Size(left), from_, _START, c.Size(count)),)
    if channel != 1 or pixel != shape.channels:
        store = c.Store(to, column * shape.channels + (k + left), from_[column * pixel + k * channel])
        # Compilers gather the elements of a loop over few channels, slower than single elements.
        kind = c.LoopKind.UNROLLED if shape.channels <= _MAX_UNROLLED_CHANNELS else c.LoopKind.SERIAL
        pixel_copy = c.For(k, _START, c.Size(shape.channels), (store,), kind=kind)
        copy = loops_around((pixel_copy,), (column,), (shape.width,))
    sides = [c.Clear(to, c.Size(at), c.Size(size)) for at, size in ((0, left), (left + count, right)) if size]
    is_inside = c.Binary("&&", y.compare(">=", 0), y.compare("<", shape.height))
    filled: c.Block = (c.Alias(from_, source, n * batch + y * row_step), *sides, *copy)
    body: c.Block = (
        c.Alias(to, image, row * line),
        c.Let(y, row - top),
        c.If(is_inside, filled, (c.Clear(to, _START, c.Size(line)),)),
    )
    padded = replace(shape, batch=1, height=height, width=width, padding=(0, 0, 0, 0))
    steps = (0, 1, line, shape.channels)
    plan = PixelPlan(plan.kernel, padded, replace(plan.schedule, copies=False), steps)
    loop = c.For(row, _START, c.Size(height), body, kind=c.LoopKind.PARALLEL)
    return plan, image, loop


def _tiles(plan: PixelPlan, source: c.Buffer, packed: c.Buffer, leading: tuple[c.Expression, ...] = ()) -> c.Dispatch:
    """Return the loop over the tiles of all pixels, or of image ``leading``, shared by threads."""
    first, end, item, block, panel, m0, m_count, at_hand = c.variables("first end item block panel m0 m_count at_hand")
    shape, panels, pixels = plan.shape, plan.shape.groups * plan.panels, plan.num_pixels
    sizes, (batch, _, down, right) = (shape.batch, shape.height, shape.width), plan.steps
    indices = (item // panels, item % panels)
    if plan.schedule.panels_outside:
        indices = (item % plan.blocks, item // plan.blocks % panels)
    step, counts, group = None, [plan.rows], panel // plan.panels
    if isinstance(pixels, int):
        counts = sorted({min(plan.rows, pixels), pixels % plan.rows} - {0}, reverse=True)
        if shape.is_pointwise and shape.strides == (1, 1):
            step = collapsed_step(sizes, sizes, (batch, down, right))
    before: c.Block = ()
    found: c.Block = ()
    if step is not None:
        factors: tuple[c.Expression, ...] = (c.Address(source, m0 * step + group * plan.depth), c.Size(step))
    else:
        rows, key = WindowRows(plan, source, plan.rows), block * shape.groups + group
        find, factors = rows.of_tile(m0, m_count, counts, group * plan.depth)
        before = (*rows.declared, c.Declare(at_hand, c.Size(-1)))
        found = (c.If(at_hand.compare("!=", key), (c.Assign(at_hand, key), *find)),)
    tile = PixelTile(plan, m0, m_count, panel, leading)
    body = (
        c.Let(block, indices[0]),
        c.Let(panel, indices[1]),
        c.Let(m0, block * plan.rows),
        c.Let(m_count, c.index_min(c.Size(pixels) - m0, plan.rows)),
        *found,
        *tile.product(counts, packed, factors, _next_panel(plan, packed, block, panel)),
    )
    return c.Dispatch(first, end, (*before, c.For(item, first, end, body)), plan.blocks * panels)


def _next_panel(plan: PixelPlan, packed: c.Buffer, block: c.Variable, panel: c.Variable) -> tuple[c.Expression, ...]:
    """Return the prefetch of a tile's share of the next panel: few tiles would not hide the latency of memory."""
    blocks, size = plan.blocks, plan.panel_size
    if (
        not plan.kernel.unit.has_vectors
        or not plan.schedule.panels_outside
        or not isinstance(blocks, int)
        or not 2 <= blocks <= _FEW_BLOCKS
    ):
        return ()
    share = -(-plan.columns // blocks)
    first = c.index_min(block * (size // blocks), size - size // plan.columns * share)
    ahead = c.index_min(panel + 1, plan.shape.groups * plan.panels - 1) * size + first
    return c.Address(packed, _START), ahead, c.Size(share)


def _tiles_of_few(plan: PixelPlan, source: c.Buffer, packed: c.Buffer) -> c.Dispatch:
    """Return the loop over the panels, shared by threads; successive blocks of a panel meet all pixels."""
    first, end, panel, tap, c0, c_count, block, at, ahead = c.variables("first end panel tap c0 c_count block at ahead")
    pixels, blocks, dtype, columns = (
        known_size(plan.num_pixels),
        known_size(plan.blocks),
        plan.shape.dtype,
        plan.columns,
    )
    size, tile, depth_block = plan.panel_size, plan.rows * columns, plan.schedule.depth_block or plan.depth
    sums = c.Buffer("sums", dtype, c.MemoryAccess.WRITE, blocks * tile)
    rows = WindowRows(plan, source, blocks * plan.rows)
    factors = (c.Address(rows.rows, (block * plan.runs + tap) * plan.rows), c.Size(1), c0)
    fetched = (
        c.Address(packed, _START),
        ahead + block * (depth_block * columns // blocks),
        c.Size(-(-columns // blocks)),
    )
    adds = c.Binary("||", tap.compare(">", 0), c0.compare(">", 0))
    operands = (factors, c.Address(packed, at), c_count, c.Address(sums, block * tile))
    product = multiply(plan.kernel, (plan.rows, plan.vectors), *operands, adds=adds, ahead=fetched)
    depth_body: c.Block = (
        c.Let(c_count, c.index_min(plan.depth - c0, depth_block)),
        c.Let(at, panel * size + (tap * plan.depth + c0) * columns),
        c.Let(ahead, c.index_min(at + c_count * columns, plan.panels * size - depth_block * columns)),
        *loops_around((product,), (block,), (blocks,)),
    )
    products = c.For(c0, _START, c.Size(plan.depth), depth_body, step=depth_block)
    body: c.Block = (
        c.LocalArray(sums),
        *loops_around((products,), (tap,), (plan.runs,)),
        *PixelTile(plan, _START, c.Size(pixels), panel).rest(sums),
    )
    find = rows.find(block * plan.rows, plan.rows, _START, block * (plan.runs * plan.rows))
    part = (*rows.declared, *loops_around((find,), (block,), (blocks,)), c.For(panel, first, end, body))
    return c.Dispatch(first, end, part, plan.panels)
