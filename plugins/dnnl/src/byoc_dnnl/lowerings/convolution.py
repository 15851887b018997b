"""Convolutions in the layouts that oneDNN chooses: constant weights are packed once, others in each call."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.handles import PrimitiveDesc
from byoc_dnnl.lowerings.attributes import axes_of_layout, integer, integers
from byoc_dnnl.lowerings.epilogue import add_with_followers, dtype_after, find_side
from byoc_dnnl.lowerings.factors import Factors, factors_of
from byoc_dnnl.lowerings.images import ImageAxes, Layout, make_image
from byoc_dnnl.post_ops import PostOp
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["lower_convolution"]

_FEW_CHANNELS = 16


def lower_convolution(call: Call, planner: Planner) -> str | None:
    """Adds a convolution."""
    rank = len(call.result.shape) - 2
    kernel_axes = axes_of_layout(call, "kernel_layout", "OI", rank)
    reason = None
    for factors in factors_of(call, planner, kernel_axes[0]):
        if _reads_neighbours(call, factors, kernel_axes[1]) and not planner.check_finite(call.inputs[:1]):
            reason = (
                "oneDNN multiplies few or an odd number of channels with their neighbours, and spreads a NaN of these"
            )
            continue
        reason = _add_convolution(call, planner, factors, kernel_axes)
        if reason is None:
            break
    return reason


def _reads_neighbours(call: Call, factors: Factors, axis: int) -> bool:
    """Whether what stands beside the channels of a tap may be multiplied by 0, so that a NaN there spreads.

    Products of bfloat16 are made in pairs, which an odd number of channels does not fill, and few channels share a tile
    with those of the next pixels (``jit:avx512_core_amx``).
    """
    channels = sizes_of(call.operands[1])[axis]
    return (
        factors.left_dtype == "bfloat16"
        and not _is_depthwise(call, axis)
        and (channels % 2 == 1 or channels < _FEW_CHANNELS)
    )


def _is_depthwise(call: Call, axis: int) -> bool:
    """Whether each group has one channel; ``axis`` is that of the input channels of the weights."""
    return sizes_of(call.operands[1])[axis] == 1 and integer(call, "groups") > 1


def _add_convolution(call: Call, planner: Planner, factors: Factors, kernel_axes: Sequence[int]) -> str | None:
    rank = len(call.result.shape) - 2
    places = axes_of_layout(call, "data_layout", "NC", rank)
    axes = ImageAxes(places, is_lifted=rank == 1 and _is_depthwise(call, kernel_axes[1]))
    padding = integers(call, "padding", 2 * rank)
    strides, dilation = (axes.lifted(integers(call, name, rank), 1) for name in ("strides", "dilation"))
    windows = Windows(strides, dilation, axes.lifted(padding[:rank], 0), axes.lifted(padding[rank:], 0))

    (x, image), (weight, kernel) = factors.left, factors.right
    groups = integer(call, "groups")
    filters = kernel.desc.permuted(kernel_axes)
    if groups > 1:
        all_channels, *others = axes.lifted(filters.sizes, 1)
        grouped = filters.reshaped((groups, all_channels // groups, *others))
        if grouped is None:
            return f"weights in the layout {call.attrs['kernel_layout']} cannot be split into groups"
        filters = grouped
    target_dtype = factors.result_dtype(call, planner)
    scaling = factors.scaling(0b11 if groups > 1 else 0b1)
    out_channels, _, *window = filters.sizes[1 if groups > 1 else 0 :]
    is_thin = out_channels < _FEW_CHANNELS and prod(window) == 1

    head, bias = _find_bias(call, planner, places[1])

    def offer(layout: Layout, post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        source = layout(axes.sizes(call.operands[0]), factors.left_dtype)
        weights = planner.any(filters.sizes, factors.right_dtype)
        target = layout(axes.sizes(call.result), dtype_after(post_ops, target_dtype))
        described = bias.desc if bias else None
        return planner.workshop.convolution(source, weights, described, target, windows, post_ops, scaling)

    def arguments(made: PrimitiveDesc) -> Mapping[int, Place]:
        wanted = made.memory_desc(Query.SRC_MD)
        placed = planner.reordered(x, image, axes.to_value(wanted)).seen_as(wanted)
        packed = planner.reordered(weight, kernel.seen_as(filters), made.memory_desc(Query.WEIGHTS_MD))
        biases: dict[int, Place] = {Argument.BIAS: bias} if bias else {}
        return {Argument.SRC: placed, Argument.WEIGHTS: packed, **biases, **factors.arguments(planner)}

    return add_with_followers(
        call,
        planner,
        lambda post_ops: make_image(planner, offer, post_ops, is_thin=is_thin),
        arguments,
        axes.to_primitive,
        axes.to_value,
        head=head,
        gives_bytes=factors.scales is not None,
    )


def _find_bias(call: Call, planner: Planner, axis: int) -> tuple[list[Call], Place | None]:
    """Gives the call after a convolution that adds a number to each channel, with the numbers; nothing if none does."""
    follower = planner.follower(call)
    if follower is None or follower.op not in ("add", "nn.bias_add") or follower.result != call.result:
        return [], None
    side = find_side(follower, call.output)
    if isinstance(side, str) or not planner.is_placed(side.other) or planner.own_dtype(side.other) != "float32":
        return [], None
    channels = sizes_of(call.result)[axis]
    if side.sizes != tuple(channels if place == axis else 1 for place in range(len(side.sizes))):
        return [], None
    return [follower], planner.place_row_major(side.other).seen_as(planner.row_major((channels,)))
