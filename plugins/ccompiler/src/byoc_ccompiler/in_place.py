"""The outputs of a function allowed in the memory of the inputs.

The pairs are a promise to the callers of the compiled function (``CallTraits.in_place``); the kernel declares the
buffers of these outputs as shared. A wrong pair may overwrite an input before the last read. A missing pair
costs memory only.
"""

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
    """Return the pairs of output and input numbers allowed to share memory in a loop.

    Certain only if the whole function is a single loop over elements. Then an input with the shape of the loop,
    broadcast by no step, is read at the position written next, and nowhere else. The dtypes are equal too, since C lets
    a compiler reorder accesses through pointers of different types.

    Args:
        groups: the function's kernels.
        params: the inputs of the function.
        results: the outputs of the function, composites taken apart.
    """
    if len(groups) != 1 or groups[0].anchored or groups[0].space is None or groups[0].reduced is not None:
        return ()
    if groups[0].loads:  # loads read at other positions than the written position
        return ()
    (group,) = groups
    # A result made by no step is copied after the loop; its source must still be intact.
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
