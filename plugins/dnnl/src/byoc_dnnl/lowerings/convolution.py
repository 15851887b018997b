"""Convolutions in the layouts that oneDNN chooses: constant weights are packed once, others in each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.handles import PostOp, PrimitiveDesc
from byoc_dnnl.lowerings.attributes import axes_of_layout, integer, integers
from byoc_dnnl.lowerings.epilogue import add_with_followers
from byoc_dnnl.planner import sizes_of
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Call, Planner

__all__ = ["lower_convolution"]


def lower_convolution(call: Call, planner: Planner) -> str | None:
    """Adds a convolution."""
    x, weight = call.inputs
    rank = len(call.result.shape) - 2
    data_axes = axes_of_layout(call, "data_layout", "NC", rank)
    kernel_axes = axes_of_layout(call, "kernel_layout", "OI", rank)
    back = tuple(data_axes.index(axis) for axis in range(rank + 2))
    padding = integers(call, "padding", 2 * rank)
    strides, dilation = (integers(call, name, rank) for name in ("strides", "dilation"))
    windows = Windows(strides, dilation, padding[:rank], padding[rank:])

    filters = planner.place(weight).desc.permuted(kernel_axes)
    groups = integer(call, "groups")
    if groups > 1:
        out_channels, *others = filters.sizes
        grouped = filters.reshaped((groups, out_channels // groups, *others))
        if grouped is None:
            return f"weights in the layout {call.attrs['kernel_layout']} cannot be split into groups"
        filters = grouped
    source = planner.place(x).desc.permuted(data_axes)
    image = sizes_of(call.result)
    target_sizes = tuple(image[axis] for axis in data_axes)

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        any_source, any_filters, any_target = map(planner.any, (source.sizes, filters.sizes, target_sizes))
        return planner.workshop.convolution(any_source, any_filters, None, any_target, windows, post_ops)

    def arguments(made: PrimitiveDesc) -> Mapping[int, Place]:
        wanted = made.memory_desc(Query.SRC_MD)
        placed = planner.place_in(x, wanted.permuted(back)).seen_as(wanted)
        packed = planner.reordered(weight, planner.place(weight).seen_as(filters), made.memory_desc(Query.WEIGHTS_MD))
        return {Argument.SRC: placed, Argument.WEIGHTS: packed}

    return add_with_followers(
        call, planner, make, arguments, lambda desc: desc.permuted(data_axes), lambda desc: desc.permuted(back)
    )
