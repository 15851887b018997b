"""Transposed convolutions, in the layouts that oneDNN chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.handles import PrimitiveDesc
from byoc_dnnl.lowerings.attributes import axes_of_layout, integer, integers, require_rank
from byoc_dnnl.lowerings.epilogue import add_with_followers
from byoc_dnnl.post_ops import PostOp
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["lower_deconvolution"]


def lower_deconvolution(call: Call, planner: Planner) -> str | None:
    """Adds a transposed convolution: oneDNN's deconvolution."""
    x, weight = call.inputs
    require_rank(call, 3, 5)
    rank = len(call.result.shape) - 2
    axes = axes_of_layout(call, "data_layout", "NC", rank)
    back = tuple(axes.index(axis) for axis in range(rank + 2))
    filters = _filters(call, planner.place(weight).desc, rank)
    if filters is None:
        return f"weights in the layout {call.attrs['kernel_layout']} cannot be split into groups"
    source = planner.place(x).desc.permuted(axes)
    sizes = sizes_of(call.result)
    target_sizes = tuple(sizes[axis] for axis in axes)
    windows = _windows(call, source.sizes[2:], filters.sizes[-rank:], target_sizes[2:])

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        operands = planner.any(source.sizes), planner.any(filters.sizes)
        return planner.workshop.deconvolution(*operands, planner.any(target_sizes), windows, post_ops)

    def arguments(made: PrimitiveDesc) -> Mapping[int, Place]:
        wanted = made.memory_desc(Query.SRC_MD)
        placed = planner.place_in(x, wanted.permuted(back)).seen_as(wanted)
        packed = planner.reordered(weight, planner.place(weight).seen_as(filters), made.memory_desc(Query.WEIGHTS_MD))
        return {Argument.SRC: placed, Argument.WEIGHTS: packed}

    return add_with_followers(
        call, planner, make, arguments, lambda desc: desc.permuted(axes), lambda desc: desc.permuted(back)
    )


def _filters(call: Call, desc: MemoryDesc, rank: int) -> MemoryDesc | None:
    """Gives weights as ``(O, I, ...)``, in groups ``(G, O, I, ...)``; ``None`` where no such view of them is there."""
    inputs, outputs, *window = axes_of_layout(call, "kernel_layout", "IO", rank)
    groups = integer(call, "groups")
    if groups <= 1:
        return desc.permuted((outputs, inputs, *window))
    ordered = desc.permuted((inputs, outputs, *window))
    channels, *others = ordered.sizes
    split = ordered.reshaped((groups, channels // groups, *others))
    return split and split.permuted((0, 2, 1, *range(3, rank + 3)))


def _windows(call: Call, image: Sequence[int], window: Sequence[int], result: Sequence[int]) -> Windows:
    """Gives windows over the result; what it is longer by, on request, counts as less padding after it."""
    rank = len(image)
    strides, dilation = (integers(call, name, rank) for name in ("strides", "dilation"))
    before = integers(call, "padding", 2 * rank)[:rank]
    after = tuple(
        (size - 1) * step + (taps - 1) * spread + 1 - length - pad
        for size, step, taps, spread, length, pad in zip(image, strides, window, dilation, result, before, strict=True)
    )
    return Windows(strides, dilation, before, after)
