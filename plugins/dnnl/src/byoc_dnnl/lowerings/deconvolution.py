"""Transposed convolutions, in the layouts chosen by oneDNN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.lowerings.attributes import axes_of_layout, integer
from byoc_dnnl.lowerings.epilogue import add_with_followers
from byoc_dnnl.lowerings.geometry import geometry_of
from byoc_dnnl.lowerings.images import ImageAxes, Layout, make_image
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc, PrimitiveDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.post_ops import PostOp

__all__ = ["lower_deconvolution"]


def lower_deconvolution(call: Call, planner: Planner) -> str | None:
    """Add a transposed convolution: oneDNN's deconvolution."""
    x, weight = call.inputs
    rank = len(call.result.shape) - 2
    groups = integer(call, "groups")
    kernel = planner.location(weight)
    kernel_axes = axes_of_layout(call, "kernel_layout", "IO", rank)
    outputs = kernel.desc.sizes[kernel_axes[1]]
    is_depthwise = groups > 1 and outputs == 1 and kernel.desc.sizes[kernel_axes[0]] == groups
    axes = ImageAxes(axes_of_layout(call, "data_layout", "NC", rank), is_lifted=rank == 1 and is_depthwise)
    filters = _filters(kernel.desc.permuted(kernel_axes), groups, axes)
    if filters is None:
        return f"weights in the layout {call.attrs['kernel_layout']} cannot be split into groups"
    windows = _windows(call, axes, filters.sizes[2 if groups <= 1 else 3 :])

    def offer(layout: Layout, post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        source, target = (layout(axes.sizes(tensor), "float32") for tensor in (call.operands[0], call.result))
        return planner.factory.deconvolution(source, planner.any_layout(filters.sizes), target, windows, post_ops)

    def arguments(primitive: PrimitiveDesc) -> Mapping[int, Location]:
        source_desc = primitive.memory_desc(Query.SRC_MD)
        source = planner.location_in(x, axes.to_value(source_desc)).view_as(source_desc)
        packed = planner.reordered(weight, kernel.view_as(filters), primitive.memory_desc(Query.WEIGHTS_MD))
        return {Argument.SRC: source, Argument.WEIGHTS: packed}

    return add_with_followers(
        call,
        planner,
        lambda post_ops: make_image(planner, offer, post_ops, is_thin=outputs == 1),
        arguments,
        axes.to_primitive,
        axes.to_value,
    )


def _filters(desc: MemoryDesc, groups: int, axes: ImageAxes) -> MemoryDesc | None:
    """Return weights as ``(O, I, ...)``, in groups ``(G, O, I, ...)``; ``None`` if no such view exists.

    Args:
        desc: the layout of the weights, as ``(I, O, ...)`` with the input channels of all groups.
        groups: the number of groups.
        axes: the axes of images.
    """
    channels, *inner_sizes = axes.lifted(desc.sizes, 1)
    order = range(2, len(inner_sizes) + 1)
    if groups <= 1:
        return desc.permuted((1, 0, *order))
    split = desc.reshaped((groups, channels // groups, *inner_sizes))
    return split and split.permuted((0, 2, 1, *(axis + 1 for axis in order)))


def _windows(call: Call, axes: ImageAxes, window: Sequence[int]) -> Windows:
    """Return windows over the result; additional requested length counts as less padding at the end.

    Args:
        call: the call.
        axes: the axes of images.
        window: the number of taps along each axis.
    """
    (_, _, *image), (_, _, *result) = (axes.sizes(tensor) for tensor in (call.operands[0], call.result))
    rank = len(axes.order) - 2
    declared = geometry_of(call, rank)
    strides, dilation = (axes.lifted(steps, 1) for steps in (declared.strides, declared.dilation))
    before = axes.lifted(declared.before, 0)
    after = tuple(
        (size - 1) * step + (taps - 1) * tap_step + 1 - length - pad
        for size, step, taps, tap_step, length, pad in zip(
            image, strides, window, dilation, result, before, strict=True
        )
    )
    return Windows(strides, dilation, before, after)
