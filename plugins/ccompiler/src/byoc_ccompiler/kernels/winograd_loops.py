"""The loops of a convolution by Winograd's minimal filtering, in one of three forms.

- Many blocks: threads part the blocks; whoever gets some transforms their tiles and multiplies them, round by round.
- One round of few blocks, several panels: all tiles are transformed; then threads part the panels.
- Else: round by round, all tiles are transformed; then threads part the pairs of panels and blocks.

In the first two, one point of a panel after another is multiplied by all tiles of a round: factors pass once from
memory to the first-level cache.
"""

from __future__ import annotations

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim, c_type

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines
from byoc_ccompiler.kernels.tiles import panel_function
from byoc_ccompiler.kernels.window_rows import zeros
from byoc_ccompiler.kernels.winograd_functions import input_function, output_function
from byoc_ccompiler.kernels.winograd_plan import Parts, WinogradPlan
from byoc_ccompiler.vector_unit import multiply_add_ps

__all__ = ["LOCALS", "WinogradLoops"]

_TRANSFORM_PS = 1500
"""Estimated picoseconds to transform one vector at one point."""

LOCALS = (
    *("t", "t0", "t_count", "n", "y", "y0", "col", "x0", "x_count", "k", "at", "item", "panel", "block"),
    *("slot", "products", "pixels", "o0", "o_count", "from", "factors", "ahead", "tiles", "b0", "round", "rounds"),
    *("blocks", "point", "next"),
)
"""Names that the loops declare."""


class WinogradLoops:
    """Writes the loops of one kernel.

    Args:
        kernel: the kernel.
        plan: its plan.
        image: C pointer to the image.
        weights: C pointer to the panels of the filter.
    """

    def __init__(self, kernel: Kernel, plan: WinogradPlan, image: str, weights: str) -> None:
        self.kernel = kernel
        self.plan = plan
        self.geometry: ConvolutionGeometry = plan.geometry
        self.ctype = c_type(plan.geometry.dtype)
        self.image = image
        self.weights = weights

    def finish(self) -> None:
        """Finishes the kernel."""
        self.kernel.scratch = self.plan.scratch_size
        if self.plan.parts is Parts.BLOCKS:
            self.kernel.finish(self._blocks())
            return
        body = self._panels() if self.plan.parts is Parts.PANELS else self._pairs()
        self.kernel.finish(body, variables=[f"{self.ctype} *tiles", "int64_t t0", "int64_t t_count"])

    def _blocks(self) -> list[str | ParallelLoop]:
        plan, num_tiles = self.plan, c_dim(self.plan.num_tiles)
        part = f"{FIRST_ITEM} / {c_dim(plan.part_blocks)}"
        lines = (
            f"  {self.ctype} *const tiles = scratch + {part} * {plan.part_places * plan.block_step};",
            f"  {self.ctype} *const products = scratch + {plan.tiles_size} + {part} * {plan.panel_products};",
            f"  const int64_t rounds = ({END_ITEM} - {FIRST_ITEM} + {plan.blocks - 1}) / {plan.blocks};",
            f"  const int64_t round = ({END_ITEM} - {FIRST_ITEM} + rounds - 1) / byoc_max(rounds, 1);",
            f"  for (int64_t b0 = {FIRST_ITEM}; b0 < {END_ITEM}; b0 += round) {{",
            f"    const int64_t t0 = b0 * {plan.rows}, blocks = byoc_min(round, {END_ITEM} - b0);",
            f"    const int64_t t_count = byoc_min(blocks * {plan.rows}, {num_tiles} - t0);",
            *self._transform_lines("0", "t_count"),
            *self._panel_lines("0", str(plan.num_panels), "t_count", "blocks"),
            "  }",
        )
        item_ps = plan.rows * self._transform_ps + plan.num_panels * self._product_ps
        return [ParallelLoop(lines, plan.total_blocks, item_ps, plan.part_blocks)]

    def _pairs(self) -> list[str | ParallelLoop]:
        plan, num_tiles = self.plan, c_dim(self.plan.num_tiles)
        return [
            f"  {self.ctype} *const tiles = scratch;",
            f"  for (int64_t t0 = 0; t0 < {num_tiles}; t0 += {plan.round_tiles}) {{",
            f"    const int64_t t_count = byoc_min({plan.round_tiles}, {num_tiles} - t0);",
            self._transform_loop(),
            ParallelLoop(
                tuple(self._pair_lines(FIRST_ITEM, END_ITEM, str(plan.blocks))),
                plan.num_panels * plan.blocks,
                self._product_ps,
            ),
            "  }",
        ]

    def _panels(self) -> list[str | ParallelLoop]:
        plan, num_tiles = self.plan, self.plan.num_tiles
        assert isinstance(num_tiles, int)
        place = f"{plan.tiles_size} + {FIRST_ITEM} / {plan.part_panels} * {plan.panel_products}"
        whole, tail = divmod(num_tiles, plan.rows)
        lines = (
            f"  {self.ctype} *const products = scratch + {place};",
            *self._panel_lines(FIRST_ITEM, END_ITEM, str(num_tiles), str(whole), tail),
        )
        return [
            f"  {self.ctype} *const tiles = scratch;",
            f"  const int64_t t0 = 0, t_count = {num_tiles};",
            self._transform_loop(),
            ParallelLoop(lines, plan.num_panels, plan.blocks * self._product_ps, plan.part_panels),
        ]

    @property
    def _transform_ps(self) -> int:
        """Estimated picoseconds to transform one tile."""
        return -(-self.geometry.channels // self.plan.lanes) * self.plan.num_points * _TRANSFORM_PS

    @property
    def _product_ps(self) -> int:
        """Estimated picoseconds of the products of one block and one panel."""
        products = self.plan.rows * self.plan.width * self.geometry.channels * self.plan.num_points
        return products * multiply_add_ps(self.plan.unit, self.geometry.dtype)

    def _panel_sizes(self) -> list[str]:
        """Gives the declarations of a panel's first channel and of how many it has."""
        width, channels = self.plan.width, self.geometry.out_channels
        return [f"    const int64_t o0 = panel * {width}, o_count = byoc_min({width}, {channels} - o0);"]

    def _place_lines(self, tile: str) -> list[str]:
        """Gives the declarations of a tile's first row and column, and of its image where it is not the only one."""
        plan = self.plan
        size, down, right = plan.algorithm.num_outputs, plan.tiles_down, plan.tiles_right
        image = [f"const int64_t n = t / {c_dim(down * right)};"] if self.geometry.batch != 1 else []
        return [
            f"const int64_t t = t0 + {tile}, y0 = t / {c_dim(right)} % {c_dim(down)} * {size};",
            f"const int64_t x0 = t % {c_dim(right)} * {size};",
            *image,
        ]

    def _transform_loop(self) -> ParallelLoop:
        lines = self._transform_lines(FIRST_ITEM, f"byoc_min({END_ITEM}, t_count)")
        return ParallelLoop(tuple(lines), self.plan.round_tiles, self._transform_ps)

    def _transform_lines(self, begin: str, end: str) -> list[str]:
        """Gives the loop that transforms tiles of a round."""
        kernel, plan, geometry, num = self.kernel, self.plan, self.geometry, self.plan.algorithm.num_inputs
        top, left = geometry.padding[:2]
        strides = kernel.strides(kernel.group.steps[0].operands[0])
        image_step, _, row_step, pixel_step = geometry.image_steps(strides)
        batch = f"n * {c_dim(image_step)} + " if geometry.batch != 1 else ""
        transform = kernel.helper(f"winograd_input_{plan.algorithm.num_outputs}", input_function(plan))
        place = f"item / {plan.rows} * {plan.block_step} + item % {plan.rows} * {plan.row_step}"
        return [
            f"    for (int64_t item = {begin}; item < {end}; ++item) {{",
            *(f"      {line}" for line in self._place_lines("item")),
            f"      const {self.ctype} *at[{plan.num_points}];",
            f"      for (int64_t k = 0; k < {plan.num_points}; ++k) {{",
            f"        const int64_t y = y0 + k / {num} - {top}, col = x0 + k % {num} - {left};",
            f"        at[k] = y >= 0 && y < {c_dim(geometry.height)} && col >= 0 && col < {c_dim(geometry.width)}",
            f"                    ? {self.image} + {batch}y * {c_dim(row_step)} + col * {c_dim(pixel_step)}",
            f"                    : {zeros(kernel, geometry.dtype, geometry.channels)};",
            "      }",
            f"      {transform}(at, tiles + {place});",
            "    }",
        ]

    def _pair_lines(self, begin: str, end: str, blocks: str) -> list[str]:
        """Gives the loop over pairs, panel by panel, block by block: multiplies, transforms back, does what follows."""
        plan, geometry = self.plan, self.geometry
        width, points = plan.width, plan.num_points
        multiply = panel_function(self.kernel, geometry.dtype, plan.rows, plan.vectors, fetches=plan.fetches)
        ahead, ahead_lines = self._ahead(blocks)
        return [
            f"    for (int64_t item = {begin}; item < {end}; ++item) {{",
            f"      const int64_t panel = item / {blocks}, block = item % {blocks} * {plan.rows};",
            "      if (block >= t_count) continue;",
            *(f"  {line}" for line in self._panel_sizes()),
            f"      const {self.ctype} *from = tiles + block * {points * plan.row_step};",
            f"      const {self.ctype} *factors = {self.weights} + panel * {plan.panel_size};",
            *(f"      {line}" for line in ahead_lines),
            f"      {self.ctype} products[{points * plan.rows * width}]",
            f"          __attribute__((aligned({plan.unit.nbytes})));",
            f"      for (int64_t k = 0; k < {points}; ++k) {{",
            f"        {multiply}(from + k * {plan.point_step}, {plan.row_step}, factors + k * {plan.point_size},",
            f"            {geometry.channels}, {ahead}products + k * {plan.rows * width});",
            "      }",
            f"      for (int64_t slot = 0; slot < byoc_min({plan.rows}, t_count - block); ++slot) {{",
            *self._output_lines("block + slot", plan.rows * width, "        "),
            "      }",
            "    }",
        ]

    def _ahead(self, blocks: str) -> tuple[str, list[str]]:
        """Gives the arguments that say what to fetch, an item's share of the next panel, and the lines before."""
        plan = self.plan
        if not plan.fetches:
            return "", []
        size, share = plan.panel_size, -(-plan.width // plan.blocks)
        lines = [
            f"const {self.ctype} *ahead = {self.weights} + byoc_min(panel + 1, {plan.num_panels - 1}) * {size};",
            f"ahead += item % {blocks} * {size // plan.blocks};",
        ]
        return f"ahead + k * {self.geometry.channels * share}, {share}, ", lines

    def _panel_lines(self, begin: str, end: str, num_tiles: str, blocks: str, tail: int = 0) -> list[str]:
        """Gives the loop over panels: multiplies point by point, transforms back, does what follows.

        The factors of the next point, or of the next panel's first, are fetched meanwhile.

        Args:
            begin: C expression of the first panel.
            end: C expression of the end of the panels.
            num_tiles: C expression of the tiles that are multiplied.
            blocks: C expression of the whole blocks that they are in.
            tail: tiles of one more block, which has fewer.
        """
        plan, channels = self.plan, self.geometry.channels
        share, points = -(-plan.width // plan.blocks), plan.num_points

        def call(rows: int, block: str) -> list[str]:
            multiply = panel_function(self.kernel, self.geometry.dtype, rows, plan.vectors, fetches=True)
            return [
                f"{multiply}(tiles + {block} * {plan.block_step} + k * {plan.point_step}, {plan.row_step},",
                f"    factors, {channels}, ahead + {block} * {plan.point_size // plan.blocks}, {share},",
                f"    products + (k * {plan.round_tiles} + {block} * {plan.rows}) * {plan.width});",
            ]

        return [
            f"    for (int64_t panel = {begin}; panel < {end}; ++panel) {{",
            f"      for (int64_t k = 0; k < {points}; ++k) {{",
            f"        const int64_t point = panel * {points} + k;",
            f"        const int64_t next = byoc_min(point + 1, {points * plan.num_panels - 1});",
            f"        const {self.ctype} *factors = {self.weights} + point * {plan.point_size};",
            f"        const {self.ctype} *ahead = {self.weights} + next * {plan.point_size};",
            f"        for (int64_t block = 0; block < {blocks}; ++block) {{",
            *(f"          {line}" for line in call(plan.rows, "block")),
            "        }",
            *(f"        {line}" for line in (call(tail, blocks) if tail else [])),
            "      }",
            *(f"  {line}" for line in self._panel_sizes()),
            f"      for (int64_t slot = 0; slot < {num_tiles}; ++slot) {{",
            *self._output_lines("slot", plan.round_tiles * plan.width, "        "),
            "      }",
            "    }",
        ]

    def _output_lines(self, tile: str, point_step: int, indent: str) -> list[str]:
        """Gives the lines that transform the products of a tile back, and do what follows."""
        plan, geometry = self.plan, self.geometry
        size, width = plan.algorithm.num_outputs, plan.width
        transform = self.kernel.helper(f"winograd_output_{size}", output_function(plan, point_step))
        sums = TextTile(
            f"(pixels + (y - y0) * {size * width})",
            str(width),
            "x0",
            "x_count",
            "o0",
            "o_count",
            width,
            ("0" if geometry.batch == 1 else "n", "y"),
        )
        lines = [
            *self._place_lines(tile),
            f"const int64_t x_count = byoc_min({size}, {c_dim(geometry.out_width)} - x0);",
            f"{self.ctype} pixels[{size**2 * width}] __attribute__((aligned({plan.unit.nbytes})));",
            f"{transform}(products + slot * {width}, pixels);",
            f"for (int64_t y = y0; y < byoc_min({c_dim(geometry.out_height)}, y0 + {size}); ++y) {{",
            *epilogue_lines(self.kernel, sums, "  "),
            "}",
        ]
        return [indent + line for line in lines]
