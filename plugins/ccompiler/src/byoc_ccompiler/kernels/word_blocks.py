"""Blocks of rows and panels of columns, into which a product of words is cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM
from byoc_core.dims import Dim, ceildiv

from byoc_ccompiler.kernels.epilogue import SumsTile

__all__ = ["Blocks"]


def _variable(name: str) -> c.Variable:
    return field(default_factory=partial(c.Variable, name))  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of rows times panels of columns.

    Attributes:
        num_rows: rows of the product.
        num_columns: columns of the product.
        rows: of a block.
        width: columns of a panel.
        m0: the first row of a block.
        m_count: how many rows it has.
        n0: the first column of a panel.
        n_count: how many columns it has.
    """

    num_rows: Dim
    num_columns: Dim
    rows: int
    width: int
    m0: c.Variable = _variable("m0")
    m_count: c.Variable = _variable("m_count")
    n0: c.Variable = _variable("n0")
    n_count: c.Variable = _variable("n_count")

    @property
    def blocks(self) -> Dim:
        """The number of blocks."""
        return ceildiv(self.num_rows, self.rows)

    @property
    def panels(self) -> Dim:
        """The number of panels."""
        return ceildiv(self.num_columns, self.width)

    def lets(self, block: c.Expression, panel: c.Expression, first: c.Expression = c.Size(0)) -> c.Block:
        """Return the statements that say where a block and a panel lie; blocks are counted from row ``first`` on."""
        left = c.Size(self.num_columns)
        return (
            c.Let(self.m0, first + block * self.rows),
            c.Let(self.m_count, c.index_min(c.Size(self.num_rows) - self.m0, self.rows)),
            c.Let(self.n0, panel * self.width),
            c.Let(self.n_count, c.index_min(left - self.n0, self.width)),
        )

    def tile(self, sums: c.Buffer, leading: tuple[c.Expression, ...] = (), *, has_columns: bool = True) -> SumsTile:
        """Return the sums of a block and a panel."""
        is_whole = self.num_columns % self.width == 0
        num_columns = c.Size(self.width) if is_whole else self.n_count
        place = (self.m0, self.m_count, self.n0, num_columns, self.width)
        return SumsTile(sums, self.width, *place, leading, has_columns)

    def loop(
        self,
        gather: c.Block,
        product: Callable[[c.Expression], c.Block],
        round_ps: Dim,
        *,
        before: c.Block = (),
        after: c.Block = (),
    ) -> c.Dispatch:
        """Return the loop over blocks times panels, the panels of a block one after the other.

        Args:
            gather: makes a block ready, which then stays.
            product: returns what is done with a block and a panel, whose number it takes.
            round_ps: estimated picoseconds of a block times a panel.
            before: stands before the loop of each thread.
            after: stands behind it.
        """
        first, end = c.Variable(FIRST_ITEM), c.Variable(END_ITEM)
        item, block, panel, at_hand = map(c.Variable, ("item", "block", "panel", "at_hand"))
        body = (
            c.Let(block, item // self.panels),
            c.Let(panel, item % self.panels),
            *self.lets(block, panel),
            c.If(at_hand.compare("!=", block), (c.Assign(at_hand, block), *gather)),
            *product(panel),
        )
        count = self.blocks * self.panels
        part = (*before, c.Declare(at_hand, c.Size(-1)), c.For(item, first, end, body), *after)
        return c.Dispatch(first, end, part, count, 1, count * round_ps)
