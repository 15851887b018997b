"""Pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Algorithm, Argument, Query
from byoc_dnnl.lowerings.attributes import axes_of_layout, flag, integers
from byoc_dnnl.planner import sizes_of
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from byoc_dnnl.planner import Call, Planner

__all__ = ["lower_pooling"]


def lower_pooling(call: Call, planner: Planner) -> str | None:
    """Adds the largest element, or the mean, of each window."""
    (x,) = call.inputs
    rank = len(call.result.shape) - 2
    axes = axes_of_layout(call, "layout", "NC", rank)
    back = tuple(axes.index(axis) for axis in range(rank + 2))
    window, strides, dilation = (integers(call, name, rank) for name in ("pool_size", "strides", "dilation"))
    padding = integers(call, "padding", 2 * rank)
    image, result = sizes_of(call.operands[0]), sizes_of(call.result)
    before = padding[:rank]
    after = tuple(
        (result[axis] - 1) * step + (size - 1) * spread + 1 - image[axis] - pad
        for axis, step, size, spread, pad in zip(axes[2:], strides, window, dilation, before, strict=True)
    )
    if any(pad >= size for pad, size in zip((*before, *after), window * 2, strict=True)):
        return "a window may lie in the padding as a whole"
    algorithm = Algorithm.POOLING_MAX
    if call.op.startswith("nn.avg"):
        counts = flag(call, "count_include_pad")
        if counts and any(pad > stated for pad, stated in zip(after, padding[rank:], strict=True)):
            return "oneDNN counts what `ceil_mode` adds beyond the padding"
        algorithm = Algorithm.POOLING_AVG_INCLUDE_PADDING if counts else Algorithm.POOLING_AVG_EXCLUDE_PADDING
    windows = Windows(strides, dilation, before, after)
    sizes = tuple(result[axis] for axis in axes)
    for place in (planner.place(x), None):
        at = place or planner.place_row_major(x)
        source = at.desc.permuted(axes)
        made = planner.workshop.pooling(algorithm, source, planner.any(sizes), window, windows)
        if made is not None and planner.accepts(made):
            target = made.memory_desc(Query.DST_MD)
            written = planner.result(call.output, target.permuted(back)).seen_as(target)
            planner.add_step(call.op, made, {Argument.SRC: at.seen_as(source), Argument.DST: written})
            return None
        if at.desc.is_row_major():
            break
    return "oneDNN has only its reference implementation"
