"""The loops of a convolution by Winograd's minimal filtering, in one of three forms.

- Many blocks: threads part the blocks; whoever gets some transforms their tiles and multiplies them, round by round.
- One round of few blocks, several panels: all tiles are transformed; then threads part the panels.
- Else: round by round, all tiles are transformed; then threads part the pairs of panels and blocks.

In the first two, one point of a panel after another is multiplied by all tiles of a round: factors pass once from
memory to the first-level cache.
"""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.image_pixels import ImagePixels
from byoc_ccompiler.kernels.tiles import tile_function
from byoc_ccompiler.kernels.winograd_functions import input_function, output_function
from byoc_ccompiler.kernels.winograd_plan import Parts, WinogradPlan
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["WinogradLoops"]

_TRANSFORM_PS = 1500
"""Estimated picoseconds to transform one vector at one point."""

_FIRST = c.Size(0)


class WinogradLoops:
    """The loops of one kernel.

    Args:
        kernel: the kernel.
        plan: its plan.
        weights: the panels of the filter.
    """

    def __init__(self, kernel: Kernel, plan: WinogradPlan, image: ImagePixels, weights: c.Buffer) -> None:
        self.kernel, self.plan, self.geometry = kernel, plan, plan.geometry
        self.image, self.weights = image, weights
        self.scratch = kernel.scratch_memory(plan.scratch_size, plan.geometry.dtype)
        self.tiles, self.products = self._array("tiles"), self._array("products")
        self.t0, self.t_count = c.Variable("t0"), c.Variable("t_count")

    def _array(self, name: str, size: int | None = None) -> c.Buffer:
        return c.Buffer(name, self.geometry.dtype, c.MemoryAccess.WRITE, size)

    def block(self) -> c.Block:
        """Return the loops."""
        match self.plan.parts:
            case Parts.BLOCKS:
                return (self._blocks(),)
            case Parts.PANELS:
                return self._panels()
        return self._pairs()

    def _blocks(self) -> c.Dispatch:
        plan, first, end = self.plan, c.Variable(FIRST_ITEM), c.Variable(END_ITEM)
        part, rounds, number, size, b0, blocks = (
            c.Variable(name) for name in ("part", "rounds", "number", "round", "b0", "blocks")
        )
        one_round = (
            c.Let(size, (end - first + rounds - 1) // rounds),
            c.Let(b0, first + number * size),
            c.Let(blocks, c.index_min(size, end - b0)),
            c.Let(self.t0, b0 * plan.rows),
            c.Let(self.t_count, c.index_min(blocks * plan.rows, c.Size(plan.num_tiles) - self.t0)),
            self._transforms(_FIRST, self.t_count),
            self._panel_loop(_FIRST, c.Size(plan.num_panels), self.t_count, blocks),
        )
        body = (
            c.Let(part, first // plan.part_blocks),
            c.Alias(self.tiles, self.scratch, part * (plan.part_places * plan.block_step)),
            c.Alias(self.products, self.scratch, part * plan.panel_products + plan.tiles_size),
            c.Let(rounds, (end - first + (plan.blocks - 1)) // plan.blocks),
            c.For(number, _FIRST, rounds, one_round),
        )
        block_ps = plan.rows * self._transform_ps + plan.num_panels * self._product_ps
        return c.Dispatch(first, end, body, plan.total_blocks, plan.part_blocks, plan.total_blocks * block_ps)

    def _pairs(self) -> c.Block:
        plan, item = self.plan, c.Variable("item")
        count = c.Size(plan.num_panels * plan.blocks)
        one_round = (
            c.Let(self.t_count, c.index_min(c.Size(plan.round_tiles), c.Size(plan.num_tiles) - self.t0)),
            self._transform_loop(),
            c.For(item, _FIRST, count, self._pair(item), kind=c.LoopKind.PARALLEL, round_ps=self._product_ps),
        )
        rounds = c.For(self.t0, _FIRST, c.Size(plan.num_tiles), one_round, step=plan.round_tiles)
        return (c.Alias(self.tiles, self.scratch, _FIRST), rounds)

    def _panels(self) -> c.Block:
        plan, num_tiles, first, end = self.plan, self.plan.num_tiles, c.Variable(FIRST_ITEM), c.Variable(END_ITEM)
        assert isinstance(num_tiles, int)
        whole, tail = divmod(num_tiles, plan.rows)
        place = first // plan.part_panels * plan.panel_products + plan.tiles_size
        loop = self._panel_loop(first, end, c.Size(num_tiles), c.Size(whole), tail)
        body = (c.Alias(self.products, self.scratch, place), loop)
        work_ps = plan.num_panels * plan.blocks * self._product_ps
        return (
            c.Alias(self.tiles, self.scratch, _FIRST),
            c.Let(self.t0, _FIRST),
            c.Let(self.t_count, c.Size(num_tiles)),
            self._transform_loop(),
            c.Dispatch(first, end, body, plan.num_panels, plan.part_panels, work_ps),
        )

    @property
    def _transform_ps(self) -> int:
        """Estimated picoseconds to transform one tile."""
        return -(-self.geometry.channels // self.plan.lanes) * self.plan.num_points * _TRANSFORM_PS

    @property
    def _product_ps(self) -> int:
        """Estimated picoseconds of the products of one block and one panel."""
        products = self.plan.rows * self.plan.width * self.geometry.channels * self.plan.num_points
        return products * multiply_add_ps(self.plan.unit, self.geometry.dtype)

    def _place(self, tile: c.Expression) -> tuple[c.Expression, c.Variable, c.Variable, c.Block]:
        """Return the image, the first row and the first column of a tile of a round, and their declarations."""
        plan, t, n, y0, x0 = self.plan, *(c.Variable(name) for name in ("t", "n", "y0", "x0"))
        image, down, right = c.unravelled(t, (self.geometry.batch, plan.tiles_down, plan.tiles_right))
        size = plan.algorithm.num_outputs
        lets = (c.Let(t, self.t0 + tile), c.Let(n, image), c.Let(y0, down * size), c.Let(x0, right * size))
        return n, y0, x0, lets

    def _transform_loop(self) -> c.Dispatch:
        """Return the loop that transforms the tiles of a round, which threads share."""
        first, end, count = c.Variable(FIRST_ITEM), c.Variable(END_ITEM), self.plan.round_tiles
        loop = self._transforms(first, c.index_min(end, self.t_count))
        return c.Dispatch(first, end, (loop,), count, 1, count * self._transform_ps)

    def _transforms(self, begin: c.Expression, end: c.Expression) -> c.For:
        """Return the loop that transforms some tiles of a round."""
        plan, item, (top, left, _, _) = self.plan, c.Variable("item"), self.geometry.padding
        at = c.PointerArray("at", self.geometry.dtype, c.MemoryAccess.WRITE, plan.num_points)
        n, y0, x0, place = self._place(item)
        to = item // plan.rows * plan.block_step + item % plan.rows * plan.row_step
        callee = self.kernel.shared_function(input_function(plan))
        transform = c.Evaluate(c.Call(callee, (c.Address(at, _FIRST), c.Address(self.tiles, to))))
        pointers = self.image.pointers(at, n, y0 - top, x0 - left, plan.algorithm.num_inputs)
        return c.For(item, begin, end, (*place, c.LocalArray(at), *pointers, transform))

    def _multiply(
        self, rows: int, tile: c.Expression, factors: c.Expression, ahead: c.Expression | None, place: c.Address
    ) -> c.Evaluate:
        """Return the product of some rows and a point of a panel.

        Args:
            rows: how many tiles.
            tile: the offset of the first one.
            factors: the offset of the factors.
            ahead: the offset of the factors to fetch meanwhile; ``None`` for none.
            place: where the products go.
        """
        plan, channels = self.plan, self.geometry.channels
        fetched = () if ahead is None else (c.Address(self.weights, ahead), c.Size(self._share))
        function = tile_function(plan.unit, self.geometry.dtype, rows, plan.vectors, fetches=ahead is not None)
        callee = self.kernel.shared_function(function)
        operands = (c.Address(self.tiles, tile), c.Size(plan.row_step), c.Address(self.weights, factors))
        return c.Evaluate(c.Call(callee, (*operands, c.Size(channels), *fetched, place)))

    @property
    def _share(self) -> int:
        """Elements of a step of the next factors that are fetched with one block."""
        return -(-self.plan.width // self.plan.blocks)

    def _pair(self, item: c.Variable) -> c.Block:
        """Return the statements of a pair of a panel and a block: multiply, transform back, do what follows."""
        plan, points, k = self.plan, self.plan.num_points, c.Variable("k")
        panel, block, slot = (c.Variable(name) for name in ("panel", "block", "slot"))
        size = plan.rows * plan.width
        products = self._array("products", points * size)
        ahead = None
        if plan.fetches:
            # A share of the next panel.
            beyond = c.index_min(panel + 1, plan.num_panels - 1) * plan.panel_size
            ahead = beyond + item % plan.blocks * (plan.panel_size // plan.blocks)
            ahead = ahead + k * (self.geometry.channels * self._share)
        tile = block * (points * plan.row_step) + k * plan.point_step
        factors = panel * plan.panel_size + k * plan.point_size
        multiply = self._multiply(plan.rows, tile, factors, ahead, c.Address(products, k * size))
        outputs = self._outputs(block + slot, panel, c.Address(products, slot * plan.width), size)
        body = (
            c.LocalArray(products, alignment=plan.unit.nbytes),
            c.For(k, _FIRST, c.Size(points), (multiply,)),
            c.For(slot, _FIRST, c.index_min(c.Size(plan.rows), self.t_count - block), outputs),
        )
        return (
            c.Let(panel, item // plan.blocks),
            c.Let(block, item % plan.blocks * plan.rows),
            c.If(block.compare("<", self.t_count), body),
        )

    def _panel_loop(
        self, begin: c.Expression, end: c.Expression, num_tiles: c.Expression, blocks: c.Expression, tail: int = 0
    ) -> c.For:
        """Return the loop over panels: multiply point by point, transform back, do what follows.

        The factors of the next point, or of the next panel's first, are fetched meanwhile.

        Args:
            begin: the first panel.
            end: the end of the panels.
            num_tiles: the tiles that are multiplied.
            blocks: the whole blocks that they are in.
            tail: tiles of one more block, which has fewer.
        """
        plan, points = self.plan, self.plan.num_points
        panel, k, block, slot, point, ahead = (
            c.Variable(name) for name in ("panel", "k", "block", "slot", "point", "ahead")
        )

        def multiply(rows: int, block: c.Expression) -> c.Evaluate:
            tile = block * plan.block_step + k * plan.point_step
            fetched = ahead * plan.point_size + block * (plan.point_size // plan.blocks)
            place = c.Address(self.products, (k * plan.round_tiles + block * plan.rows) * plan.width)
            return self._multiply(rows, tile, point * plan.point_size, fetched, place)

        products = (
            c.Let(point, panel * points + k),
            c.Let(ahead, c.index_min(point + 1, points * plan.num_panels - 1)),
            c.For(block, _FIRST, blocks, (multiply(plan.rows, block),)),
            *((multiply(tail, blocks),) if tail else ()),
        )
        place = c.Address(self.products, slot * plan.width)
        outputs = self._outputs(slot, panel, place, plan.round_tiles * plan.width)
        body = (c.For(k, _FIRST, c.Size(points), products), c.For(slot, _FIRST, num_tiles, outputs))
        return c.For(panel, begin, end, body)

    def _outputs(self, tile: c.Expression, panel: c.Variable, products: c.Address, point_step: int) -> c.Block:
        """Return the statements that transform the products of a tile back, and do what follows."""
        plan, geometry = self.plan, self.geometry
        size, width = plan.algorithm.num_outputs, plan.width
        y, count, x_count = (c.Variable(name) for name in ("y", "o_count", "x_count"))
        pixels, first = self._array("pixels", size**2 * width), panel * width
        is_whole = geometry.out_channels % width == 0
        n, y0, x0, place = self._place(tile)
        transform = c.Call(
            self.kernel.shared_function(output_function(plan, point_step)), (products, c.Address(pixels, _FIRST))
        )
        offset = (y - y0) * (size * width)
        sums = SumsTile(pixels, width, x0, x_count, first, count, width, leading=(n, y), offset=offset)
        return (
            *place,
            c.Let(count, c.Size(width) if is_whole else c.index_min(c.Size(width), geometry.out_channels - first)),
            c.Let(x_count, c.index_min(c.Size(size), c.Size(geometry.out_width) - x0)),
            c.LocalArray(pixels, alignment=plan.unit.nbytes),
            c.Evaluate(transform),
            c.For(y, y0, c.index_min(y0 + size, geometry.out_height), epilogue(self.kernel, sums)),
        )
