"""Loops over tensors with any strides, and copies by these loops: the basis of most movements."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from byoc_core.authoring import c
from byoc_core.authoring.layouts import compact_layout
from byoc_core.dims import Dim, product
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.portable import FETCHES

__all__ = [
    "Layout",
    "StridedNest",
    "copy_nest",
    "copy_run",
    "expand_to_rank",
    "fetch",
    "fetch_line",
    "index_term",
    "loops_around",
    "memory_order",
    "offset_along",
    "rows_apart",
    "share_nest",
    "share_outermost",
]

_GRAIN = 64
"""Elements staying with a thread if threads share a line: no two threads write to the same cache line."""

_ENOUGH_ITEMS = 16
"""From this many indices on, an axis is as good for sharing among threads as any longer axis."""

_TARGET, _SOURCE = "target", "source"
_Dims = tuple[Dim, ...]
_Sizes = Sequence[Dim]
_Rounds = Sequence[Dim | c.Expression]

_FETCH = """
/* Prefetch cache lines `offset` bytes behind a pointer, possibly behind the end of the buffer. */
static inline void {name}(const void *x, int64_t offset, int64_t lines) {
  for (int64_t line = 0; line < lines; ++line) {
    __builtin_prefetch((const char *)((uintptr_t)x + (uintptr_t)offset + 64 * (uintptr_t)line));
  }
}
"""

_FETCH_LINE = """
/* Prefetch a cache line `offset` bytes behind a pointer, possibly behind the end of the buffer. */
static inline void {name}(const void *x, int64_t offset) {
  __builtin_prefetch((const char *)((uintptr_t)x + (uintptr_t)offset));
}
"""


class Layout(NamedTuple):
    """The access to a tensor along the axes of an iteration space: the sizes, 1 for a broadcast axis, and the strides.

    A symbolic size different from the size of the space may prove to be 1 in a call. The stride of a broadcast axis has
    no meaning.
    """

    dims: _Dims
    strides: _Dims


def memory_order(strides: Sequence[Dim]) -> list[int]:
    """Return a tensor's axes in memory order, from the largest stride; in axis order if a stride is unknown."""
    known_strides = [stride for stride in strides if isinstance(stride, int)]
    axes = range(len(strides))
    return sorted(axes, key=lambda axis: -known_strides[axis]) if len(known_strides) == len(strides) else list(axes)


def rows_apart(space: _Dims) -> Layout:
    """Return a layout with the last axis never merged with the earlier axes: each row is located anew."""
    strides = compact_layout(space).strides
    return Layout(space, (*(2 * stride for stride in strides[:-1]), *strides[-1:]))


def expand_to_rank(values: Sequence[Dim], axes: Sequence[int], rank: int, fill: Dim) -> _Dims:
    """Return the values of a tensor's axes at the axes of a space, and ``fill`` at the others."""
    found = dict(zip(axes, values, strict=True))
    return tuple(found.get(axis, fill) for axis in range(rank))


class StridedNest:
    """The axes of a nest along axes of a space, as few as permitted by the strides.

    Neighbouring axes are merged if every tensor goes along both in steps of equal length, or along neither. The axes of
    the space merged into an axis of the nest are its group; groups, sizes and variables are in the nest's order.

    Args:
        space: the sizes of the iteration space.
        layouts: the layout of each tensor, under any key.
        axes: the axes, from the outermost loop to the innermost.
        prefix: the name of the loop variables.
    """

    def __init__(
        self, space: Sequence[Dim], layouts: Mapping[Any, Layout], axes: Iterable[int], *, prefix: str = "i"
    ) -> None:
        self.groups: list[list[int]] = []
        for axis in axes:
            if space[axis] == 1 and all(layout.dims[axis] == 1 for layout in layouts.values()):
                continue
            above = self.groups[-1] if self.groups else []
            if above and all(_is_mergeable(space, layout, above[-1], axis) for layout in layouts.values()):
                above.append(axis)
            else:
                self.groups.append([axis])
        self.sizes: _Dims = tuple(product(space[axis] for axis in group) for group in self.groups)
        names = [prefix] if len(self.groups) == 1 else [f"{prefix}{loop}" for loop in range(len(self.groups))]
        self.variables = tuple(map(c.Variable, names))
        self.axes = tuple(map(c.Axis, self.variables, self.sizes))
        self._space, self._layouts = tuple(space), dict(layouts)

    def indices(self) -> dict[int, c.Expression]:
        """Return the position along each axis traversed by the loops."""
        found: dict[int, c.Expression] = {}
        for axes, variable in zip(self.groups, self.variables, strict=True):
            found.update(zip(axes, c.unravelled(variable, [self._space[axis] for axis in axes]), strict=True))
        return found

    def step(self, tensor: Hashable, loop: int) -> tuple[Dim, Dim | None]:
        """Return the distance of a tensor's element per round of a loop, and the symbolic size deciding the distance.

        The distance is 0 if the symbolic size proves to be 1; the second result is ``None`` without such a size.
        """
        layout, axis = self._layouts[tensor], self.groups[loop][-1]
        dim = layout.dims[axis]
        if dim == 1:
            return 0, None
        return layout.strides[axis], None if dim == self._space[axis] else dim

    def position(
        self, tensor: Hashable, *, start: c.Expression | None = None, last: c.Expression | None = None
    ) -> c.Expression:
        """Return ``start`` plus the offset of a tensor's element; ``last`` replaces the innermost loop's variable."""
        dims, strides = self._layouts[tensor]
        variables = self.variables if last is None else (*self.variables[:-1], last)
        along = zip((axes[-1] for axes in self.groups), variables, strict=False)
        terms = (index_term(variable, dims[axis], self._space[axis], strides[axis]) for axis, variable in along)
        return sum(terms, start or c.Size(0))


def _is_mergeable(space: Sequence[Dim], layout: Layout, outer: int, inner: int) -> bool:
    """Return whether a tensor goes along two neighbouring axes as along a single axis."""
    dims, strides = layout
    if dims[outer] == 1 and dims[inner] == 1:
        return True
    is_full = dims[outer] == space[outer] and dims[inner] == space[inner]
    return is_full and strides[outer] == strides[inner] * space[inner]


def index_term(index: c.Expression, dim: Dim, size: Dim, stride: Dim) -> c.Expression:
    """Return the share of an index in an offset, for an axis of ``dim`` elements beside ``size`` of the result."""
    if dim == 1 or stride == 0:
        return c.Size(0)
    term = index * stride
    # A symbolic size different from the result's may prove to be 1: then the axis broadcasts.
    return term if dim == size else c.Select(c.Size(dim).compare("==", 1), c.Size(0), term)


def offset_along(indices: Sequence[c.Expression], strides: Sequence[Dim], first: Dim = 0) -> c.Expression:
    """Return the offset of the element at indices, behind the offset of the first element."""
    return sum((index * stride for index, stride in zip(indices, strides, strict=True)), c.Size(first))


def loops_around(body: c.Block, indices: Sequence[c.Variable], sizes: _Rounds, *, part: int | None = None) -> c.Block:
    """Return loops of these sizes around a block, outermost first.

    Several threads may share the rounds of loop number ``part``.
    """
    for number, (index, size) in reversed(list(enumerate(zip(indices, sizes, strict=True)))):
        loop = c.For(index, c.Size(0), size if isinstance(size, c.Expression) else c.Size(size), body)
        body = (replace(loop, kind=c.LoopKind.PARALLEL) if number == part else loop,)
    return body


def share_outermost(axes: Sequence[c.Axis], body: c.Block = ()) -> c.Schedule:
    """Return the schedule sharing the outermost axis of a nest among threads; elements of a single axis by grains."""
    is_element = len(axes) == 1 and all(isinstance(item, c.Let | c.Store) for item in body)
    return c.Schedule(parallel=tuple(axis.name for axis in axes[:1]), grain=_GRAIN if is_element else 1)


def share_nest(kernel: Kernel, axes: Sequence[c.Axis], body: c.Block) -> c.Block:
    """Return the statements of a nest with the schedule of :func:`share_outermost`."""
    return kernel.lower(c.Nest(tuple(axes), body), share_outermost(axes, body))


def copy_nest(
    target: c.Buffer,
    source: c.Buffer,
    sizes: _Sizes,
    target_strides: _Sizes,
    source_strides: _Sizes,
    *,
    target_offset: Dim = 0,
    source_offset: Dim = 0,
) -> tuple[c.Nest, c.Schedule]:
    """Return the nest copying elements, each written once, and the schedule: contiguous elements as a whole.

    A source stride of 0 reads an element again, a negative source stride reads an axis backwards. ``target_offset`` and
    ``source_offset`` are the offsets of the first elements.
    """
    layouts = {
        _TARGET: Layout(tuple(sizes), tuple(target_strides)),
        _SOURCE: Layout(tuple(sizes), tuple(source_strides)),
    }
    nest = StridedNest(sizes, layouts, range(len(sizes)))
    schedule = _copy_schedule(nest, target)
    is_by_element = schedule.vector is not None or len(nest.axes) < 2
    last = None if is_by_element else c.Size(0)
    target_index = nest.position(_TARGET, start=c.Size(target_offset), last=last)
    source_index = nest.position(_SOURCE, start=c.Size(source_offset), last=last)
    if is_by_element:
        return c.Nest(nest.axes, (c.Store(target, target_index, source[source_index]),)), schedule
    # Pointers to a line: for symbolic sizes, C compilers do not see the loop-invariant address of the line.
    (*outer, line), k = nest.axes, c.Variable("k")
    to_line, from_line = c.Buffer("to", target.dtype, c.MemoryAccess.WRITE), c.Buffer("from", source.dtype)
    target_step, source_step = (nest.step(tensor, len(outer))[0] for tensor in (_TARGET, _SOURCE))
    moves = loops_around((c.Store(to_line, k * target_step, from_line[k * source_step]),), [k], [line.size])
    body = (c.Alias(to_line, target, target_index), c.Alias(from_line, source, source_index), *moves)
    return c.Nest(tuple(outer), body), schedule


def _copy_schedule(nest: StridedNest, target: c.Buffer) -> c.Schedule:
    """Return the schedule of copying: threads share the first outer axis with enough indices, or else the longest."""
    if len(nest.axes) < 2:
        return share_outermost(nest.axes)
    *outer, line = nest.axes
    target_step, source_step = (nest.step(tensor, len(outer))[0] for tensor in (_TARGET, _SOURCE))
    shared = max(outer, key=lambda axis: min(axis.size, _ENOUGH_ITEMS) if isinstance(axis.size, int) else _ENOUGH_ITEMS)
    vector = line.name if target_step == source_step == 1 else None
    return c.Schedule(parallel=(shared.name,), vector=vector)


def copy_run(
    target: c.Buffer, target_offset: c.Expression, source: c.Buffer, source_offset: c.Expression, count: Dim
) -> c.Block:
    """Return the statement copying ``count`` contiguous elements, from and to the offsets of the first."""
    if count == 1:
        return (c.Store(target, target_offset, source[source_offset]),)
    return (c.Copy(target, target_offset, source, source_offset, c.Size(count)),)


def _evaluate(x: object, offset: int, lines: int = 1) -> None:
    """Do nothing: prefetching changes no value."""


def fetch(buffer: c.Buffer, offset: c.Expression, nbytes: int) -> c.Evaluate:
    """Return the statement prefetching bytes of a buffer, from an element possibly behind the end of the buffer."""
    return _fetched(c.Callee(FETCHES[0], _evaluate, definition=_FETCH), buffer, offset, c.Size(nbytes // 64))


def fetch_line(buffer: c.Buffer, offset: c.Expression) -> c.Evaluate:
    """Return the statement prefetching an element, possibly behind a buffer's end, for a later use."""
    return _fetched(c.Callee(FETCHES[1], _evaluate, definition=_FETCH_LINE), buffer, offset)


def _fetched(callee: c.Callee, buffer: c.Buffer, offset: c.Expression, *lines: c.Expression) -> c.Evaluate:
    byte_offset = offset * dtype_info(buffer.dtype).itemsize
    return c.Evaluate(c.Call(callee, (c.Address(buffer, c.Size(0)), byte_offset, *lines)))
