"""Copies of elements from one place to another by loops over axes with strides: what most movements come down to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value

from byoc_ccompiler.steps import shape_of

__all__ = ["BYTE_PS", "MOVE_PS", "copy_axes", "copy_block", "copy_run", "fill_block", "loops_around", "offset_along"]

MOVE_PS = 500
"""Estimated picoseconds to move one element by itself."""

BYTE_PS = 30
"""Estimated picoseconds to move one byte among many that lie side by side."""

_GRAIN = 64
_ENOUGH_ITEMS = 16


class CopyAxis(NamedTuple):
    """The number of elements along an axis of a copy, and how far apart they lie in both places.

    In the source that is 0 if one element is read again, and negative if the axis is read backwards.
    """

    size: Dim
    target_stride: Dim
    source_stride: Dim


def copy_axes(sizes: Sequence[Dim], target_strides: Sequence[Dim], source_strides: Sequence[Dim]) -> list[CopyAxis]:
    """Return the axes of a copy: none of size 1, and those that lie behind one another in both places as one."""
    merged: list[CopyAxis] = []
    for size, to, come in zip(sizes, target_strides, source_strides, strict=True):
        if merged and merged[-1][1:] == (size * to, size * come):
            merged[-1] = CopyAxis(merged[-1].size * size, to, come)
        elif size != 1:
            merged.append(CopyAxis(size, to, come))
    return merged


def copy_block(
    axes: Sequence[CopyAxis], target: c.Buffer, source: c.Buffer, *, at: Dim = 0, source_at: Dim = 0
) -> c.Block:
    """Return the statements that copy elements, none of which is written twice; what lies side by side goes as a whole.

    Args:
        axes: those of :func:`copy_axes`, from the outermost to the innermost.
        target: the buffer written.
        source: the buffer read.
        at: the offset of the first element written.
        source_at: the offset of the first element read.
    """
    if not axes:
        return (c.Store(target, c.Size(at), source[source_at]),)
    *outer, (size, apart, source_apart) = axes
    k, indices, sizes = c.Variable("k"), [c.Variable(f"i{i}") for i in range(len(outer))], [axis.size for axis in outer]
    place = offset_along(indices, [axis.target_stride for axis in outer], at)
    origin = offset_along(indices, [axis.source_stride for axis in outer], source_at)
    if not outer:
        return _flat_loop(k, size, c.Store(target, place + k * apart, source[origin + k * source_apart]))
    if apart == source_apart == 1:
        body: c.Block = (c.Copy(target, place, source, origin, c.Size(size)),)
    else:
        to, come = c.Buffer("to", target.dtype, c.MemoryAccess.WRITE), c.Buffer("from", source.dtype)
        line = loops_around((c.Store(to, k * apart, come[k * source_apart]),), [k], [size])
        body = (c.Alias(to, target, place), c.Alias(come, source, origin), *line)
    is_cheap = apart == 1 and source_apart in (0, 1)
    line_ps = size * (dtype_info(target.dtype).itemsize * BYTE_PS if is_cheap else MOVE_PS)
    # Several threads share the first axis that has enough places, or else the longest one.
    wide = (number for number, count in enumerate(sizes) if not isinstance(count, int) or count >= _ENOUGH_ITEMS)
    part = next(wide, None)
    if part is None:
        part = max(range(len(sizes)), key=lambda number: int(str(sizes[number])))
    round_ps = product([*sizes[:part], *sizes[part + 1 :]]) * line_ps
    return loops_around(body, indices, sizes, part=part, round_ps=round_ps)


def copy_run(target: c.Buffer, at: c.Expression, source: c.Buffer, source_at: c.Expression, count: Dim) -> c.Block:
    """Return the statement that copies so many elements that lie side by side, from and to the offsets of the first."""
    if count == 1:
        return (c.Store(target, at, source[source_at]),)
    return (c.Copy(target, at, source, source_at, c.Size(count)),)


def fill_block(value: Value, target: c.Buffer, element: c.Expression) -> c.Block:
    """Return the statements that set all elements of a result, which has no gaps, to one value."""
    k = c.Variable("k")
    return _flat_loop(k, product(shape_of(value)), c.Store(target, k, element))


def _flat_loop(k: c.Variable, count: Dim, store: c.Store) -> c.Block:
    """Return the loop over all elements of a buffer, which threads share by whole lines of cache."""
    element_ps = dtype_info(store.buffer.dtype).itemsize * BYTE_PS
    return loops_around((store,), [k], [count], part=0, grain=_GRAIN, round_ps=element_ps)


def loops_around(
    body: c.Block,
    indices: Sequence[c.Variable],
    sizes: Sequence[Dim],
    *,
    part: int | None = None,
    kinds: Mapping[int, c.LoopKind] | None = None,
    grain: Dim = 1,
    round_ps: Dim | None = 0,
) -> c.Block:
    """Return loops around a block, outermost first.

    Args:
        body: the block.
        indices: the indices of the loops.
        sizes: how many rounds each has.
        part: the number of the loop whose rounds several threads may share; ``None`` for none.
        kinds: in its place, the kinds of the loops that are not serial, by number.
        grain: of the parallel loop: parts begin at multiples of so many rounds.
        round_ps: estimated picoseconds of a round of the parallel loop.
    """
    kinds = kinds or ({} if part is None else {part: c.LoopKind.PARALLEL})
    for number, (index, size) in reversed(list(enumerate(zip(indices, sizes, strict=True)))):
        kind = kinds.get(number, c.LoopKind.SERIAL)
        work = (grain, round_ps) if kind is c.LoopKind.PARALLEL else (1, None)
        body = (c.For(index, c.Size(0), c.Size(size), body, 1, kind, *work),)
    return body


def offset_along(indices: Sequence[c.Expression], strides: Sequence[Dim], first: Dim = 0) -> c.Expression:
    """Return the offset of the element at indices, behind the offset of the first element."""
    offset: c.Expression = c.Size(first)
    for index, stride in zip(indices, strides, strict=True):
        offset = offset + index * stride
    return offset
