"""Loops over blocks of rows and panels of columns, whose products are made of operands rounded to bfloat16.

Where all panels stay in the second-level cache, each block of rows is rounded on the stack and meets them all. Else
more rows are rounded at a time, as many as that cache holds beside a panel, and the panels pass, one after another,
before the next rows come: so each panel comes from memory once for many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, ParallelLoop, c_dim
from byoc_core.dims import Dim, dim_min

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.bfloat16_blocks import DEPTH, LINE, ROWS, STEP_PS, Blocks
from byoc_ccompiler.kernels.declarations import declared
from byoc_ccompiler.kernels.epilogue_text import TextTile, epilogue_lines, text_result_place

__all__ = ["LOCALS", "VARIABLES", "BlockedRows", "count_steps", "panel_columns"]

VARIABLES = ("const uint16_t *panels", "uint16_t *rounded", "int tiles", "int64_t m_begin")
"""C variables around the loops over blocks: panels and rounded rows, whether tiles may be used, the pass."""

LOCALS = (
    "panels",
    "rounded",
    "tiles",
    "m_begin",
    "m0",
    "m_count",
    "n0",
    "n_count",
    "item",
    "block",
    "panel",
    "near_rows",
    "to",
)
"""Names of the loops' variables."""

_ROWS_NBYTES = 1 << 19
"""What the rounded rows of one pass may take."""

_NEAR_NBYTES = 1 << 19
"""Panels that take no more than this together stay in the second-level cache."""

_STACK_NBYTES = 5 << 14
"""What a rounded block may take on the stack, where its sums and the pointers to its pixels' taps lie as well."""

_PASS_ROWS = 128
"""Rows of one pass where the length of the sums is not known."""

_ROUND_PS = 150
"""Estimated picoseconds to round one number."""


def count_steps(depth: Dim) -> Dim:
    """Gives the steps that so many neighbouring factors take."""
    return (depth + (DEPTH - 1)) // DEPTH


def panel_columns(columns: Dim) -> int:
    """Gives the columns of a panel of a matrix of so many."""
    return 16 if isinstance(columns, int) and columns <= 16 else 32


@dataclass(frozen=True, slots=True)
class BlockedRows:
    """Rows of factors and panels of columns, as loops in C.

    Attributes:
        kernel: where they go.
        num_rows: how many rows there are.
        num_columns: how many columns.
        num_steps: steps of the sums.
        width: columns of a panel.
    """

    kernel: Kernel
    num_rows: Dim
    num_columns: Dim
    num_steps: Dim
    width: int

    @property
    def blocks(self) -> Blocks:
        """The functions that are called."""
        return Blocks(self.kernel, self.width)

    @property
    def panels(self) -> Dim:
        """Panels of the columns."""
        return (self.num_columns + (self.width - 1)) // self.width

    @property
    def is_near(self) -> bool:
        """Whether all panels are known to stay in the cache, and a block of rows to be small enough for the stack."""
        panels, rows = self.panels * self.panel_size * 2, self.num_steps * (DEPTH * ROWS * 2)
        return isinstance(panels, int) and isinstance(rows, int) and panels <= _NEAR_NBYTES and rows <= _STACK_NBYTES

    @property
    def pass_rows(self) -> int:
        """Rows that are rounded at a time, whole blocks."""
        most = _PASS_ROWS
        if isinstance(self.num_steps, int):
            most = max(1, _ROWS_NBYTES // (max(1, self.num_steps) * DEPTH * 2 * ROWS)) * ROWS
        if not isinstance(self.num_rows, int):
            return most
        passes = max(1, -(-self.num_rows // most))
        return max(1, -(-self.num_rows // (passes * ROWS))) * ROWS

    @property
    def pass_blocks(self) -> Dim:
        """Blocks of one pass; the last may have fewer rows, or none."""
        return (dim_min(self.pass_rows, self.num_rows) + (ROWS - 1)) // ROWS

    @property
    def scratch(self) -> Dim:
        """Elements of scratch memory for the rounded rows, where they do not lie on the stack."""
        return 0 if self.is_near else self.pass_rows * self.num_steps * DEPTH

    @property
    def panel_size(self) -> Dim:
        """Elements of one panel."""
        return self.num_steps * DEPTH * self.width

    def _product_lines(self, source: str, tile: TextTile) -> list[str]:
        """Gives the lines that sum up a block by a panel, and what follows; whole blocks go where they belong."""
        buffered = [
            f"    float sums[{ROWS * self.width}];",
            f"    {self.blocks.multiply}({source}, sums, {self.width}, tiles);",
            *epilogue_lines(self.kernel, tile, "    "),
        ]
        place = text_result_place(self.kernel, tile)
        if place is None:
            return buffered
        pointer, pitch = place
        return [
            f"    if (m_count == {ROWS} && n_count == {self.width}) {{",
            f"      {self.blocks.multiply}({source}, {pointer}, {pitch}, tiles);",
            "    } else {",
            *(f"  {line}" for line in buffered),
            "    }",
        ]

    def _ahead(self) -> str:
        """Gives the C of what a block fetches: its share of the next panel, where not all panels stay in the cache."""
        size, blocks, panels = self.panel_size, self.pass_blocks, self.panels
        if not (isinstance(size, int) and isinstance(blocks, int) and isinstance(panels, int)) or blocks == 0:
            return "panels, 0"
        if size * panels * 2 <= _NEAR_NBYTES:
            return "panels, 0"
        num_lines = -(-DEPTH * self.width // LINE // blocks)
        fetched = size // (DEPTH * self.width) * num_lines * LINE
        share = max(0, size - fetched) // max(1, blocks - 1)
        panel = f"byoc_min(item / {blocks} + 1, {panels - 1})"
        return f"panels + {panel} * {size} + block * {share}, {num_lines}"

    def lines(self, setup: Sequence[str], round_lines: Sequence[str], tile: TextTile) -> list[str | ParallelLoop]:
        """Gives the loops: rows are rounded, and multiplied by all panels.

        They read the C variables :data:`VARIABLES`, of which ``rounded`` points to the scratch memory, if any.

        Args:
            setup: lines before the loop over the blocks that are rounded.
            round_lines: they round a block, ``m_count`` rows from ``m0`` on, to ``to``.
            tile: the sums of a block and a panel, whose first row is ``m0`` and whose first column ``n0``.
        """
        return [self._near_loop(setup, round_lines, tile)] if self.is_near else self._passes(setup, round_lines, tile)

    def _near_loop(self, setup: Sequence[str], round_lines: Sequence[str], tile: TextTile) -> ParallelLoop:
        """Gives the loop over blocks that meet all panels."""
        panel = f"panels + panel * {c_dim(self.panel_size)}"
        steps = c_dim(self.num_steps)
        products = self._product_lines(f"near_rows, {panel}, {steps}, m_count, panels, 0", tile)
        lines = [
            "    uint16_t *to = near_rows;",
            *(f"    {line}" for line in round_lines),
            f"    for (int64_t panel = 0; panel < {c_dim(self.panels)}; ++panel) {{",
            *declared(self._columns("panel"), [f"  {line}" for line in products], "      "),
            "    }",
        ]
        names = self.blocks
        whole = [
            *setup,
            f"  uint16_t near_rows[{c_dim(self.num_steps * ROWS * DEPTH)}] __attribute__((aligned(64)));",
            f"  {names.begin}(tiles);",
            f"  for (int64_t block = {FIRST_ITEM}; block < {END_ITEM}; ++block) {{",
            *declared(self._rows("0"), lines, "    "),
            "  }",
            f"  {names.end}(tiles);",
        ]
        item_ps = self.num_steps * (self.panels * STEP_PS + ROWS * DEPTH * _ROUND_PS)
        return ParallelLoop(tuple(whole), (self.num_rows + (ROWS - 1)) // ROWS, item_ps)

    def _passes(self, setup: Sequence[str], round_lines: Sequence[str], tile: TextTile) -> list[str | ParallelLoop]:
        """Gives the loop over passes: some rows are rounded, and multiplied by all panels."""
        size = c_dim(self.num_steps * ROWS * DEPTH)
        blocks = c_dim(1 if self.pass_blocks == 0 else self.pass_blocks)
        rounding = [
            *setup,
            f"  for (int64_t block = {FIRST_ITEM}; block < {END_ITEM}; ++block) {{",
            f"    uint16_t *to = rounded + block * {size};",
            *declared(self._rows("m_begin"), [f"    {line}" for line in round_lines], "    "),
            "  }",
        ]
        panel = f"panels + item / {blocks} * {c_dim(self.panel_size)}"
        source = f"rounded + block * {size}, {panel}, {c_dim(self.num_steps)}, m_count, {self._ahead()}"
        lines = ["    if (m_count <= 0) continue;", *self._product_lines(source, tile)]
        names = self.blocks
        products = [
            f"  {names.begin}(tiles);",
            f"  for (int64_t item = {FIRST_ITEM}; item < {END_ITEM}; ++item) {{",
            f"    const int64_t block = item % {blocks};",
            *declared([*self._rows("m_begin"), *self._columns(f"item / {blocks}")], lines, "    "),
            "  }",
            f"  {names.end}(tiles);",
        ]
        round_ps = self.num_steps * (ROWS * DEPTH * _ROUND_PS)
        return [
            f"  for (int64_t m_begin = 0; m_begin < {c_dim(self.num_rows)}; m_begin += {self.pass_rows}) {{",
            ParallelLoop(tuple(rounding), self.pass_blocks, round_ps),
            ParallelLoop(tuple(products), self.pass_blocks * self.panels, self.num_steps * STEP_PS),
            "  }",
        ]

    def _rows(self, first: str) -> list[tuple[str, str]]:
        """Gives the declarations and values of where a block lies."""
        start = "" if first == "0" else f"{first} + "
        return [
            ("const int64_t m0", f"{start}block * {ROWS}"),
            ("const int64_t m_count", f"byoc_min({ROWS}, {c_dim(self.num_rows)} - m0)"),
        ]

    def _columns(self, panel: str) -> list[tuple[str, str]]:
        """Gives the declarations and values of where a panel's columns lie."""
        return [
            ("const int64_t n0", f"{panel} * {self.width}"),
            ("const int64_t n_count", f"byoc_min({self.width}, {c_dim(self.num_columns)} - n0)"),
        ]
