"""Copies of elements from one place to another by loops over axes with strides: what most movements come down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from byoc_core.authoring import c
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernels.strided_nest import GRAIN, Layout, StridedNest

__all__ = ["MOVE_PS", "bytes_ps", "copy_block", "copy_run", "fetch", "fetch_line", "loops_around", "offset_along"]

MOVE_PS = 500
"""Estimated picoseconds to move one element by itself."""

_BYTE_PS = 30
"""Estimated picoseconds to move one byte among many that lie side by side."""

_ENOUGH_ITEMS = 16
_TARGET, _SOURCE = "target", "source"
_Sizes = Sequence[Dim]

_FETCH = """
/* Fetches lines of memory so many bytes behind a pointer, perhaps behind the end of what it points into. */
static inline void {name}(const void *x, int64_t offset, int64_t lines) {
  for (int64_t line = 0; line < lines; ++line) {
    __builtin_prefetch((const char *)((uintptr_t)x + (uintptr_t)offset + 64 * (uintptr_t)line));
  }
}
"""

_FETCH_LINE = """
/* Fetches a line of memory so many bytes behind a pointer into a cache that is not the nearest one. */
static inline void {name}(const void *x, int64_t offset) {
  __builtin_prefetch((const char *)((uintptr_t)x + (uintptr_t)offset), 0, 2);
}
"""


def offset_along(indices: Sequence[c.Expression], strides: Sequence[Dim], first: Dim = 0) -> c.Expression:
    """Return the offset of the element at indices, behind the offset of the first element."""
    return sum((index * stride for index, stride in zip(indices, strides, strict=True)), c.Size(first))


def loops_around(
    body: c.Block, indices: Sequence[c.Variable], sizes: _Sizes, *, part: int | None = None, round_ps: Dim = 0
) -> c.Block:
    """Return loops of these sizes around a block, outermost first.

    Several threads may share the rounds of loop number ``part``, each of which takes so many estimated picoseconds.
    """
    for number, (index, size) in reversed(list(enumerate(zip(indices, sizes, strict=True)))):
        loop = c.For(index, c.Size(0), c.Size(size), body)
        body = (replace(loop, kind=c.LoopKind.PARALLEL, round_ps=round_ps) if number == part else loop,)
    return body


def bytes_ps(buffer: c.Buffer, count: Dim) -> Dim:
    """Return estimated picoseconds to move so many elements of a buffer that lie side by side."""
    return count * (dtype_info(buffer.dtype).itemsize * _BYTE_PS)


def copy_block(
    target: c.Buffer, source: c.Buffer, sizes: _Sizes, to: _Sizes, come: _Sizes, *, at: Dim = 0, source_at: Dim = 0
) -> c.Block:
    """Return the statements that copy elements, none of which is written twice; what lies side by side goes as a whole.

    ``to`` are the strides in the target, ``come`` those in the source: 0 where one element is read again, negative
    where an axis is read backwards. ``at`` and ``source_at`` are the offsets of the first elements.
    """
    layouts = {_TARGET: Layout(tuple(sizes), tuple(to)), _SOURCE: Layout(tuple(sizes), tuple(come))}
    axes = StridedNest(sizes, layouts, range(len(sizes)))
    k, last, outer = c.Variable("k"), len(axes.sizes) - 1, axes.sizes[:-1]
    first = c.Size(0) if outer else k
    place = axes.position(_TARGET, start=c.Size(at), last=first)
    origin = axes.position(_SOURCE, start=c.Size(source_at), last=first)
    if not outer:
        size, stores = c.Size(product(axes.sizes)), (c.Store(target, place, source[origin]),)
        return (c.For(k, c.Size(0), size, stores, 1, c.LoopKind.PARALLEL, GRAIN, bytes_ps(target, 1)),)
    count, apart, source_apart = axes.sizes[-1], axes.step(_TARGET, last)[0], axes.step(_SOURCE, last)[0]
    if apart == source_apart == 1:
        body: c.Block = (c.Copy(target, place, source, origin, c.Size(count)),)
    else:
        to_line, line = c.Buffer("to", target.dtype, c.MemoryAccess.WRITE), c.Buffer("from", source.dtype)
        moves = loops_around((c.Store(to_line, k * apart, line[k * source_apart]),), [k], [count])
        body = (c.Alias(to_line, target, place), c.Alias(line, source, origin), *moves)
    line_ps = bytes_ps(target, count) if apart == 1 and source_apart in (0, 1) else count * MOVE_PS
    # Several threads share the first axis that has enough places, or else the longest one.
    wide = (number for number, size in enumerate(outer) if not isinstance(size, int) or size >= _ENOUGH_ITEMS)
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


def _evaluate(x: object, offset: int, lines: int = 1) -> None:
    """Do nothing: fetching changes no value."""


def fetch(buffer: c.Buffer, offset: c.Expression, nbytes: int) -> c.Evaluate:
    """Return the statement that fetches so many bytes of a buffer, from an element on that may lie behind its end."""
    return _fetched(c.Callee("vec_fetch", _evaluate, definition=_FETCH), buffer, offset, c.Size(nbytes // 64))


def fetch_line(buffer: c.Buffer, offset: c.Expression) -> c.Evaluate:
    """Return the statement that fetches an element that may lie behind a buffer's end, for some time later."""
    return _fetched(c.Callee("vec_fetch_line", _evaluate, definition=_FETCH_LINE), buffer, offset)


def _fetched(callee: c.Callee, buffer: c.Buffer, offset: c.Expression, *lines: c.Expression) -> c.Evaluate:
    place = offset * dtype_info(buffer.dtype).itemsize
    return c.Evaluate(c.Call(callee, (c.Address(buffer, c.Size(0)), place, *lines)))
