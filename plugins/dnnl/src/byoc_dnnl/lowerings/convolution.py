"""Convolutions in the layouts chosen by oneDNN: constant weights are packed once, others in each call."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

from byoc_core.opset import LARGEST

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.handles import PrimitiveDesc
from byoc_dnnl.lowerings.attributes import axes_of_layout, integer
from byoc_dnnl.lowerings.epilogue import add_with_followers, dtype_after, find_side, first_reason
from byoc_dnnl.lowerings.factors import Factors, factors_of
from byoc_dnnl.lowerings.geometry import geometry_of
from byoc_dnnl.lowerings.images import (
    ImageAxes,
    Layout,
    make_channels_last,
    make_image,
    named_images,
    stays_in_blocks,
)
from byoc_dnnl.lowerings.named_primitives import as_chosen
from byoc_dnnl.lowerings.pixel_packing import Form, Geometry, in_phases
from byoc_dnnl.post_ops import PostOp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["lower_convolution"]

_FEW_CHANNELS = 16


def lower_convolution(call: Call, planner: Planner) -> str | None:
    """Add a convolution, together with a following addition of a bias."""
    rank = len(call.result.shape) - 2
    kernel_axes = axes_of_layout(call, "kernel_layout", "OI", rank)
    reason = None
    for factors in factors_of(call, planner, kernel_axes[0]):
        if _reads_neighbours(call, factors, kernel_axes) and not planner.check_finite(call.inputs[:1]):
            reason = "oneDNN multiplies neighbours of few or an odd number of channels by 0, and spreads a NaN"
            continue
        reason = first_reason(_attempts(call, planner, factors, kernel_axes))
        if reason is None:
            break
    return reason


def _reads_neighbours(call: Call, factors: Factors, kernel_axes: Sequence[int]) -> bool:
    """Return whether neighbours of a tap's channels may be multiplied by 0, spreading a NaN.

    Products of bfloat16 are computed in pairs. An odd number of channels does not fill the pairs, and few channels
    share a tile with the channels of the next pixels (``jit:avx512_core_amx``).
    """
    channels = sizes_of(call.operands[1])[kernel_axes[1]]
    is_uneven = channels % 2 == 1 or channels < _FEW_CHANNELS
    return factors.left_dtype == "bfloat16" and is_uneven and not _is_depthwise(call, kernel_axes)


def _is_depthwise(call: Call, kernel_axes: Sequence[int]) -> bool:
    """Return whether each group has a single input channel and a single output channel."""
    sizes, groups = sizes_of(call.operands[1]), integer(call, "groups")
    return groups > 1 and (sizes[kernel_axes[0]], sizes[kernel_axes[1]]) == (groups, 1)


def _attempts(call: Call, planner: Planner, factors: Factors, kernel_axes: Sequence[int]) -> Iterator[str | None]:
    """Try to add a primitive, the best form first; yield the reason for each failure, or ``None`` after success."""
    image_axes = axes_of_layout(call, "data_layout", "NC", len(kernel_axes) - 2)
    bias = _find_bias(call, planner, image_axes[1])
    form = _plain_form(call, planner, factors, kernel_axes, image_axes, bias)
    if isinstance(form, str):
        yield form
        return
    head, x = [bias[0]] if bias else [], factors.left[0]
    if integer(call, "groups") <= 1 and factors.scales is None:
        phased = in_phases(form, planner, factors.right[0], bias[1] if bias else None)
        if phased is not None and planner.find_checks([(x, LARGEST)], [x]) is not None:
            yield _add_convolution(call, planner, factors, phased, head)
    yield _add_convolution(call, planner, factors, form, head)


def _plain_form(
    call: Call,
    planner: Planner,
    factors: Factors,
    kernel_axes: Sequence[int],
    image_axes: tuple[int, ...],
    bias: tuple[Call, int] | None,
) -> Form | str:
    """Return the form equal to the convolution itself, or the reason why no such form exists."""
    rank = len(image_axes) - 2
    axes = ImageAxes(image_axes, is_lifted=rank == 1 and _is_depthwise(call, kernel_axes))
    declared = geometry_of(call, rank)
    strides, dilation = (axes.lifted(steps, 1) for steps in (declared.strides, declared.dilation))
    geometry = Geometry(strides, dilation, axes.lifted(declared.before, 0), axes.lifted(declared.after, 0))
    _, kernel = factors.right
    filters = kernel.desc.permuted(kernel_axes)
    groups = integer(call, "groups")
    if groups > 1:
        channels, *inner_sizes = axes.lifted(filters.sizes, 1)
        grouped = filters.reshaped((groups, channels // groups, *inner_sizes))
        if grouped is None:
            return f"weights in the layout {call.attrs['kernel_layout']} cannot be split into groups"
        filters = grouped
    target = axes.sizes(call.result)
    shift = planner.row_major_location(bias[1]).view_as(planner.row_major(target[1:2])) if bias else None
    weights = kernel.view_as(filters)
    return Form(axes, axes.sizes(call.operands[0]), target, geometry, weights, shift)


def _add_convolution(call: Call, planner: Planner, factors: Factors, form: Form, head: Sequence[Call]) -> str | None:
    """Add a convolution in a form, with the call for adding the bias in ``head``, and followers."""
    (x, image), (weight, _) = factors.left, factors.right
    has_groups = len(form.weights.desc.sizes) > len(form.source)
    outputs, _, *window = form.weights.desc.sizes[1 if has_groups else 0 :]
    is_thin = outputs < _FEW_CHANNELS and prod(window) == 1
    target_dtype = factors.result_dtype(call, planner)
    scaling = factors.scaling(0b11 if has_groups else 0b1)
    image_view = None if has_groups or factors.left_dtype != image.desc.dtype else form.axes.to_primitive(image.desc)
    image_layout = image_view if image_view is not None and stays_in_blocks(planner, image_view, form.target) else None

    is_usual = factors.scales is None and not image.desc.is_blocked()

    def numbered(layout: Layout, post_ops: Sequence[PostOp], number: int) -> PrimitiveDesc | None:
        source_desc = layout(form.source, factors.left_dtype)
        weights = planner.any_layout(form.weights.desc.sizes, factors.right_dtype)
        target = layout(form.target, dtype_after(post_ops, target_dtype))
        bias, windows = form.bias.desc if form.bias else None, planner.factory.windows(*form.geometry)
        return planner.factory.convolution(source_desc, weights, bias, target, windows, post_ops, scaling, number)

    def offer(layout: Layout, post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        return numbered(layout, post_ops, 0)

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        if form.has_phases:
            return make_channels_last(planner, offer, post_ops)
        usual = make_image(planner, offer, post_ops, is_thin=is_thin, image_layout=image_layout)
        is_float = scaling is None and factors.left_dtype == "float32"
        return as_chosen(planner, call, lambda: named_images(planner, numbered, post_ops), usual) if is_float else usual

    def arguments(primitive: PrimitiveDesc) -> Mapping[int, Location]:
        if form.has_phases:
            planner.check_finite([x])
        source_desc = primitive.memory_desc(Query.SRC_MD)
        source = planner.reordered(x, image, form.axes.to_value(source_desc)).view_as(source_desc)
        packed = planner.reordered(weight, form.weights, primitive.memory_desc(Query.WEIGHTS_MD))
        biases: dict[int, Location] = {Argument.BIAS: form.bias} if form.bias else {}
        return {Argument.SRC: source, Argument.WEIGHTS: packed, **biases, **factors.arguments(planner)}

    numbers = (form.source, form.target, form.full_target, form.geometry)
    tokens = (image.desc.token, form.weights.desc.token, form.bias and form.bias.desc.token)
    return add_with_followers(
        call,
        planner,
        make,
        arguments,
        partial(form.to_primitive, planner),
        partial(form.to_value, planner),
        head=head,
        accepts_quantize=factors.scales is not None,
        usual=planner.channels_last(form.target, target_dtype) if is_usual else None,
        identity=None if factors.scales else ("convolution", numbers, tokens, factors.left_dtype, target_dtype),
    )


def _find_bias(call: Call, planner: Planner, axis: int) -> tuple[Call, int] | None:
    """Return the call after a convolution for adding a number to each channel, with the value of the numbers."""
    follower = planner.graph.follower(call)
    if follower is None or follower.op not in ("add", "nn.bias_add"):
        return None
    side = find_side(follower, call.output)
    if isinstance(side, str) or not planner.is_available(side.other) or planner.declared_dtype(side.other) != "float32":
        return None
    channels = sizes_of(call.result)[axis]
    if side.sizes != tuple(channels if index == axis else 1 for index in range(len(side.sizes))):
        return None
    return follower, side.other
