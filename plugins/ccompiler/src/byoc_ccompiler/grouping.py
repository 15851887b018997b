"""Cuts a function into kernels: what is computed in one loop nest.

Elementwise ops over one iteration space share a loop; ops that follow a convolution or a matrix product are computed
while its sums are still at hand. A value that only its own kernel reads never reaches memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from byoc_core.ir import Value

from byoc_ccompiler.family import KernelFamily
from byoc_ccompiler.kernel import Group
from byoc_ccompiler.kernels.pointwise import POINTWISE
from byoc_ccompiler.steps import Step, shape_of

__all__ = ["form_groups"]

_MAX_STEPS = 64


def form_groups(steps: Sequence[Step], families: Mapping[str, KernelFamily]) -> list[Group]:
    """Gives the kernels in an order in which every value is written before another kernel reads it.

    A step joins a group of its space that is not before any group it reads from: one it reads from, else the latest.
    """
    groups: list[Group] = []
    made_by: dict[Value, int] = {}
    for step in steps:
        index = _find_group(step, groups, made_by) if step.op in POINTWISE else None
        if index is None:
            anchored = families[step.op].takes_epilogue
            joinable = step.op in POINTWISE or anchored
            groups.append(Group([], shape_of(step.result) if joinable else None, anchored))
            index = len(groups) - 1
        groups[index].steps.append(step)
        for result in step.binding.results:
            made_by[result] = index
            groups[index].results.add(result)
    return groups


def _find_group(step: Step, groups: Sequence[Group], made_by: Mapping[Value, int]) -> int | None:
    earliest = max((made_by.get(operand, -1) for operand in step.operands), default=-1)
    space = shape_of(step.result)
    found = None
    for index in range(len(groups) - 1, max(earliest, 0) - 1, -1):
        group = groups[index]
        if group.space != space or len(group.steps) >= _MAX_STEPS:
            continue
        if any(operand in group.results for operand in step.operands):
            return index
        # An anchor computes what is made of its own sums, not whatever happens to have the same shape.
        if found is None and not group.anchored:
            found = index
    return found
