"""The matrices of recurrent layers in panels of register tiles, and products of rows with them.

The columns of a product are the gates of all hidden units, in one part or two: those of a part are computed at once. A
part is cut into panels, as :mod:`byoc_ccompiler.kernels.blocks` has them; zeros fill the last one up to a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv, total
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.blocks import block_function, pack_function, packed_panels, panel_vectors
from byoc_ccompiler.kernels.tiles import tile_function

__all__ = ["GatePart", "Product", "Rows", "gate_parts", "pack", "pack_panels"]

_PACKED_PS = 100
"""Estimated picoseconds to move one element into a panel."""

_PANELS_AT_ONCE = (4, 2, 1)
"""Panels that meet one row at a time: a single panel has too few sums to keep the multipliers busy."""


@dataclass(frozen=True, slots=True)
class GatePart:
    """Columns that are computed at once.

    Attributes:
        first: the first column, as a row of the matrices.
        size: how many columns there are.
        place: how many columns the parts before take, filled up.
        lanes: elements of a vector.
        vectors: vectors in a row of a panel.
        tail: those of the last panel, where it has fewer; else 0.
    """

    first: Dim
    size: Dim
    place: Dim
    lanes: int
    vectors: int
    tail: int

    @property
    def width(self) -> int:
        """Columns of a whole panel."""
        return self.vectors * self.lanes

    @property
    def num_whole(self) -> Dim:
        """The number of whole panels."""
        return ceildiv(self.size - self.tail * self.lanes, self.width) if self.size != 0 else 0

    @property
    def padded(self) -> Dim:
        """How many columns its panels have."""
        return self.num_whole * self.width + self.tail * self.lanes


def gate_parts(kernel: Kernel, dtype: str, sizes: Sequence[Dim]) -> tuple[GatePart, ...]:
    """Return the parts of so many columns each."""
    lanes, parts = kernel.unit.lanes(dtype), []
    first: Dim = 0
    place: Dim = 0
    for size in sizes:
        parts.append(GatePart(first, size, place, lanes, *panel_vectors(kernel.unit, dtype, size)))
        first, place = first + size, place + parts[-1].padded
    return tuple(parts)


def pack(matrices: NDArray, parts: Sequence[GatePart]) -> NDArray:
    """Return matrices ``(directions, columns, depth)``, whose sizes are known, in panels."""
    spans = [(int(str(part.first)), int(str(part.first + part.size)), part) for part in parts]
    panels = [
        packed_panels(matrix[first:end].T, part.width, part.lanes) for matrix in matrices for first, end, part in spans
    ]
    return np.concatenate(panels) if panels else np.zeros(0, matrices.dtype)


def pack_panels(
    kernel: Kernel, parts: Sequence[GatePart], matrices: c.Buffer, ways: int, depth: Dim, target: c.Buffer
) -> c.Block:
    """Return the statements that rearrange matrices ``(directions, columns, depth)`` into panels."""
    columns, padded = (total(getattr(part, name) for part in parts) for name in ("size", "padded"))
    return tuple(_pack_part(kernel, part, matrices, target, ways, depth, columns, padded) for part in parts)


def _pack_part(
    kernel: Kernel,
    part: GatePart,
    matrices: c.Buffer,
    target: c.Buffer,
    ways: int,
    depth: Dim,
    columns: Dim,
    padded: Dim,
) -> c.For:
    item, num_panels = c.Variable("item"), part.num_whole + int(part.tail > 0)
    way, n = item // num_panels, item % num_panels * part.width
    source = c.Address(matrices, (way * columns + part.first + n) * depth)
    place = c.Address(target, (way * padded + part.place + n) * depth)

    def call(vectors: int) -> c.Statement:
        callee = pack_function(kernel, target.dtype, vectors * part.lanes)
        count = c.index_min(c.Size(part.size) - n, vectors * part.lanes)
        return c.Evaluate(c.Call(callee, (source, c.Size(1), c.Size(depth), c.Size(depth), count, place)))

    body: c.Block = (call(part.vectors),)
    if part.tail:
        body = (c.If(n.compare("<", part.num_whole * part.width), body, (call(part.tail),)),)
    round_ps = depth * (part.width * _PACKED_PS)
    return c.For(item, c.Size(0), c.Size(num_panels * ways), body, kind=c.LoopKind.PARALLEL, round_ps=round_ps)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in memory.

    Attributes:
        buffer: the memory.
        first: the offset of the first row.
        step: elements from row to row.
    """

    buffer: c.Buffer
    first: c.Expression
    step: c.Expression

    def at(self, place: Dim) -> Rows:
        """Return the rows from a place on."""
        return Rows(self.buffer, self.first + place, self.step)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of rows with the panels of a part.

    Attributes:
        kernel: the kernel that it stands in.
        part: the part.
        panels: the panels of all parts.
        first: the offset of the first panel of all parts.
        depth: the length of the sums.
    """

    kernel: Kernel
    part: GatePart
    panels: c.Buffer
    first: c.Expression
    depth: Dim

    def of_rows(
        self,
        left: Rows,
        count: c.Expression,
        sums: Rows,
        *,
        adds: bool,
        counts: Collection[int] = (),
        around: Callable[[c.Statement], c.Block] = lambda call: (call,),
    ) -> c.Block:
        """Return the statements that multiply some rows.

        Args:
            left: the rows.
            count: how many rows there are.
            sums: rows of the part's sums.
            adds: whether the sums are added to what is there.
            counts: the numbers of rows that there may be; none: any number.
            around: returns statements around the product of rows with one panel.
        """
        block: list[c.Statement] = []
        for vectors, start, stop in self._runs():
            panel = c.Variable("panel")
            at = panel * self.part.width
            callee = block_function(self.kernel, sums.buffer.dtype, vectors, counts, strided=False)
            steps = c.Address(self.panels, self.first + (at + self.part.place) * self.depth)
            rows = (c.Address(left.buffer, left.first), left.step, steps, c.Size(self.depth), count)
            place = (c.Address(sums.buffer, sums.first + at), sums.step, c.Literal(adds, c.BOOL))
            call = c.Evaluate(c.Call(callee, (*rows, *place, c.Size(0), c.Size(0))))
            block.append(c.For(panel, c.Size(start), c.Size(stop), around(call)))
        return tuple(block)

    def of_row(self, left: Rows, sums: Rows) -> c.Block:
        """Return the statements that multiply one row, and add the sums to what is there."""
        block: list[c.Statement] = []
        for vectors, done, stop in self._runs():
            for panels in _PANELS_AT_ONCE:
                panel, end = c.Variable("panel"), done + (stop - done) // panels * panels
                function = tile_function(self.kernel.unit, sums.buffer.dtype, 1, vectors, placed=True, panels=panels)
                at = panel * self.part.width
                steps = c.Address(self.panels, self.first + (at + self.part.place) * self.depth)
                factors = (c.Address(left.buffer, left.first), c.Size(0), steps, c.Size(self.depth))
                target = (c.Address(sums.buffer, sums.first + at), c.Size(0), c.Literal(True, c.BOOL))
                call = c.Evaluate(c.Call(self.kernel.shared_function(function), (*factors, *target)))
                block.append(c.For(panel, c.Size(done), c.Size(end), (call,), step=panels))
                done = end
        return tuple(block)

    def _runs(self) -> list[tuple[int, Dim, Dim]]:
        """Return the vectors of the panels, and the numbers of the first panel and the one behind the last."""
        whole, tail = self.part.num_whole, self.part.tail
        runs = [(self.part.vectors, 0, whole), *([(tail, whole, whole + 1)] if tail else [])]
        return [run for run in runs if run[1] != run[2]]
