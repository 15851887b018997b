"""Convolution with a filter of 3 by 3 by Winograd's minimal filtering, channels last.

The image is cut into tiles overlapping by 2 pixels. Each tile is transformed, with vectors along the channels, into 16
(``F(2, 3)``) or 36 (``F(4, 3)``) matrices of tiles by channels, to be multiplied by the matrices of the filter. The
products of a tile and a panel of output channels are transformed back on the stack, followed by the epilogue of the
convolution. The filter is transformed in float64 during code generation, and rounded once.

Threads divide many blocks of tiles: each thread transforms and multiplies separate tiles, round by round. In a single
round of few blocks and several panels, threads divide the panels after all tiles are transformed. In both forms,
successive points of a panel are multiplied by all tiles of a round: factors pass once from memory to the first-level
cache. Else, round by round, threads divide the tiles, and then the pairs of panels and blocks.

Errors: with the matrices of :mod:`~byoc_ccompiler.kernels.winograd_plan` and ``C`` input channels, an output is off by
at most ``gamma_n |A^T| [(|G| |g| |G^T|) * (|B^T| |d| |B|)] |A|``, summed over the channels, with ``n`` equal to ``C``
plus the roundings of the three transforms (:data:`TRANSFORM_ROUNDINGS`). Measured with normal data in float32, 64 to
512 channels: ``F(2, 3)`` 1e-6, ``F(4, 3)`` 4e-6 of the largest output. All outputs of a tile depend on all inputs of
the tile; NaN and infinities thus become NaN in the whole tile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM
from byoc_core.errors import InternalError
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry, ImagePixels
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.named_schedules import legal
from byoc_ccompiler.kernels.tiles import multiply
from byoc_ccompiler.kernels.winograd_plan import (
    Matrix,
    WinogradPlan,
    WinogradSchedule,
    choose_plan,
    has_form,
    make_plan,
    near_schedules,
)
from byoc_ccompiler.steps import dtype_of

__all__ = [
    "TRANSFORM_ROUNDINGS",
    "WinogradLoops",
    "choose_schedule",
    "input_function",
    "mapped",
    "offered_schedules",
    "output_function",
    "write",
]

# By the outputs of a tile along an axis: roundings of an output beside the roundings of the sum over channels. One of
# the filter; along each axis 1 or 3 of the inputs and 2 or 4 of the outputs, even without contraction.
TRANSFORM_ROUNDINGS = {2: 7, 4: 15}
_FIRST = c.Size(0)
_Pair = tuple[c.Expression, c.Expression]


def choose_schedule(kernel: Kernel, geometry: ConvolutionGeometry) -> WinogradSchedule | None:
    """Return the schedule of a convolution of the right form, if expected to gain under the option ``winograd``."""
    image, weight = kernel.group.steps[0].operands
    if not isinstance(weight, Constant) or kernel.strides(image)[-1] != 1 or not has_form(geometry, kernel.unit):
        return None
    plan = choose_plan(geometry, kernel.unit, kernel.options.winograd)
    return None if plan is None else plan.schedule


def offered_schedules(kernel: Kernel, geometry: ConvolutionGeometry) -> Iterator[WinogradSchedule]:
    """Yield legal schedules permitted by the option ``winograd``, the most promising first."""
    image, weight = kernel.group.steps[0].operands
    permitted = {"off": (), "f2": (2,), "auto": (4, 2)}[kernel.options.winograd]
    is_possible = isinstance(weight, Constant) and kernel.strides(image)[-1] == 1 and kernel.unit.has_vectors
    if not is_possible or not has_form(geometry, kernel.unit):
        return
    best = [make_plan(geometry, kernel.unit, num_outputs).schedule for num_outputs in permitted]
    near = [schedule for tiles in best for schedule in near_schedules(kernel.unit, tiles)]
    yield from best
    yield from legal(near, lambda schedule: WinogradPlan(geometry, kernel.unit, schedule))


def write(kernel: Kernel, geometry: ConvolutionGeometry, schedule: WinogradSchedule) -> None:
    """Write the kernel of a convolution with a constant filter and an elementwise epilogue."""
    kernel.finish_block(WinogradLoops(kernel, WinogradPlan(geometry, kernel.unit, schedule)).block())


class WinogradLoops:
    """The loops of a kernel; other number types change the filter and the three steps of the algorithm."""

    def __init__(self, kernel: Kernel, plan: WinogradPlan) -> None:
        self.kernel, self.plan, self.geometry, dtype = kernel, plan, plan.geometry, plan.geometry.dtype
        self.image, self.weights = ImagePixels(kernel), self.packed_filter()
        self.scratch = kernel.scratch_memory(plan.scratch_size, dtype)
        self.outside, self.sums_dtype = 0, dtype_of(kernel.group.steps[0].result)
        self.tiles, self.products = (c.Buffer(name, dtype, c.MemoryAccess.WRITE) for name in ("tiles", "products"))

    def packed_filter(self) -> c.Buffer:
        """Return the transformed filter: panels x points x input channels x output channels of a panel."""
        plan, geometry, array = self.plan, self.geometry, self.geometry.constant_filter(self.kernel)
        if array is None:
            raise InternalError("schedule", "needs a constant filter")
        taps = plan.algorithm.taps
        factors = np.einsum("ay,oiyx,bx->abio", taps, array.astype(np.float64), taps)
        padded = np.zeros((plan.num_points, geometry.channels, plan.num_panels * plan.width))
        padded[..., : geometry.out_channels] = factors.reshape(*padded.shape[:2], -1)
        panels = padded.reshape(*padded.shape[:2], plan.num_panels, plan.width).transpose(2, 0, 1, 3)
        packed = np.ascontiguousarray(panels, dtype=array.dtype)
        return self.kernel.source(self.kernel.scope.constants.derive(packed), "weights")

    def input_function(self) -> c.Function:
        """Return :func:`input_function`."""
        return input_function(self.plan)

    def output_call(self, products: c.Address, pixels: c.Address, point_step: int, first: c.Expression) -> c.Evaluate:
        """Return the call transforming the products of a tile back; ``first`` is the first output channel."""
        return self.kernel.call(output_function(self.plan, point_step), products, pixels)

    def block(self) -> c.Block:
        """Return the loops, in the form of the plan."""
        plan, first, end = self.plan, c.Variable(FIRST_ITEM), c.Variable(END_ITEM)
        part, tiles = c.Variable("part"), c.Alias(self.tiles, self.scratch, _FIRST)
        products = c.Alias(self.products, self.scratch, part * plan.panel_products + plan.tiles_size)
        numbered = c.Let(part, first // plan.grain)
        if plan.parts == "pairs":
            return (tiles, self._rounds_of_pairs())
        if plan.parts == "panels":
            assert isinstance(plan.num_tiles, int)
            full_blocks, tail = divmod(plan.num_tiles, plan.rows)
            transforms = self._transforms(_FIRST, first, end)
            panels = self._panels((first, end), (_FIRST, c.Size(plan.num_tiles)), c.Size(full_blocks), tail)
            return (
                tiles,
                c.Dispatch(first, end, (transforms,), plan.num_tiles),
                c.Dispatch(first, end, (numbered, products, panels), plan.total, plan.grain),
            )
        rounds, number, size, b0, blocks, t0, t_count = c.variables("rounds number round b0 blocks t0 t_count")
        one_round = (
            c.Let(size, (end - first + rounds - 1) // rounds),
            c.Let(b0, first + number * size),
            c.Let(blocks, c.index_min(size, end - b0)),
            c.Let(t0, b0 * plan.rows),
            c.Let(t_count, c.index_min(blocks * plan.rows, c.Size(plan.num_tiles) - t0)),
            self._transforms(t0, _FIRST, t_count),
            self._panels((_FIRST, c.Size(plan.num_panels)), (t0, t_count), blocks),
        )
        body = (
            numbered,
            c.Alias(self.tiles, self.scratch, part * (plan.part_blocks * plan.block_step)),
            products,
            c.Let(rounds, (end - first + (plan.blocks - 1)) // plan.blocks),
            c.For(number, _FIRST, rounds, one_round),
        )
        return (c.Dispatch(first, end, body, plan.total, plan.grain),)

    def _tile_origin(self, tile: c.Expression) -> tuple[c.Expression, c.Variable, c.Variable, c.Block]:
        """Return the image, the first row and the first column of a tile, and their declarations."""
        t, n, y0, x0 = c.variables("t n y0 x0")
        image, down, right = c.unravelled(t, self.plan.grid)
        size = self.plan.algorithm.num_outputs
        return n, y0, x0, (c.Let(t, tile), c.Let(n, image), c.Let(y0, down * size), c.Let(x0, right * size))

    def _transforms(self, t0: c.Expression, begin: c.Expression, end: c.Expression) -> c.For:
        """Return the loop transforming some tiles of a round with first tile ``t0``."""
        plan, item, (top, left, _, _) = self.plan, c.Variable("item"), self.geometry.padding
        at = c.PointerArray("at", self.image.buffer.dtype, c.MemoryAccess.WRITE, plan.num_points)
        n, y0, x0, origin = self._tile_origin(t0 + item)
        to = item // plan.rows * plan.block_step + item % plan.rows * plan.row_step
        transform = self.kernel.call(self.input_function(), c.Address(at, _FIRST), c.Address(self.tiles, to))
        pointers = self.image.pointers(at, n, y0 - top, x0 - left, plan.algorithm.num_inputs, self.outside)
        return c.For(item, begin, end, (*origin, c.LocalArray(at), *pointers, transform))

    def _panels(self, panels: _Pair, tiles: _Pair, blocks: c.Expression, tail: int = 0) -> c.For:
        """Return the loop over panels, up to an end: multiply point by point, transform back, compute the epilogue.

        The ``tiles`` of a round, the first tile and the count, are whole blocks plus a block of ``tail`` tiles.
        """
        plan, width, (t0, count) = self.plan, self.plan.width, tiles
        panel, k, block, slot = c.variables("panel k block slot")

        def product(rows: int, block: c.Expression) -> c.Evaluate:
            sums = c.Address(self.products, (k * plan.round_tiles + block * plan.rows) * width)
            return self.product(rows, (panel, k, block), sums)

        full_blocks = c.For(block, _FIRST, blocks, (product(plan.rows, block),))
        products = (full_blocks, product(tail, blocks)) if tail else (full_blocks,)
        outputs = self._outputs(t0 + slot, panel, c.Address(self.products, slot * width), plan.round_tiles * width)
        body = (c.For(k, _FIRST, c.Size(plan.num_points), products), c.For(slot, _FIRST, count, outputs))
        return c.For(panel, *panels, body)

    def _rounds_of_pairs(self) -> c.For:
        """Return the loop over rounds: transform the tiles, then multiply pairs of a panel and a block."""
        plan, size, first_item, end = self.plan, self.plan.round_tiles, c.Variable(FIRST_ITEM), c.Variable(END_ITEM)
        t0, t_count, item, panel, block, slot, k = c.variables("t0 t_count item panel block slot k")
        step, first = plan.rows * plan.width, block * plan.rows
        products = c.Buffer("products", self.geometry.dtype, c.MemoryAccess.WRITE, plan.num_points * step)
        multiplied = self.product(plan.rows, (panel, k, block), c.Address(products, k * step))
        outputs = self._outputs(t0 + (first + slot), panel, c.Address(products, slot * plan.width), step)
        pair = (
            c.LocalArray(products, alignment=plan.unit.nbytes),
            c.For(k, _FIRST, c.Size(plan.num_points), (multiplied,)),
            c.For(slot, _FIRST, c.index_min(c.Size(plan.rows), t_count - first), outputs),
        )
        body = (
            c.Let(panel, item // plan.blocks),
            c.Let(block, item % plan.blocks),
            c.If(first.compare("<", t_count), pair),
        )
        count, transforms = plan.num_panels * plan.blocks, self._transforms(t0, first_item, c.index_min(end, t_count))
        one_round = (
            c.Let(t_count, c.index_min(c.Size(size), c.Size(plan.num_tiles) - t0)),
            c.Dispatch(first_item, end, (transforms,), size),
            c.For(item, _FIRST, c.Size(count), body, kind=c.LoopKind.PARALLEL),
        )
        return c.For(t0, _FIRST, c.Size(plan.num_tiles), one_round, step=size)

    def product(self, rows: int, indices: tuple[c.Variable, c.Variable, c.Expression], sums: c.Address) -> c.Evaluate:
        """Return the product of a block's tiles, at a panel and a point; a part of the next point is prefetched."""
        plan, (panel, k, block), channels = self.plan, indices, self.geometry.channels
        point, size = panel * plan.num_points + k, channels * plan.width
        following = c.index_min(point + 1, plan.num_points * plan.num_panels - 1) * size
        tile = c.Address(self.tiles, block * plan.block_step + k * (plan.rows * plan.row_step))
        fetched, share = following + block * (size // plan.blocks), c.Size(-(-plan.width // plan.blocks))
        return multiply(
            *(self.kernel, (rows, plan.vectors), (tile, c.Size(plan.row_step))),
            *(c.Address(self.weights, point * size), c.Size(channels), sums),
            ahead=(c.Address(self.weights, _FIRST), fetched, share),
        )

    def _outputs(self, tile: c.Expression, panel: c.Variable, products: c.Address, point_step: int) -> c.Block:
        """Return the statements transforming the products of a tile back, with the epilogue."""
        plan, geometry = self.plan, self.geometry
        size, width, first = plan.algorithm.num_outputs, plan.width, panel * plan.width
        y, count, x_count = c.variables("y o_count x_count")
        pixels = c.Buffer("pixels", self.sums_dtype, c.MemoryAccess.WRITE, size**2 * width)
        n, y0, x0, origin = self._tile_origin(tile)
        offset = (y - y0) * (size * width)
        region = (x0, x_count, first, count, width, geometry.out_channels % width)
        sums = SumsTile(pixels, width, *region, leading=(n, y), offset=offset)
        full_width, left = c.Size(width), geometry.out_channels - first
        return (
            *origin,
            c.Let(count, c.index_min(full_width, left) if geometry.out_channels % width else full_width),
            c.Let(x_count, c.index_min(c.Size(size), c.Size(geometry.out_width) - x0)),
            c.LocalArray(pixels, alignment=plan.unit.nbytes),
            self.output_call(products, c.Address(pixels, _FIRST), point_step, first),
            c.For(y, y0, c.index_min(y0 + size, geometry.out_height), epilogue(self.kernel, sums)),
        )


def input_function(plan: WinogradPlan) -> c.Function:
    """Return a function transforming a tile: ``(at, to)``, addresses of the pixels and of the first point."""
    dtype, channels, num = plan.geometry.dtype, plan.geometry.channels, plan.algorithm.num_inputs
    at, to = c.PointerArray("at", dtype), c.Buffer("to", dtype, c.MemoryAccess.WRITE)
    c0, channel, j = c.variables("c0 c j")
    pixels = [c.Buffer("pixel", dtype) for _ in range(num)]
    pointed = tuple(c.Alias(pixel, at, j + i * num) for i, pixel in enumerate(pixels))
    loads = [c.Load(pixel, channel, plan.lanes) for pixel in pixels]
    points = mapped(plan.algorithm.inputs, j, loads, _stores(to[channel], plan.rows * plan.row_step), pointed)
    # The last vector of channels may begin inside the one before.
    body = (c.Let(channel, c.index_min(c0, channels - plan.lanes)), *points)
    loop = c.For(c0, _FIRST, c.Size(channels), body, step=plan.lanes)
    name, comment = f"winograd_input_{plan.algorithm.num_outputs}", "// Transform the pixels of a tile."
    return c.Function(name, (at, to), (loop,), None, (comment,), is_contracted=True)


def output_function(plan: WinogradPlan, point_step: int) -> c.Function:
    """Return a function transforming a tile back: ``(products, pixels)``; points lie ``point_step`` apart."""
    dtype, num, v, j = plan.geometry.dtype, plan.algorithm.num_inputs, c.Variable("v"), c.Variable("j")
    products, pixels = c.Buffer("products", dtype), c.Buffer("pixels", dtype, c.MemoryAccess.WRITE)
    loads = [c.Load(products, (j + i * num) * point_step + v, plan.lanes) for i in range(num)]
    body = mapped(plan.algorithm.outputs, j, loads, _stores(pixels[v], plan.width))
    loop = c.For(v, _FIRST, c.Size(plan.width), body, step=plan.lanes)
    name, comment = f"winograd_output_{plan.algorithm.num_outputs}", "// Transform the products of a tile back."
    return c.Function(name, (products, pixels), (loop,), None, (comment,), is_contracted=True)


def _stores(to: c.Load, step: int) -> Callable[[c.Expression, c.Expression], c.Store]:
    """Return the function storing a vector by its number, ``step`` elements apart."""
    return lambda number, value: c.Store(to.buffer, number * step + to.index, value)


def mapped(
    matrix: Matrix,
    j: c.Variable,
    loads: Sequence[c.Expression],
    store: Callable[[c.Expression, c.Expression], c.Statement],
    before: c.Block = (),
) -> c.Block:
    """Return statements applying a map along both axes of a square of vectors; ``loads`` are those of column ``j``.

    ``store`` returns the statement storing a result, by its number, row by row.
    """
    (num_results, num), type_, i = matrix.shape, loads[0].type, c.Variable("i")
    lanes = type_.lanes
    part = c.Buffer("part", type_.dtype, c.MemoryAccess.WRITE, num_results * num * lanes)
    values = [c.Variable("d", load.type) for load in loads]
    down = c.linear_map(matrix.tolist(), values, lambda row, value: c.Store(part, (j + row * num) * lanes, value))
    parts = [c.Load(part, (i * num + column) * lanes, lanes) for column in range(num)]

    def stored(column: int, value: c.Expression) -> c.Statement:
        return store(i * num_results + column, value)

    columns = (*before, *map(c.Let, values, loads), *down)
    return (
        c.LocalArray(part, lanes=lanes),
        c.For(j, _FIRST, c.Size(num), columns, kind=c.LoopKind.UNROLLED),
        c.For(i, _FIRST, c.Size(num_results), c.linear_map(matrix.tolist(), parts, stored), kind=c.LoopKind.UNROLLED),
    )
