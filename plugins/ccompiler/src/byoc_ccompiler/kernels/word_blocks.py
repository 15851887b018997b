"""Blocks of rows and panels of columns, into which a product of words is cut."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM
from byoc_core.dims import Dim, ceildiv

from byoc_ccompiler.kernels.epilogue import SumsTile

__all__ = ["Blocks", "shared_loop"]


class Blocks:
    """Blocks of rows times panels of columns.

    Args:
        num_rows: rows of the product.
        num_columns: columns of the product.
        rows: of a block.
        width: columns of a panel.

    Attributes:
        count: the number of blocks.
        panels: the number of panels.
        m0: the first row of a block.
        m_count: how many rows it has.
        n0: the first column of a panel.
        n_count: how many columns it has.
    """

    def __init__(self, num_rows: Dim, num_columns: Dim, rows: int, width: int) -> None:
        self.num_rows, self.num_columns, self.rows, self.width = num_rows, num_columns, rows, width
        self.count, self.panels = ceildiv(num_rows, rows), ceildiv(num_columns, width)
        self.m0, self.m_count, self.n0, self.n_count = map(c.Variable, ("m0", "m_count", "n0", "n_count"))

    def lets(self, first: c.Expression, panel: c.Expression) -> c.Block:
        """Return the statements that say where a block that begins with a row, and a panel with a number, lie."""
        return (
            c.Let(self.m0, first),
            c.Let(self.m_count, c.index_min(c.Size(self.num_rows) - self.m0, self.rows)),
            c.Let(self.n0, panel * self.width),
            c.Let(self.n_count, c.index_min(c.Size(self.num_columns) - self.n0, self.width)),
        )

    def tile(self, sums: c.Buffer, leading: tuple[c.Expression, ...] = (), *, has_columns: bool = True) -> SumsTile:
        """Return the sums of a block and a panel."""
        num_columns = c.Size(self.width) if self.num_columns % self.width == 0 else self.n_count
        place = (self.m0, self.m_count, self.n0, num_columns, self.width)
        return SumsTile(sums, self.width, *place, leading, has_columns)

    def loop(
        self,
        gather: c.Statement,
        product: Callable[[c.Expression], c.Block],
        round_ps: Dim,
        before: c.Block,
        *after: c.Statement,
    ) -> c.Dispatch:
        """Return the loop over blocks times panels, the panels of a block one after the other.

        Args:
            gather: makes a block ready, which then stays.
            product: returns what is done with a block and a panel, whose number it takes.
            round_ps: estimated picoseconds of a block times a panel.
            before: stands before the loop of each thread.
            after: stands behind it.
        """
        item, block, panel, at_hand = map(c.Variable, ("item", "block", "panel", "at_hand"))
        body = (
            c.Let(block, item // self.panels),
            c.Let(panel, item % self.panels),
            *self.lets(block * self.rows, panel),
            c.If(at_hand.compare("!=", block), (c.Assign(at_hand, block), gather)),
            *product(panel),
        )
        start = c.Declare(at_hand, c.Size(-1))
        return shared_loop(item, self.count * self.panels, body, round_ps, (*before, start), *after)


def shared_loop(
    index: c.Variable, count: Dim, body: c.Block, round_ps: Dim, before: c.Block, *after: c.Statement
) -> c.Dispatch:
    """Return a loop that threads share, with what each does before and after its part of the rounds."""
    first, end = c.Variable(FIRST_ITEM), c.Variable(END_ITEM)
    return c.Dispatch(first, end, (*before, c.For(index, first, end, body), *after), count, 1, count * round_ps)
