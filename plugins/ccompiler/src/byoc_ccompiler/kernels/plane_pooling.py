"""Pooling of planes of known size: windows are combined along the columns first, then along the rows.

A window of ``h * w`` taps takes ``h + w`` operations in place of ``h * w``, because neighbouring windows share columns.
The combined columns of a block of rows wait in a small array, between elements without effect: all windows of a row are
then combined by the same loop. A row of taps beyond the plane is a row of such elements.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple, Self

from byoc_core.authoring import c
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernels.pooling_windows import PooledAxis, PooledImage, Pooling

__all__ = ["PlaneSizes", "takes_rows", "write_rows"]

_BLOCK_NBYTES, _MOST_NBYTES = 1 << 14, 1 << 15
"""Bytes of the combined columns of a block, about, and of a single row, at most."""

_MOST_TAPS = 16
"""Maximum taps of a window along an axis: each is an operation of its own."""

_START = c.Size(0)


class PlaneSizes(NamedTuple):
    """The sizes of a plane, and of the array of combined columns.

    Attributes:
        height: rows of the plane.
        width: elements of a row.
        out_height: rows of the result.
        out_width: elements of a row of the result.
        block: rows of the result computed together.
        reach: elements covered by the windows of a row of the result: the elements of a row of combined columns.
        covered: elements of a row of the plane covered by windows.
    """

    height: int
    width: int
    out_height: int
    out_width: int
    block: int
    reach: int
    covered: int

    @classmethod
    def of(cls, down: PooledAxis, right: PooledAxis, nbytes: int) -> Self | None:
        """Return the sizes of a plane; ``None`` for sizes known only in a call, or too large.

        Args:
            down: the windows along the columns.
            right: the windows along the rows.
            nbytes: bytes of a combined element.
        """
        sizes = [size for axis in (down, right) for size in (axis.size, axis.out_size) if isinstance(size, int)]
        if len(sizes) < 4 or min(sizes) < 1 or not all(0 < axis.window <= _MOST_TAPS for axis in (down, right)):
            return None
        height, out_height, width, out_width = sizes
        reach = (out_width - 1) * right.stride + (right.window - 1) * right.dilation + 1
        if max(reach, width) * nbytes > _MOST_NBYTES:
            return None
        block = max(1, min(out_height, _BLOCK_NBYTES // (reach * nbytes)))
        return cls(height, width, out_height, out_width, block, reach, max(0, min(width, reach - right.begin)))

    def fill_borders(self, array: c.Buffer, begin: int, none: c.Expression) -> c.Block:
        """Return the statements filling an array of combined columns outside the plane."""
        row, k = c.Variable("row"), c.Variable("k")
        sides = [(0, begin), (begin + self.covered, self.reach)]
        fills = tuple(
            c.For(k, c.Size(first), c.Size(end), (c.Store(array, row * self.reach + k, none),))
            for first, end in sides
            if first < min(end, self.reach)
        )
        return (c.For(row, _START, c.Size(self.block), fills),) if fills else ()


def takes_rows(pooling: Pooling) -> bool:
    """Return whether planes are pooled row by row: windows inside apart from each other share no columns."""
    if pooling.is_sum and pooling.is_inside and all(axis.stride >= axis.window for axis in pooling.axes):
        return False
    return len(pooling.axes) == 2 and PlaneSizes.of(*pooling.axes, dtype_info(pooling.type.dtype).itemsize) is not None


def write_rows(pooling: Pooling, image: PooledImage, result: PooledImage) -> c.Block:
    """Return the statements pooling a plane."""
    (down, right), type_ = pooling.axes, pooling.type
    sizes = PlaneSizes.of(down, right, dtype_info(type_.dtype).itemsize)
    assert sizes is not None
    column, first, stop, at, top = map(c.Variable, ("column", "first", "stop", "at", "top"))
    columns = c.Buffer("columns", type_.dtype, c.MemoryAccess.WRITE, sizes.block * sizes.reach)
    none = c.Buffer("none", type_.dtype, c.MemoryAccess.WRITE, sizes.width)

    def each(buffer: c.Buffer, start: c.Expression, count: int, value: c.Expression) -> c.For:
        return c.For(column, _START, c.Size(count), (c.Store(buffer, start + column, value),), kind=c.LoopKind.VECTOR)

    declared: c.Block = (c.LocalArray(columns, alignment=64), *sizes.fill_borders(columns, right.begin, pooling.start))
    lines: list[c.Alias] = []
    for tap in range(down.window):
        y = top + tap * down.dilation
        line = c.Alias(c.Buffer(f"line{tap}", type_.dtype), image.first.buffer, y * sizes.width)
        if not down.is_inside:
            is_inside = c.Binary("&&", y.compare(">=", 0), y.compare("<", sizes.height))
            line = c.Alias(line.buffer, line.source, line.offset, is_inside, none)
        lines.append(line)
    if not down.is_inside:
        declared = (*declared, c.LocalArray(none), each(none, _START, sizes.width, pooling.start))
    start = [pooling.start] if pooling.is_sum else []
    row = (at - first) * sizes.reach
    combined = reduce(pooling.combine, [*start, *(line.buffer[column] for line in lines)])
    combine = (
        c.Let(top, at * down.stride - down.begin),
        *lines,
        each(columns, row + right.begin, sizes.covered, combined),
    )
    add: Callable[[c.Expression, c.Expression], c.Expression] = operator.add if pooling.is_sum else pooling.combine
    parts: list[c.Expression] = [
        columns[row + column * right.stride + tap * right.dilation] for tap in range(right.window)
    ]
    filled, counted, divisor = _divisors(pooling, at, column)
    to = result.pointer("to", [at])
    total = pooling.finish(reduce(add, parts), divisor)
    finish = (*counted, to, each(to.buffer, _START, sizes.out_width, total))
    body = (
        c.Let(stop, c.index_min(first + sizes.block, sizes.out_height)),
        c.For(at, first, stop, combine),
        c.For(at, first, stop, finish),
    )
    return (*declared, *filled, c.For(first, _START, c.Size(sizes.out_height), body, step=sizes.block))


def _divisors(pooling: Pooling, row: c.Variable, column: c.Variable) -> tuple[c.Block, c.Block, c.Expression]:
    """Return the statements before all rows and before a row of the result, and the divisor of a mean."""
    down, right = pooling.axes
    if pooling.kind != "avg" or pooling.is_inside:
        return (), (), c.Literal(down.window * right.window, pooling.type)

    def counted(axis: PooledAxis, index: c.Variable) -> tuple[c.Block, c.Expression]:
        _, count, wide, statements = axis.taps(index)
        elements = c.index_max(c.Size(1), wide if pooling.counts_padding else count)
        return statements, c.Cast(elements, pooling.type)

    widths = c.Buffer("widths", pooling.type.dtype, c.MemoryAccess.WRITE, right.out_size)
    statements, width = counted(right, column)
    fill = c.For(column, _START, c.Size(right.out_size), (*statements, c.Store(widths, column, width)))
    statements, value = counted(down, row)
    height = c.Variable("height", pooling.type)
    return (c.LocalArray(widths), fill), (*statements, c.Let(height, value)), height * widths[column]
