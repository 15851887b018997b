"""The matrices of recurrent layers in panels of register tiles, and products of rows with them.

The columns of a product are the gates of all hidden units, in one part or two: those of a part are computed at once. A
part is cut into panels, as :mod:`byoc_ccompiler.kernels.blocks` has them; zeros fill the last one up to a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv, total
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.blocks import block_function, pack_function, packed_panels, panel_vectors
from byoc_ccompiler.kernels.tiles import multiply

__all__ = ["GatePart", "gate_parts", "pack", "pack_panels", "product"]

_PACKED_PS = 100
"""Estimated picoseconds to move one element into a panel."""

_PANELS_AT_ONCE = (4, 2, 1)
"""Panels that meet one row at a time: a single panel has too few sums to keep the multipliers busy."""


class GatePart(NamedTuple):
    """Columns that are computed at once: rows of the matrices from ``first`` on.

    The parts before take ``place`` columns, filled up. The last panel has ``tail`` columns, where fewer than others; or
    ``tail`` is 0.
    """

    first: Dim
    size: Dim
    place: Dim
    lanes: int
    width: int
    num_whole: Dim
    tail: int

    @property
    def padded(self) -> Dim:
        """How many columns its panels have."""
        return self.num_whole * self.width + self.tail

    @property
    def panels(self) -> list[tuple[int, Dim, Dim]]:
        """The width of panels, the number of the first one, and of the one behind the last: whole ones, the tail."""
        runs = [(self.width, 0, self.num_whole), (self.tail, self.num_whole, self.num_whole + 1)]
        return [run for run in runs if run[0] and run[1] != run[2]]


def gate_parts(kernel: Kernel, dtype: str, sizes: Sequence[Dim]) -> list[GatePart]:
    """Return the parts of so many columns each."""
    lanes, parts = kernel.unit.lanes(dtype), list[GatePart]()
    for number, size in enumerate(sizes):
        width, tail = (lanes * vectors for vectors in panel_vectors(kernel.unit, dtype, size))
        first, place = total(sizes[:number]), total(part.padded for part in parts)
        num_whole = ceildiv(size - tail, width) if size != 0 else 0
        parts.append(GatePart(first, size, place, lanes, width, num_whole, tail))
    return parts


def pack(matrices: NDArray, parts: Sequence[GatePart]) -> NDArray:
    """Return matrices ``(directions, columns, depth)``, whose sizes are known, in panels."""
    cuts = [int(str(part.first)) for part in parts[1:]]
    rows = [zip(parts, np.split(matrix, cuts), strict=True) for matrix in matrices]
    panels = [packed_panels(columns.T, part.width, part.lanes) for matrix in rows for part, columns in matrix]
    return np.concatenate([np.zeros(0, matrices.dtype), *panels])


def pack_panels(
    kernel: Kernel, parts: Sequence[GatePart], matrices: c.Buffer, ways: int, depth: Dim, target: c.Buffer
) -> c.Block:
    """Return the statements that rearrange matrices ``(directions, columns, depth)`` into panels."""
    columns, padded = total(part.size for part in parts), total(part.padded for part in parts)

    def packed(part: GatePart) -> c.For:
        item, num_panels = c.Variable("item"), part.num_whole + int(part.tail > 0)
        way, n = item // num_panels, item % num_panels * part.width
        source = c.Address(matrices, (way * columns + part.first + n) * depth)
        place = c.Address(target, (way * padded + part.place + n) * depth)

        def call(width: int) -> c.Statement:
            count = c.index_min(c.Size(part.size) - n, width)
            arguments = (source, c.Size(1), c.Size(depth), c.Size(depth), count, place)
            return c.Evaluate(c.Call(pack_function(kernel, target.dtype, width), arguments))

        body: c.Block = (call(part.width),)
        if part.tail:
            body = (c.If(n.compare("<", part.num_whole * part.width), body, (call(part.tail),)),)
        round_ps = depth * (part.width * _PACKED_PS)
        return c.For(item, c.Size(0), c.Size(num_panels * ways), body, kind=c.LoopKind.PARALLEL, round_ps=round_ps)

    return tuple(map(packed, parts))


def product(
    kernel: Kernel,
    part: GatePart,
    panels: c.Address,
    depth: Dim,
    left: tuple[c.Address, c.Expression],
    sums: tuple[c.Address, c.Expression],
    count: c.Expression | None,
    *,
    adds: bool = True,
    counts: Collection[int] = (),
    around: Callable[[c.Statement], c.Block] = lambda call: (call,),
) -> c.Block:
    """Return the statements that multiply rows by the panels of a part, and set the part's sums or add to them.

    Of the rows and of the sums there are the first one and the distance to the next. ``panels`` is the first panel of
    all parts. A ``count`` of ``None`` is one row, which meets several panels at once. ``counts`` are the numbers of
    rows that there may be, none for any; ``around`` returns statements around the product of rows with one panel.
    """
    block: list[c.Statement] = []
    for width, done, stop in part.panels:
        for at_once in _PANELS_AT_ONCE if count is None else (1,):
            panel, end = c.Variable("panel"), done + (stop - done) // at_once * at_once
            at, vectors, added = panel * part.width, width // part.lanes, c.Literal(adds, c.BOOL)
            steps = c.Address(panels.buffer, panels.index + (at + part.place) * depth)
            place = c.Address(sums[0].buffer, sums[0].index + at)
            if count is None:
                operands = ((1, vectors), (left[0], c.Size(0)), steps, c.Size(depth), place)
                call = multiply(kernel, *operands, adds=added, panels=at_once)
            else:
                callee = block_function(kernel, place.buffer.dtype, vectors, counts, strided=False)
                rows = (*left, steps, c.Size(depth), count, place, sums[1], added, c.Size(0), c.Size(0))
                call = c.Evaluate(c.Call(callee, rows))
            block.append(c.For(panel, c.Size(done), c.Size(end), around(call), step=at_once))
            done = end
    return tuple(block)
