"""Copies of elements from one place to another by loops over axes with strides: what most movements come down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from byoc_core.authoring.c import (
    Alias,
    Block,
    Buffer,
    Copy,
    Expression,
    For,
    LoopKind,
    MemoryAccess,
    Size,
    Store,
    Variable,
)
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value

from byoc_ccompiler.steps import shape_of

__all__ = [
    "BYTE_PS",
    "MOVE_PS",
    "CopyAxis",
    "copy_axes",
    "copy_block",
    "copy_run",
    "fill_block",
    "loops_around",
    "offset_along",
]

MOVE_PS = 500
"""Estimated picoseconds to move one element by itself."""

BYTE_PS = 30
"""Estimated picoseconds to move one byte among many that lie side by side."""

_GRAIN = 64
_ENOUGH_ITEMS = 16


class CopyAxis(NamedTuple):
    """One axis of a copy.

    Attributes:
        size: the number of elements along the axis.
        target_stride: elements from one element to the next in the target.
        source_stride: the same in the source: 0 if one element is read again, negative if the axis is read backwards.
    """

    size: Dim
    target_stride: Dim
    source_stride: Dim


def copy_axes(sizes: Sequence[Dim], target_strides: Sequence[Dim], source_strides: Sequence[Dim]) -> list[CopyAxis]:
    """Return the axes of a copy from sizes and strides."""
    return [CopyAxis(*axis) for axis in zip(sizes, target_strides, source_strides, strict=True)]


def copy_block(axes: Sequence[CopyAxis], target: Buffer, source: Buffer, *, at: Dim = 0, source_at: Dim = 0) -> Block:
    """Return the statements that copy elements, none of which is written twice.

    Axes that lie behind one another in both places become one; what lies side by side is copied as a whole.

    Args:
        axes: from the outermost to the innermost.
        target: the buffer written.
        source: the buffer read.
        at: the offset of the first element written.
        source_at: the offset of the first element read.
    """
    merged = _merge(axes)
    if not merged:
        return (Store(target, Size(at), source[source_at]),)
    nbytes = dtype_info(target.dtype).itemsize
    *outer, last = merged
    indices = [Variable(f"i{number}") for number in range(len(outer))]
    place = offset_along(indices, [axis.target_stride for axis in outer], at)
    origin = offset_along(indices, [axis.source_stride for axis in outer], source_at)
    is_run = (last.target_stride, last.source_stride) == (1, 1)
    if is_run and outer:
        body: Block = (Copy(target, place, source, origin, Size(last.size)),)
    elif outer:
        k = Variable("k")
        to, come = Buffer("to", target.dtype, MemoryAccess.WRITE), Buffer("from", source.dtype)
        moved = Store(to, k * last.target_stride, come[k * last.source_stride])
        line = For(k, Size(0), Size(last.size), (moved,))
        body = (Alias(to, target, place), Alias(come, source, origin), line)
    else:
        k = Variable("k")
        moved = Store(target, place + k * last.target_stride, source[origin + k * last.source_stride])
        round_ps = max(nbytes * BYTE_PS, 1)
        loop = For(k, Size(0), Size(last.size), (moved,), kind=LoopKind.PARALLEL, grain=_GRAIN, round_ps=round_ps)
        return (loop,)
    is_cheap = is_run or (last.source_stride == 0 and last.target_stride == 1)
    last_ps = last.size * (nbytes * BYTE_PS if is_cheap else MOVE_PS)
    part = _shared_axis(merged)
    others = product(axis.size for number, axis in enumerate(outer) if number != part)
    return loops_around(body, indices, [axis.size for axis in outer], part=part, round_ps=others * last_ps)


def copy_run(target: Buffer, at: Expression, source: Buffer, source_at: Expression, count: Dim) -> Block:
    """Return the statement that copies elements that lie side by side.

    Args:
        target: the buffer written.
        at: the offset of the first element written.
        source: the buffer read.
        source_at: the offset of the first element read.
        count: how many elements.
    """
    if count == 1:
        return (Store(target, at, source[source_at]),)
    return (Copy(target, at, source, source_at, Size(count)),)


def fill_block(value: Value, target: Buffer, element: Expression) -> Block:
    """Return the statements that set all elements of a result, which has no gaps, to one value."""
    k, nbytes = Variable("k"), dtype_info(target.dtype).itemsize
    body = (Store(target, k, element),)
    count = Size(product(shape_of(value)))
    return (For(k, Size(0), count, body, kind=LoopKind.PARALLEL, grain=_GRAIN, round_ps=nbytes * BYTE_PS),)


def loops_around(
    body: Block, indices: Sequence[Variable], sizes: Sequence[Dim], *, part: int | None = None, round_ps: Dim = 0
) -> Block:
    """Return loops around a block.

    Args:
        body: the block.
        indices: the indices of the loops, outermost first.
        sizes: how many rounds each has.
        part: the number of the loop whose rounds several threads may share; ``None`` for none.
        round_ps: estimated picoseconds of a round of it.
    """
    for number, (index, size) in reversed(list(enumerate(zip(indices, sizes, strict=True)))):
        loop = For(index, Size(0), Size(size), body)
        body = (replace(loop, kind=LoopKind.PARALLEL, round_ps=round_ps) if number == part else loop,)
    return body


def offset_along(indices: Sequence[Expression], strides: Sequence[Dim], first: Dim = 0) -> Expression:
    """Return the offset of the element at indices, behind the offset of the first element."""
    offset: Expression = Size(first)
    for index, stride in zip(indices, strides, strict=True):
        offset = offset + index * stride
    return offset


def _merge(axes: Sequence[CopyAxis]) -> list[CopyAxis]:
    """Gives the axes without those of size 1, those that lie behind one another in both places as one."""
    merged: list[CopyAxis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        above = merged[-1] if merged else None
        if (
            above is not None
            and above.target_stride == axis.size * axis.target_stride
            and above.source_stride == axis.size * axis.source_stride
        ):
            merged[-1] = CopyAxis(above.size * axis.size, axis.target_stride, axis.source_stride)
        else:
            merged.append(axis)
    return merged


def _shared_axis(axes: Sequence[CopyAxis]) -> int:
    """Gives the axis among all but the last whose places several threads share: the first that has enough."""
    sizes = [axis.size for axis in axes[:-1]]
    for number, size in enumerate(sizes):
        if not isinstance(size, int) or size >= _ENOUGH_ITEMS:
            return number
    return max(range(len(sizes)), key=lambda number: int(str(sizes[number])))
