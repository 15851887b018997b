"""Loop nests over tensors that lie in memory with any strides."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from byoc_core.authoring import c
from byoc_core.authoring.layouts import compact_layout
from byoc_core.dims import Dim, product

__all__ = ["GRAIN", "Layout", "StridedNest", "index_term", "rows_apart", "spread"]

GRAIN = 64
"""Elements that stay with one thread where threads share a line: no two of them write to one cache line."""

Dims = tuple[Dim, ...]


class Layout(NamedTuple):
    """How a tensor is read along the axes of an iteration space: its sizes, 1 where it broadcasts, and its strides.

    A symbolic size that is not the space's own may turn out to be 1. Strides have no meaning where it broadcasts.
    """

    dims: Dims
    strides: Dims


def rows_apart(space: Dims) -> Layout:
    """Return a layout whose last axis is no walk with those before it: the place of a row is found anew for each."""
    strides = compact_layout(space).strides
    return Layout(space, (*(2 * stride for stride in strides[:-1]), *strides[-1:]))


def spread(values: Sequence[Dim], axes: Sequence[int], rank: int, fill: Dim) -> Dims:
    """Return what belongs to a tensor's axes at the axes of a space, and ``fill`` at the others."""
    found = dict(zip(axes, values, strict=True))
    return tuple(found.get(axis, fill) for axis in range(rank))


class StridedNest:
    """The loops that go along axes of a space, as few as the strides permit.

    Neighbouring axes become one loop where every tensor goes along both in steps of one length, or along neither.
    The axes that make a loop are its group; groups, sizes and variables are those of the loops, outermost first.

    Args:
        space: the sizes of the iteration space.
        layouts: for each tensor, under any key, how it is read.
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
            if above and all(_is_one_walk(space, layout, above[-1], axis) for layout in layouts.values()):
                above.append(axis)
            else:
                self.groups.append([axis])
        self.sizes: Dims = tuple(product(space[axis] for axis in group) for group in self.groups)
        names = [prefix] if len(self.groups) == 1 else [f"{prefix}{loop}" for loop in range(len(self.groups))]
        self.variables = tuple(map(c.Variable, names))
        self._space, self._layouts = tuple(space), dict(layouts)

    def indices(self) -> dict[int, c.Expression]:
        """Return the position along each axis that the loops go along."""
        found: dict[int, c.Expression] = {}
        for axes, variable in zip(self.groups, self.variables, strict=True):
            found.update(zip(axes, c.unravelled(variable, [self._space[axis] for axis in axes]), strict=True))
        return found

    def step(self, tensor: Hashable, loop: int) -> tuple[Dim, Dim | None]:
        """Return the distance by which one round of a loop moves a tensor's element, and on which size that depends.

        The second is the symbolic size that, where it turns out to be 1, makes the distance 0; else ``None``.
        """
        layout, axis = self._layouts[tensor], self.groups[loop][-1]
        dim = layout.dims[axis]
        if dim == 1:
            return 0, None
        return layout.strides[axis], None if dim == self._space[axis] else dim

    def position(
        self, tensor: Hashable, *, start: c.Expression | None = None, last: c.Expression | None = None
    ) -> c.Expression:
        """Return ``start`` and how far the loops move a tensor's element; ``last`` is the innermost loop's variable."""
        dims, strides = self._layouts[tensor]
        variables = self.variables if last is None else (*self.variables[:-1], last)
        along = zip((axes[-1] for axes in self.groups), variables, strict=False)
        terms = (index_term(variable, dims[axis], self._space[axis], strides[axis]) for axis, variable in along)
        return sum(terms, start or c.Size(0))


def _is_one_walk(space: Sequence[Dim], layout: Layout, outer: int, inner: int) -> bool:
    """Return whether a tensor goes along two neighbouring axes as along one."""
    dims, strides = layout
    if dims[outer] == 1 and dims[inner] == 1:
        return True
    whole = dims[outer] == space[outer] and dims[inner] == space[inner]
    return whole and strides[outer] == strides[inner] * space[inner]


def index_term(index: c.Expression, dim: Dim, size: Dim, stride: Dim) -> c.Expression:
    """Return what an index adds to an offset, for an axis of ``dim`` elements beside ``size`` of the result."""
    if dim == 1 or stride == 0:
        return c.Size(0)
    term = index * stride
    # A symbolic size that is not the result's own may turn out to be 1: then it broadcasts.
    return term if dim == size else c.Select(c.Size(dim).compare("==", 1), c.Size(0), term)
