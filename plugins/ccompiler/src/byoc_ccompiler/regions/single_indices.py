"""A ``take`` at a single constant index as a slice: kernels reading strided tensors need no copy of a slice."""

from __future__ import annotations

from collections.abc import Sequence

from byoc_core.ir import Binding, IRModule, Value
from byoc_core.transform import RewriteGraph, rewrite_module

from byoc_ccompiler.attributes import axis_of
from byoc_ccompiler.steps import shape_of

__all__ = ["slice_single_indices"]


def slice_single_indices(module: IRModule) -> IRModule:
    """Return the module with a slice and a reshape in place of each ``take`` at a single valid index of the axis."""
    return rewrite_module(module, {"take": (_slice,)})


def _slice(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    x, indices = binding.operands
    shape, index = shape_of(x), graph.scalar(indices)
    axis = axis_of(binding, len(shape))
    size = shape[axis]
    if index is None or any(dim != 1 for dim in shape_of(indices)) or not isinstance(size, int):
        return None
    if not -size <= index < size:
        return None
    begin = int(index) % size
    part = graph.emit("strided_slice", (x,), {"axes": (axis,), "begin": (begin,), "end": (begin + 1,), "strides": (1,)})
    return (graph.emit("reshape", (part,), {"shape": shape_of(binding.result)}),)
