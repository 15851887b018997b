"""Cuts a function into kernels: what is computed in one loop nest.

Elementwise ops and reductions over one iteration space share a kernel; elementwise ops that follow a convolution or a
matrix product are computed while its sums are still at hand. A value that only its own kernel reads never reaches
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.dims import Dim, product
from byoc_core.ir import Binding, Value

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Group
from byoc_ccompiler.kernels.pointwise import is_pointwise, operand_axes
from byoc_ccompiler.kernels.row_reducers import REDUCTIONS, reduced_axes
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["form_groups"]

_MAX_STEPS = 64

_MAX_REDUCTIONS = 4
"""Each may need some kilobytes of the stack."""

_MAX_SINGLE_ROW = 1 << 14
"""Elements up to which all of a tensor is one row: a larger one is better shared by threads than kept at hand."""


def form_groups(steps: Sequence[Step], families: Mapping[str, KernelFamily], *, fuse: bool = True) -> list[Group]:
    """Gives the kernels in an order in which every value is written before another kernel reads it.

    A step joins a group that is not before any group it reads from: the last of those, else the latest group of its
    space.

    Args:
        steps: in an order in which every value is made before it is read.
        families: those of the ops.
        fuse: whether ops share kernels at all; the parts of one op always do.

    Cost: O(operands).
    """
    former = _Former(families, fuse=fuse)
    for step in steps:
        former.add(step)
    return former.groups


class _Former:
    """The groups formed so far."""

    def __init__(self, families: Mapping[str, KernelFamily], *, fuse: bool) -> None:
        self.groups: list[Group] = []
        self._families = families
        self._fuse = fuse
        self._made_by: dict[Value, int] = {}
        self._latest: dict[tuple[Dim, ...], int] = {}
        self._origin: Binding | None = None

    def add(self, step: Step) -> None:
        """Puts a step into a group, a new one where none takes it."""
        index = self._find(step)
        if index is None:
            index = len(self.groups)
            self.groups.append(self._new_group(step))
        group = self.groups[index]
        group.steps.append(step)
        group.results.update(step.binding.results)
        group.reads.update(step.operands)
        if step.op in REDUCTIONS:
            self._add_reduction(group, step)
        elif group.reduced is not None and shape_of(step.result) != group.space:
            group.row_axes[step.result] = _level_axes(group, len(shape_of(step.result)))
        self._made_by.update((result, index) for result in step.binding.results)
        if group.space is not None and not group.anchored:
            self._latest[group.space] = max(index, self._latest.get(group.space, 0))
        self._origin = step.origin

    def _new_group(self, step: Step) -> Group:
        if step.op in REDUCTIONS:
            return Group([], shape_of(step.operands[0]))
        anchored = self._families[step.op].takes_epilogue
        return Group([], shape_of(step.result) if is_pointwise(step) or anchored else None, anchored)

    def _add_reduction(self, group: Group, step: Step) -> None:
        group.reduced = frozenset(reduced_axes(step))
        group.row_axes[step.result] = _level_axes(group, len(shape_of(step.result)))

    def _find(self, step: Step) -> int | None:
        if not is_pointwise(step) and step.op not in REDUCTIONS:
            return None
        if not self._fuse and (step.origin is None or step.origin is not self._origin):
            return None
        earliest = max((self._made_by.get(operand, -1) for operand in step.operands), default=-1)
        if earliest >= 0 and self._takes(self.groups[earliest], step):
            return earliest
        space = shape_of(step.operands[0] if step.op in REDUCTIONS else step.result)
        index = self._latest.get(space, -1)
        if index <= earliest or not self._takes(self.groups[index], step):
            return None
        group = self.groups[index]
        if is_pointwise(step) and group.reduced is None:
            return index
        return index if any(operand in group.reads for operand in step.operands) else None

    def _takes(self, group: Group, step: Step) -> bool:
        if group.space is None or len(group.steps) >= _MAX_STEPS:
            return False
        if step.op in REDUCTIONS:
            return _takes_reduction(group, step)
        shape = shape_of(step.result)
        if shape == group.space:
            # An anchor computes what is made of its own sums, not whatever happens to have the same shape.
            related = not group.anchored or any(operand in group.results for operand in step.operands)
            return (
                related
                and _reads_rows_rightly(group, step, range(len(shape)))
                and not _reads_whole_reduction(group, step)
            )
        if group.reduced is None or not any(operand in group.row_axes for operand in step.operands):
            return False
        if any(operand in group.results and operand not in group.row_axes for operand in step.operands):
            return False
        axes = _level_axes(group, len(shape))
        at_row_level = shape == tuple(
            1 if axis in group.reduced and len(shape) == len(group.space) else group.space[axis] for axis in axes
        )
        return at_row_level and _reads_rows_rightly(group, step, axes)


def _takes_reduction(group: Group, step: Step) -> bool:
    (operand,) = step.operands
    axes = frozenset(reduced_axes(step))
    if group.anchored or not axes or shape_of(operand) != group.space or operand in group.row_axes:
        return False
    if sum(other.op in REDUCTIONS for other in group.steps) >= _MAX_REDUCTIONS:
        return False
    return group.reduced is None or group.reduced == axes


def _level_axes(group: Group, rank: int) -> tuple[int, ...]:
    """Gives the axes of the space that those of a row's value lie along: all, or those that are not reduced."""
    space, reduced = group.space or (), group.reduced or frozenset()
    every = tuple(range(len(space)))
    return every if rank == len(space) else tuple(axis for axis in every if axis not in reduced)


def _reads_rows_rightly(group: Group, step: Step, axes: Sequence[int]) -> bool:
    """Tells whether a step reads a row's values at the row that it computes; broadcasting may place them elsewhere."""
    if any(operand in group.row_axes for operand in step.operands) and len(axes) != len(shape_of(step.result)):
        return False
    return all(
        group.row_axes[operand] == tuple(axes[own] for own in along)
        for operand, along in zip(step.operands, operand_axes(step), strict=True)
        if operand in group.row_axes
    )


def _reads_whole_reduction(group: Group, step: Step) -> bool:
    """Tells whether a step wants the result of a reduction of a whole large tensor at each of its elements."""
    space, reduced = group.space or (), group.reduced or frozenset()
    if not any(operand in group.row_axes for operand in step.operands):
        return False
    size = product(space)
    is_small = isinstance(size, int) and size <= _MAX_SINGLE_ROW
    return not is_small and all(size == 1 for axis, size in enumerate(space) if axis not in reduced)
