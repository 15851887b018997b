"""Which outputs of a function may lie in the memory of its inputs."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.ir import Value, Var

from byoc_ccompiler.kernel import Group
from byoc_ccompiler.kernels.pointwise import operand_dims
from byoc_ccompiler.steps import shape_of

__all__ = ["in_place_pairs"]


def in_place_pairs(
    groups: Sequence[Group], params: Sequence[Var], results: Sequence[Value]
) -> tuple[tuple[int, int], ...]:
    """Gives the pairs of an output's and an input's number that one loop may take in the same memory.

    Certain only where the whole function is one loop over elements: then an input of the loop's own shape that no step
    broadcasts is read at the position that is written next, and nowhere else. The dtypes are equal too, since C lets a
    compiler reorder accesses through pointers of different types.

    Args:
        groups: the function's kernels.
        params: its inputs.
        results: its outputs, composites taken apart.
    """
    if len(groups) != 1 or groups[0].anchored or groups[0].space is None or groups[0].reduced is not None:
        return ()
    if groups[0].loads:  # which read at other positions than the one that is written
        return ()
    (group,) = groups
    # A result that no step makes is copied when the loop is over, and its source must still be there.
    if any(result not in group.results for result in results) or len(set(results)) < len(results):
        return ()
    broadcast = {
        operand
        for step in group.steps
        for operand, dims in zip(step.operands, operand_dims(step), strict=True)
        if dims != group.space
    }
    sources = [
        (index, param)
        for index, param in enumerate(params)
        if shape_of(param) == group.space and param not in broadcast
    ]
    return tuple(
        (output, index)
        for output, result in enumerate(results)
        for index, param in sources
        if param.type == result.type
    )
