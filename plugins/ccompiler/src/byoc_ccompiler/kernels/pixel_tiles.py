"""Register tiles of pixels times output channels, channels last: sizes, factors, sums and epilogue.

A panel is some output channels of one group, the columns of a tile, padded with zeros, in the order read by a tile: the
columns of an input channel lie side by side, the channels of a tap follow one another, then the taps. The factors of a
row are the runs of channels read by the taps of a pixel's window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.errors import InternalError

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.named_schedules import legal
from byoc_ccompiler.kernels.pixel_schedule import (
    MAX_POINTERS,
    PixelSchedule,
    Steps,
    best_tiles,
    depth_blocks,
    has_gaps,
)
from byoc_ccompiler.kernels.tiles import multiply

__all__ = ["PixelLoop", "PixelPlan", "PixelTile", "WindowRows", "offered_tiles", "pack_filter", "rows_function"]


_SIZES = (
    "last out_height out_width height width top left stride_down stride_right "
    "taps_down taps_right apart_down apart_right image_step row_step pixel_step"
)
"""The sizes of a window moving by ``stride_*``, with taps ``apart_*``, to pixel number ``last`` of all images."""

_UNSIGNED = c.CType("uint64")
_START = c.Size(0)
_Terms = tuple[c.Expression, ...]


class PixelPlan:
    """The sizes of a convolution under a schedule.

    The image has ``steps`` between neighbouring images, channels, rows and pixels. If the image is copied, the pixels
    belong to one image, else to all; the pixels take ``blocks`` tiles. Each pixel has ``runs`` of ``depth`` factors. A
    group has ``panels`` panels of ``columns`` output channels.

    Raises:
        InternalError: the schedule is not legal.
    """

    def __init__(
        self, kernel: Kernel, shape: ConvolutionGeometry, schedule: PixelSchedule, steps: Steps | None = None
    ) -> None:
        if min(schedule.rows, schedule.vectors, schedule.depth_block or 1) < 1:
            raise InternalError("schedule", "has empty tiles", got=str(schedule))
        self.kernel, self.shape, self.schedule, self.runs = kernel, shape, schedule, shape.num_runs
        self.steps = steps or shape.image_steps(kernel.strides(kernel.group.steps[0].operands[0]))
        self.rows, self.vectors = schedule.rows, schedule.vectors
        self.num_pixels = (replace(shape, batch=1) if schedule.copies else shape).num_pixels
        self.depth = shape.run_size
        self.columns = self.vectors * kernel.unit.lanes(shape.dtype)
        self.panel_size = self.runs * self.depth * self.columns
        self.panels = -(-shape.group_out_channels // self.columns)
        self.blocks = (self.num_pixels + (self.rows - 1)) // self.rows
        has_depth_blocks = schedule.depth_block is not None
        if has_depth_blocks and (schedule.copies or shape.groups > 1):
            raise InternalError("schedule", "divides the depth of a panel, but has groups or copied images")
        if not schedule.copies and has_gaps(shape, self.steps):
            raise InternalError("schedule", "needs a copy of the image: the lines are no contiguous runs")
        num_pointers = self.runs * self.rows * (self.blocks if has_depth_blocks else 1)
        if not isinstance(num_pointers, int) or num_pointers > MAX_POINTERS:
            raise InternalError("schedule", "has too many pointers", got=str(num_pointers), expected=str(MAX_POINTERS))


def offered_tiles(kernel: Kernel, shape: ConvolutionGeometry, tiles: PixelSchedule) -> Iterator[PixelSchedule]:
    """Yield legal schedules near a schedule: the tiles, other tiles, other orders, and blocks of the depth."""
    yield tiles
    yield from legal(_near_tiles(kernel, shape, tiles), lambda schedule: PixelPlan(kernel, shape, schedule))


def _near_tiles(kernel: Kernel, shape: ConvolutionGeometry, tiles: PixelSchedule) -> Iterator[PixelSchedule]:
    plain = replace(tiles, depth_block=None)
    yield replace(plain, panels_outside=not plain.panels_outside)
    yield from (replace(plain, rows=rows, vectors=vectors) for rows, vectors in best_tiles(kernel.unit, shape, plain))
    if kernel.unit.has_vectors:
        yield from (replace(plain, panels_outside=True, depth_block=size) for size in depth_blocks(kernel.unit, shape))
    yield replace(plain, copies=not plain.copies)


def pack_filter(plan: PixelPlan) -> tuple[c.Buffer, c.Block]:
    """Return the panels of a filter, group by group, and the statements writing the panels of a computed filter."""
    kernel, shape, columns, panels = plan.kernel, plan.shape, plan.columns, plan.panels
    width, array = shape.group_out_channels, shape.constant_filter(kernel)
    if array is not None:
        array = array.reshape(shape.groups, width, *array.shape[1:])
        padded = np.pad(array, [(0, 0), (0, panels * columns - width), *[(0, 0)] * 3])
        tiled = padded.reshape(shape.groups, panels, columns, *array.shape[2:]).transpose(0, 1, 4, 5, 3, 2)
        return kernel.source(kernel.scope.constants.derive(tiled), "weights"), ()
    packed = c.Buffer("packed", shape.dtype, c.MemoryAccess.WRITE, shape.groups * panels * plan.panel_size)
    weight = kernel.source(kernel.group.steps[0].operands[1], "weight")
    panel, down, right, channel, j = indices = c.variables("panel down right c j")
    column = panel % panels * columns + j
    offset = offset_along((panel // panels * width + column, channel, down, right), shape.weight_steps)
    row = (down * shape.filter_width + right) * shape.group_channels + channel
    value = c.Select(column.compare("<", width), weight[offset], c.Literal(0, c.CType(shape.dtype)))
    store = c.Store(packed, panel * plan.panel_size + (row * columns + j), value)
    sizes = (shape.groups * panels, shape.filter_height, shape.filter_width, shape.group_channels, columns)
    loops = loops_around((store,), indices, sizes, part=0)
    return packed, (kernel.in_scratch(packed), *loops)


class WindowRows:
    """The pointers to the runs of factors of ``pixels`` pixels of an image, and the statements declaring these."""

    def __init__(self, plan: PixelPlan, image: c.Buffer, pixels: int) -> None:
        shape, (batch, _, row, pixel) = plan.shape, plan.steps
        taps = (shape.filter_height, plan.runs // shape.filter_height)
        sizes = (
            *(plan.num_pixels - 1, shape.out_height, shape.out_width, shape.height, shape.width, *shape.padding[:2]),
            *(*shape.strides, *taps, *shape.dilation, batch, row, pixel),
        )
        self._plan, self._image, self._zeros = plan, image, c.Buffer("zeros", image.dtype, size=plan.depth)
        self.rows = c.PointerArray("rows", image.dtype, c.MemoryAccess.WRITE, plan.runs * pixels)
        self._window = c.Buffer("window", "int64", c.MemoryAccess.WRITE, len(sizes))
        self.declared: c.Block = (
            *(c.LocalArray(self._zeros, is_zeroed=True), c.LocalArray(self.rows), c.LocalArray(self._window)),
            *(c.Store(self._window, c.Size(number), c.Size(size)) for number, size in enumerate(sizes)),
        )

    def find(
        self, first: c.Expression, count: int, offset: c.Expression, first_pointer: c.Expression = _START
    ) -> c.Statement:
        """Return the statement setting pointers, from number ``first_pointer`` on, to channel ``offset`` of pixels."""
        image = c.Address(self._image, offset)
        zeros = c.Address(self._zeros, _START) if self._plan.shape.is_padded else image
        arguments = (c.Address(self.rows, first_pointer), image, zeros, c.Address(self._window, _START), first)
        return self._plan.kernel.call(rows_function(self._image.dtype, count), *arguments)

    def of_tile(
        self, first: c.Expression, count: c.Expression, counts: Sequence[int], offset: c.Expression = _START
    ) -> tuple[c.Block, _Terms]:
        """Return the statements finding the rows of a tile with one of ``counts`` pixels, and the factors."""
        find = _by_count(count, counts, lambda rows: self.find(first, rows, offset))
        return find, (c.Address(self.rows, _START), c.Size(self._plan.runs), _START)


@cache
def rows_function(dtype: str, count: int) -> c.Function:
    """Return a function finding the starts of the windows of some neighbouring pixels of an image of a dtype.

    Parameters: ``(rows, x, zeros, window, m0)``; ``rows[t * count + j]`` becomes the address of tap ``t`` of pixel
    ``m0 + j`` (clamped to the last pixel), or ``zeros`` if the tap lies outside the image.
    """
    rows, x, zeros = c.PointerArray("rows", dtype, c.MemoryAccess.WRITE), c.Buffer("x", dtype), c.Buffer("zeros", dtype)
    window, m0, j, sizes = c.Buffer("window", "int64"), c.Variable("m0"), c.Variable("j"), c.variables(_SIZES)
    last, out_height, out_width, height, width, top, left, stride_down, stride_right, *tap_sizes = sizes
    taps_down, taps_right, apart_down, apart_right, image_step, row_step, pixel_step = tap_sizes
    column, line, row, image, at = c.variables("column line row image at")
    tap_down, tap_right, down, right, step = c.variables("tap_down tap_right down right step")
    tops, lefts, firsts = (c.Buffer(name, "int64", c.MemoryAccess.WRITE, count) for name in ("tops", "lefts", "firsts"))
    next_image = c.If(row.compare(">=", out_height), (c.Assign(row, _START), c.Assign(image, image + 1)))
    next_row = (c.Assign(column, _START), c.Assign(row, row + 1), next_image)
    next_pixel = (c.Assign(column, column + 1), c.If(column.compare(">=", out_width), next_row))
    corner: c.Block = (
        c.Store(tops, j, row * stride_down - top),
        c.Store(lefts, j, column * stride_right - left),
        c.Store(firsts, j, image * image_step + tops[j] * row_step + lefts[j] * pixel_step),
        c.If((m0 + j).compare("<", last), next_pixel),
    )
    # Without a branch: as unsigned numbers, negative numbers are large.
    limits = ((tops[j] + down, height), (lefts[j] + right, width))
    is_down, is_right = (
        c.Cast(coordinate, _UNSIGNED).compare("<", c.Cast(limit, _UNSIGNED)) for coordinate, limit in limits
    )
    pointer = c.Select(c.Binary("&", is_down, is_right), c.Address(x, at), c.Address(zeros, _START))
    store = c.Store(rows, (tap_down * taps_right + tap_right) * count + j, pointer)
    tap: c.Block = (
        c.Let(down, tap_down * apart_down),
        c.Let(right, tap_right * apart_right),
        c.Let(step, down * row_step + right * pixel_step),
        c.For(j, _START, c.Size(count), (c.Let(at, firsts[j] + step), store), kind=c.LoopKind.UNROLLED),
    )
    body: c.Block = (
        *(c.Let(variable, window[number]) for number, variable in enumerate(sizes)),
        *map(c.LocalArray, (tops, lefts, firsts)),
        c.Let(line, m0 // out_width),
        c.Declare(column, m0 % out_width),
        c.Declare(row, line % out_height),
        c.Declare(image, line // out_height),
        c.For(j, _START, c.Size(count), corner, kind=c.LoopKind.UNROLLED),
        c.For(tap_down, _START, taps_down, (c.For(tap_right, _START, taps_right, tap),)),
    )
    # Inlined, because constants known to a caller remove much of the code.
    parameters = (rows, x, zeros, window, m0)
    return c.Function(f"windows_{c_suffix(dtype)}_{count}", parameters, body, is_inline=True)


def _by_count(count: c.Expression, counts: Sequence[int], of: Callable[[int], c.Statement]) -> c.Block:
    """Return the statement for the actual number of rows of a tile: one of ``counts``, else the last of these."""
    *earlier_counts, last = counts
    block: c.Block = (of(last),)
    for earlier in reversed(earlier_counts):
        block = (c.If(count.compare("==", earlier), (of(earlier),), block),)
    return block


@dataclass(frozen=True, slots=True)
class PixelTile:
    """A tile: ``count`` pixels from the ``first`` on times a panel; ``leading`` as in :class:`SumsTile`."""

    plan: PixelPlan
    first: c.Expression
    count: c.Expression
    panel: c.Expression
    leading: _Terms = ()

    def product(self, counts: Sequence[int], packed: c.Buffer, factors: _Terms, ahead: _Terms = ()) -> c.Block:
        """Return the statements computing the sums and the epilogue.

        ``counts`` are the possible numbers of rows of a tile; the last is used for any other number. ``factors`` are
        the rows, and ``ahead`` is prefetched meanwhile, as in :func:`multiply`.
        """
        plan = self.plan
        sums = c.Buffer("sums", plan.shape.dtype, c.MemoryAccess.WRITE, plan.rows * plan.columns)
        matrix = c.Address(packed, self.panel * plan.panel_size)

        def multiplied(rows: int) -> c.Statement:
            operands = (factors, matrix, c.Size(plan.depth), c.Address(sums, _START))
            return multiply(plan.kernel, (rows, plan.vectors), *operands, ahead=ahead)

        return (c.LocalArray(sums), *_by_count(self.count, counts, multiplied), *self.rest(sums))

    def rest(self, sums: c.Buffer) -> c.Block:
        """Return the statements of the epilogue of the sums."""
        plan, n0, n_count = self.plan, c.Variable("n0"), c.Variable("n_count")
        width, columns = plan.shape.group_out_channels, plan.columns
        first = self.panel % plan.panels * columns
        region = (self.first, self.count, n0, n_count, columns, width % columns)
        tile = SumsTile(sums, columns, *region, self.leading)
        return (
            c.Let(n0, self.panel // plan.panels * width + first),
            c.Let(n_count, c.index_min(c.Size(width) - first, columns)),
            *epilogue(plan.kernel, tile),
        )


class PixelLoop:
    """The loop over tiles of ``count`` pixels from ``pixel`` on, each times all panels, in a larger kernel.

    The filter is constant, and ``totals`` are the possible numbers of pixels.
    """

    def __init__(self, plan: PixelPlan, totals: Collection[int]) -> None:
        self.plan = plan
        self.packed, written = pack_filter(plan)
        assert not written
        full = [plan.rows] if max(totals) >= plan.rows else []
        self.counts = [*full, *sorted({total % plan.rows for total in totals} - {0})]
        self.pixel, self.count = c.Variable("p0"), c.Variable("p_count")

    def over(
        self, end: c.Expression, factors: _Terms, first: c.Expression, leading: _Terms, before: c.Block = ()
    ) -> c.For:
        """Return the loop over the pixels up to an end.

        ``before`` finds the factors of a tile; the first pixel of a tile has the index ``first`` behind the leading
        indices.
        """
        panel, rows = c.Variable("panel"), self.plan.rows
        product = PixelTile(self.plan, first, self.count, panel, leading).product(self.counts, self.packed, factors)
        panels = c.For(panel, _START, c.Size(self.plan.panels), product)
        body = (c.Let(self.count, c.index_min(end - self.pixel, rows)), *before, panels)
        return c.For(self.pixel, _START, end, body, step=rows)
