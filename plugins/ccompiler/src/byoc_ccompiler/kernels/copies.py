"""Copies of elements from one place to another by loops over axes with strides: what most movements come down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info
from byoc_core.ir import Value

from byoc_ccompiler.kernels.strided_nest import Layout, StridedNest
from byoc_ccompiler.steps import shape_of

__all__ = ["BYTE_PS", "MOVE_PS", "copy_axes", "copy_block", "copy_run", "fill_block", "loops_around", "offset_along"]

MOVE_PS = 500
"""Estimated picoseconds to move one element by itself."""

BYTE_PS = 30
"""Estimated picoseconds to move one byte among many that lie side by side."""

_GRAIN = 64
_ENOUGH_ITEMS = 16
_TARGET, _SOURCE = "target", "source"


def copy_axes(sizes: Sequence[Dim], target_strides: Sequence[Dim], source_strides: Sequence[Dim]) -> StridedNest:
    """Return the loops of a copy, from sizes and strides.

    A stride of the source is 0 where one element is read again, and negative where an axis is read backwards.
    """
    space = tuple(sizes)
    layouts = {_TARGET: Layout(space, tuple(target_strides)), _SOURCE: Layout(space, tuple(source_strides))}
    return StridedNest(space, layouts, range(len(space)))


def copy_block(axes: StridedNest, target: c.Buffer, source: c.Buffer, *, at: Dim = 0, source_at: Dim = 0) -> c.Block:
    """Return the statements that copy elements, none of which is written twice; what lies side by side goes as a whole.

    The axes are those of :func:`copy_axes`; ``at`` and ``source_at`` are the offsets of the first elements.
    """
    k, last, outer = c.Variable("k"), len(axes.sizes) - 1, axes.sizes[:-1]
    first = c.Size(0) if outer else k
    place = axes.position(_TARGET, start=c.Size(at), last=first)
    origin = axes.position(_SOURCE, start=c.Size(source_at), last=first)
    if not outer:
        return _flat_loop(k, product(axes.sizes), c.Store(target, place, source[origin]))
    size, apart, source_apart = axes.sizes[-1], axes.step(_TARGET, last)[0], axes.step(_SOURCE, last)[0]
    if apart == source_apart == 1:
        body: c.Block = (c.Copy(target, place, source, origin, c.Size(size)),)
    else:
        to, come = c.Buffer("to", target.dtype, c.MemoryAccess.WRITE), c.Buffer("from", source.dtype)
        line = loops_around((c.Store(to, k * apart, come[k * source_apart]),), [k], [size])
        body = (c.Alias(to, target, place), c.Alias(come, source, origin), *line)
    is_cheap = apart == 1 and source_apart in (0, 1)
    line_ps = size * (dtype_info(target.dtype).itemsize * BYTE_PS if is_cheap else MOVE_PS)
    # Several threads share the first axis that has enough places, or else the longest one.
    wide = (number for number, count in enumerate(outer) if not isinstance(count, int) or count >= _ENOUGH_ITEMS)
    part = next(wide, None)
    if part is None:
        part = max(range(last), key=lambda number: int(str(outer[number])))
    round_ps = product([*outer[:part], *outer[part + 1 :]]) * line_ps
    return loops_around(body, axes.variables[:-1], outer, part=part, round_ps=round_ps)


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
    return (c.For(k, c.Size(0), c.Size(count), (store,), 1, c.LoopKind.PARALLEL, _GRAIN, element_ps),)


def loops_around(
    body: c.Block, indices: Sequence[c.Variable], sizes: Sequence[Dim], *, part: int | None = None, round_ps: Dim = 0
) -> c.Block:
    """Return loops of these sizes around a block, outermost first.

    Several threads may share the rounds of loop number ``part``, each of which takes so many estimated picoseconds.
    """
    for number, (index, size) in reversed(list(enumerate(zip(indices, sizes, strict=True)))):
        loop = c.For(index, c.Size(0), c.Size(size), body)
        body = (replace(loop, kind=c.LoopKind.PARALLEL, round_ps=round_ps) if number == part else loop,)
    return body


def offset_along(indices: Sequence[c.Expression], strides: Sequence[Dim], first: Dim = 0) -> c.Expression:
    """Return the offset of the element at indices, behind the offset of the first element."""
    offset: c.Expression = c.Size(first)
    for index, stride in zip(indices, strides, strict=True):
        offset = offset + index * stride
    return offset
