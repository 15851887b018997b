"""Loop nests over broadcast tensors as C text, with the fewest loops permitted by the shapes.

For the elementwise kernels of the plain form of :class:`CSourceCodegen`. Kernels as data have nests and schedules of
their own: see :mod:`byoc_core.authoring.c.nest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.authoring.csource_parallel import END_ITEM, FIRST_ITEM
from byoc_core.authoring.csource_types import c_dim
from byoc_core.dims import Dim, product

__all__ = ["LoopNest", "align", "offset_expression"]

Dims = tuple[Dim, ...]


def align(shape: Sequence[Dim], rank: int) -> Dims:
    """Return a shape with leading axes of size 1, following numpy's broadcast to ``rank`` axes."""
    return (1,) * (rank - len(shape)) + tuple(shape)


def offset_expression(dims: Sequence[Dim], space: Sequence[Dim], indices: Sequence[str]) -> str:
    """Return the C expression of an element's offset in a compact tensor, broadcast to an iteration space.

    Args:
        dims: the tensor's size on each axis of the space (1 if broadcast).
        space: the sizes of the iteration space.
        indices: C expressions of the position on each axis of the space.
    """
    terms = []
    for axis, (dim, size, index) in enumerate(zip(dims, space, indices, strict=True)):
        stride = product(dims[axis + 1 :])
        if dim == 1 or stride == 0:
            continue
        term = index if stride == 1 else f"{index} * {c_dim(stride)}"
        # A symbolic size different from the space's size may be 1 at run time: then the tensor broadcasts.
        terms.append(term if dim == size else f"({c_dim(dim)} == 1 ? 0 : {term})")
    return " + ".join(terms) or "0"


class LoopNest:
    """The loops over every element of a space in row-major order.

    Neighbouring axes become a single loop if every tensor treats both axes alike. Equal shapes give a single loop.

    Args:
        space: the sizes of the iteration space.
        tensors: for each tensor the size on each axis of the space (see :func:`align`).
        prefix: prefix of the loop variables.
    """

    def __init__(self, space: Sequence[Dim], tensors: Mapping[str, Sequence[Dim]], *, prefix: str = "i") -> None:
        groups: list[list[int]] = []
        for axis, size in enumerate(space):
            if size == 1 and all(dims[axis] == 1 for dims in tensors.values()):
                continue
            if groups and self._alike(space, tensors, groups[-1][-1], axis):
                groups[-1].append(axis)
            else:
                groups.append([axis])
        self.sizes: Dims = tuple(product(space[axis] for axis in group) for group in groups)
        self.indices: tuple[str, ...] = tuple(
            prefix if len(groups) == 1 else f"{prefix}{k}" for k in range(len(groups))
        )
        self._dims = {
            name: tuple(product(dims[axis] for axis in group) for group in groups) for name, dims in tensors.items()
        }

    @staticmethod
    def _alike(space: Sequence[Dim], tensors: Mapping[str, Sequence[Dim]], left: int, right: int) -> bool:
        for dims in tensors.values():
            kinds = []
            for axis in (left, right):
                full, single = dims[axis] == space[axis], dims[axis] == 1
                kinds.append(None if full and single else "full" if full else "single" if single else "unknown")
            if "unknown" in kinds or (None not in kinds and kinds[0] != kinds[1]):
                return False
            if None in kinds and kinds[0] != kinds[1]:
                return False
        return True

    def offset(self, name: str) -> str:
        """Return the C expression of a tensor's element offset at the current position."""
        return offset_expression(self._dims[name], self.sizes, self.indices)

    def wrap(self, body: Sequence[str], *, indent: str = "  ", part: int | None = None) -> list[str]:
        """Return the loops around the lines of a body.

        Args:
            body: the innermost lines.
            indent: before every line.
            part: a loop running only from ``first_item`` to ``end_item``; see :class:`ParallelLoop`.
        """
        lines = []
        depth = indent
        for axis, (size, index) in enumerate(zip(self.sizes, self.indices, strict=True)):
            first, end = (FIRST_ITEM, END_ITEM) if axis == part else ("0", c_dim(size))
            lines.append(f"{depth}for (int64_t {index} = {first}; {index} < {end}; ++{index}) {{")
            depth += "  "
        lines += [f"{depth}{line}" for line in body]
        for level in range(len(self.sizes), 0, -1):
            lines.append(f"{indent}{'  ' * (level - 1)}}}")
        return lines
