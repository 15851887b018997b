"""Loop nests over tensors that lie in memory with any strides."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from byoc_core.authoring import c
from byoc_core.authoring.layouts import compact_layout
from byoc_core.dims import Dim, product

__all__ = ["Layout", "StridedNest", "memory_order", "rows_apart", "spread"]

Dims = tuple[Dim, ...]

_ZERO = c.Size(0)


class Layout(NamedTuple):
    """How a tensor is read along the axes of an iteration space.

    Attributes:
        dims: its sizes: 1 where it broadcasts. A symbolic size that is not the space's own may turn out to be 1.
        strides: its distances from one position to the next, in elements; of no meaning where it broadcasts.
    """

    dims: Dims
    strides: Dims


def memory_order(strides: Sequence[Dim]) -> list[int]:
    """Gives a tensor's axes as its memory has them, from the largest stride; as they stand where one is not known."""
    known = [stride for stride in strides if isinstance(stride, int)]
    rank = len(strides)
    return sorted(range(rank), key=lambda axis: -known[axis]) if len(known) == rank else list(range(rank))


def rows_apart(space: Dims) -> Layout:
    """Return a layout whose last axis is no walk with those before it: the place of a row is found anew for each."""
    strides = compact_layout(space).strides
    return Layout(space, (*(2 * stride for stride in strides[:-1]), *strides[-1:]))


def spread(values: Sequence[Dim], axes: Sequence[int], rank: int, fill: Dim) -> Dims:
    """Gives what belongs to a tensor's axes at the axes of a space, and ``fill`` at the others."""
    found = [fill] * rank
    for value, axis in zip(values, axes, strict=True):
        found[axis] = value
    return tuple(found)


class StridedNest:
    """The loops that go along axes of a space, as few as the strides permit.

    Neighbouring axes become one loop where every tensor goes along both in steps of one length, or along neither.

    Args:
        space: the sizes of the iteration space.
        layouts: for each tensor, under any key, how it is read.
        axes: the axes, from the outermost loop to the innermost.
        prefix: what the loop variables are called.

    Attributes:
        groups: the axes of every loop, outermost first.
        sizes: of the loops, outermost first.
        variables: the variables of the loops, outermost first.
    """

    def __init__(
        self, space: Sequence[Dim], layouts: Mapping[Any, Layout], axes: Iterable[int], *, prefix: str = "i"
    ) -> None:
        groups: list[list[int]] = []
        for axis in axes:
            size = space[axis]
            if size == 1 and all(layout.dims[axis] == 1 for layout in layouts.values()):
                continue
            if groups and all(_is_one_walk(space, layout, groups[-1][-1], axis) for layout in layouts.values()):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        self.groups = groups
        self.sizes: Dims = tuple(product(space[axis] for axis in group) for group in groups)
        self.variables = tuple(c.Variable(prefix if len(groups) == 1 else f"{prefix}{k}") for k in range(len(groups)))
        self._last_axes = tuple(group[-1] for group in groups)
        self._space = tuple(space)
        self._layouts = dict(layouts)

    def indices(self) -> dict[int, c.Expression]:
        """Return the position along each axis that the loops go along."""
        found: dict[int, c.Expression] = {}
        for axes, variable in zip(self.groups, self.variables, strict=True):
            found.update(zip(axes, c.unravelled(variable, [self._space[axis] for axis in axes]), strict=True))
        return found

    def step(self, tensor: Hashable, loop: int) -> tuple[Dim, Dim | None]:
        """Gives the distance by which one round of a loop moves a tensor's element, and on which size that depends.

        The second is the symbolic size that, where it turns out to be 1, makes the distance 0; else ``None``.
        """
        layout, axis = self._layouts[tensor], self._last_axes[loop]
        dim = layout.dims[axis]
        if dim == 1:
            return 0, None
        return layout.strides[axis], None if dim == self._space[axis] else dim

    def position(
        self, tensor: Hashable, *, start: c.Expression = _ZERO, last: c.Expression | None = None
    ) -> c.Expression:
        """Return how far the loops move a tensor's element.

        Args:
            tensor: its key.
            start: what the distance is added to.
            last: what stands for the variable of the innermost loop.
        """
        total = start
        for loop, variable in enumerate(self.variables):
            stride, unless_one = self.step(tensor, loop)
            is_replaced = last is not None and loop == len(self.variables) - 1
            term = (last if last is not None and is_replaced else variable) * stride
            # A symbolic size that is not the space's own may turn out to be 1: then it broadcasts.
            total = total + (
                term if unless_one is None else c.Select(c.Size(unless_one).compare("==", 1), c.Size(0), term)
            )
        return total

    def loops(
        self, body: c.Block, kinds: Mapping[int, c.LoopKind], *, grain: Dim = 1, round_ps: Dim | None = None
    ) -> c.Block:
        """Return the loops around a block.

        Args:
            body: the block.
            kinds: the kinds of the loops that are not serial, by number.
            grain: of the parallel loop: parts begin at multiples of so many rounds.
            round_ps: estimated picoseconds of a round of the parallel loop.
        """
        for number, (variable, size) in reversed(list(enumerate(zip(self.variables, self.sizes, strict=True)))):
            loop = c.For(variable, c.Size(0), c.Size(size), body, kind=kinds.get(number, c.LoopKind.SERIAL))
            body = (replace(loop, grain=grain, round_ps=round_ps) if loop.kind is c.LoopKind.PARALLEL else loop,)
        return body


def _is_one_walk(space: Sequence[Dim], layout: Layout, outer: int, inner: int) -> bool:
    """Tells whether a tensor goes along two neighbouring axes as along one."""
    dims, strides = layout
    if dims[outer] == 1 and dims[inner] == 1:
        return True
    whole = dims[outer] == space[outer] and dims[inner] == space[inner]
    return whole and strides[outer] == strides[inner] * space[inner]
