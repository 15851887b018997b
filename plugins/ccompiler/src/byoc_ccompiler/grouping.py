"""Division of a function into kernels of one loop nest each.

Elementwise ops and reductions over a common iteration space share a kernel; elementwise ops following a convolution or
a matrix product are computed while the sums are still at hand. A value read only inside the kernel never reaches
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
"""Each reduction may need some kilobytes of the stack."""

_MAX_SINGLE_ROW = 1 << 14
"""Maximum elements of a tensor treated as one row: threads better share a larger tensor than keep it at hand."""


def form_groups(steps: Sequence[Step], families: Mapping[str, KernelFamily], *, fuse: bool = True) -> list[Group]:
    """Return the kernels in an order with every value written before another kernel reads the value.

    A step never joins a group before a group read by the step. The step joins the last of the read groups, else the
    latest group with the space of the step.

    Args:
        steps: in an order with every value made before all uses.
        families: the families of the ops.
        fuse: whether ops share kernels at all; the parts of an op always do.

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
        self._producers: dict[Value, int] = {}
        self._latest: dict[tuple[Dim, ...], int] = {}
        self._origin: Binding | None = None

    def add(self, step: Step) -> None:
        """Add a step to a suitable group, or to a new group."""
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
            # A shape other than the space: a step of the row level, with a single element per row.
            group.row_axes[step.result] = _level_axes(group, len(shape_of(step.result)))
        self._producers.update((result, index) for result in step.binding.results)
        # An anchored group takes only steps reading its results: the search by operands finds this group.
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
        # Without fusion, a step may join a group only directly behind another part of the same op.
        if not self._fuse and (step.origin is None or step.origin is not self._origin):
            return None
        # The last of the read groups, -1 for none: in an earlier group, the step would run before an operand is made.
        earliest = max((self._producers.get(operand, -1) for operand in step.operands), default=-1)
        if earliest >= 0 and self._takes(self.groups[earliest], step):
            return earliest
        space = shape_of(step.operands[0] if step.op in REDUCTIONS else step.result)
        index = self._latest.get(space, -1)
        if index <= earliest or not self._takes(self.groups[index], step):
            return None
        group = self.groups[index]
        if is_pointwise(step) and group.reduced is None:
            return index
        # With reductions in the step or the group, only a commonly read value makes a common kernel worthwhile.
        return index if any(operand in group.reads for operand in step.operands) else None

    def _takes(self, group: Group, step: Step) -> bool:
        if group.space is None or len(group.steps) >= _MAX_STEPS:
            return False
        # Without fusion, a kernel has parts of one op only.
        if not self._fuse and group.steps[-1].origin is not step.origin:
            return False
        if step.op in REDUCTIONS:
            return _takes_reduction(group, step)
        shape = shape_of(step.result)
        if shape == group.space:
            # An anchor takes only steps on its own sums, not unrelated steps of the same shape.
            related = not group.anchored or any(operand in group.results for operand in step.operands)
            return (
                related
                and _reads_current_row(group, step, range(len(shape)))
                and not _reads_large_reduction(group, step)
            )
        if group.reduced is None or not any(operand in group.row_axes for operand in step.operands):
            return False
        # A value of the full space has many elements per row; a step of the row level runs once per row.
        if any(operand in group.results and operand not in group.row_axes for operand in step.operands):
            return False
        axes = _level_axes(group, len(shape))
        # The result of a reduction has size 1 along the reduced axes, or lacks these axes.
        at_row_level = shape == tuple(
            1 if axis in group.reduced and len(shape) == len(group.space) else group.space[axis] for axis in axes
        )
        return at_row_level and _reads_current_row(group, step, axes)


def _takes_reduction(group: Group, step: Step) -> bool:
    (operand,) = step.operands
    axes = frozenset(reduced_axes(step))
    if group.anchored or not axes or shape_of(operand) != group.space or operand in group.row_axes:
        return False
    if sum(other.op in REDUCTIONS for other in group.steps) >= _MAX_REDUCTIONS:
        return False
    # All reductions of a kernel have the same rows, and therefore the same reduced axes.
    return group.reduced is None or group.reduced == axes


def _level_axes(group: Group, rank: int) -> tuple[int, ...]:
    """Return the axes of the space for the axes of a row's value: all axes, or the axes not reduced."""
    space, reduced = group.space or (), group.reduced or frozenset()
    every = tuple(range(len(space)))
    return every if rank == len(space) else tuple(axis for axis in every if axis not in reduced)


def _reads_current_row(group: Group, step: Step, axes: Sequence[int]) -> bool:
    """Return whether a step reads values of the row being computed; broadcasting may place the values elsewhere."""
    return all(
        group.row_axes[operand] == tuple(axes[own] for own in along)
        for operand, along in zip(step.operands, operand_axes(step), strict=True)
        if operand in group.row_axes
    )


def _reads_large_reduction(group: Group, step: Step) -> bool:
    """Return whether a step reads, at each element, the result of reducing a whole large tensor."""
    space, reduced = group.space or (), group.reduced or frozenset()
    if not any(operand in group.row_axes for operand in step.operands):
        return False
    size = product(space)
    is_small = isinstance(size, int) and size <= _MAX_SINGLE_ROW
    # If all other axes have size 1, the tensor is a single row, and threads have no rows to share.
    return not is_small and all(size == 1 for axis, size in enumerate(space) if axis not in reduced)
