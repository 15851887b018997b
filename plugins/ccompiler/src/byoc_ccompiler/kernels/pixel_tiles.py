"""Register tiles of neighbouring pixels times output channels: their sums, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.ir import Constant

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.implicit_gemm_plan import ImplicitGemm, pack_filter
from byoc_ccompiler.kernels.tiles import multiply

__all__ = ["PixelLoop", "PixelTile", "by_count"]

_Terms = tuple[c.Expression, ...]


def by_count(count: c.Expression, counts: Sequence[int], of: Callable[[int], c.Statement]) -> c.Block:
    """Return the statement for as many rows as a tile has: one of some numbers, else the last of them."""
    *others, last = counts
    block: c.Block = (of(last),)
    for other in reversed(others):
        block = (c.If(count.compare("==", other), (of(other),), block),)
    return block


@dataclass(frozen=True, slots=True)
class PixelTile:
    """A tile: ``count`` pixels from the ``first`` on times a panel; ``leading`` as in :class:`SumsTile`."""

    kernel: Kernel
    plan: ImplicitGemm
    first: c.Expression
    count: c.Expression
    panel: c.Expression
    leading: _Terms = ()

    def product(self, counts: Sequence[int], packed: c.Buffer, factors: _Terms, ahead: _Terms = ()) -> c.Block:
        """Return the statements that compute the sums, and what follows.

        A tile may have so many rows: ``counts``; the last is that of any other number. ``factors`` are its rows, and
        ``ahead`` is fetched meanwhile, as in :func:`multiply`.
        """
        plan = self.plan
        sums = c.Buffer("sums", plan.shape.dtype, c.MemoryAccess.WRITE, plan.rows * plan.columns)
        matrix = c.Address(packed, self.panel * plan.panel_size)
        operands = (factors, matrix, c.Size(plan.depth), c.Address(sums, c.Size(0)))
        products = by_count(
            self.count, counts, lambda rows: multiply(self.kernel, (rows, plan.vectors), *operands, ahead=ahead)
        )
        return (c.LocalArray(sums), *products, *self.rest(sums))

    def rest(self, sums: c.Buffer) -> c.Block:
        """Return the statements that do what follows the sums."""
        plan, n0, n_count = self.plan, c.Variable("n0"), c.Variable("n_count")
        width, columns = plan.shape.group_out_channels, plan.columns
        first = self.panel % plan.panels * columns
        tile = SumsTile(sums, columns, self.first, self.count, n0, n_count, columns, self.leading)
        return (
            c.Let(n0, self.panel // plan.panels * width + first),
            c.Let(n_count, c.index_min(c.Size(width) - first, columns)),
            *epilogue(self.kernel, tile),
        )


@dataclass(frozen=True, slots=True)
class PixelLoop:
    """The loop over tiles of ``count`` pixels from ``pixel`` on, each times all panels, in a larger kernel."""

    kernel: Kernel
    plan: ImplicitGemm
    packed: c.Buffer
    counts: Sequence[int]
    pixel: c.Variable
    count: c.Variable

    @classmethod
    def of(cls, kernel: Kernel, totals: Collection[int]) -> PixelLoop:
        """Return the loop for a convolution with a constant filter, and the numbers of pixels that there may be."""
        plan, weight = ImplicitGemm.of(kernel, max(totals)), kernel.group.steps[0].operands[1]
        assert isinstance(weight, Constant)
        rows, (packed, _) = plan.rows, pack_filter(kernel, plan, weight)
        counts = [*([rows] if max(totals) >= rows else []), *sorted({total % rows for total in totals} - {0})]
        return cls(kernel, plan, packed, counts, c.Variable("p0"), c.Variable("p_count"))

    def over(
        self, end: c.Expression, factors: _Terms, first: c.Expression, leading: _Terms, before: c.Block = ()
    ) -> c.For:
        """Return the loop over the pixels up to an end.

        ``before`` finds the factors of a tile; its first pixel has the index ``first`` behind the leading ones.
        """
        panel, plan = c.Variable("panel"), self.plan
        tile = PixelTile(self.kernel, plan, first, self.count, panel, leading)
        panels = c.For(panel, c.Size(0), c.Size(plan.panels), tile.product(self.counts, self.packed, factors))
        body = (c.Let(self.count, c.index_min(end - self.pixel, plan.rows)), *before, panels)
        return c.For(self.pixel, c.Size(0), end, body, step=plan.rows)
