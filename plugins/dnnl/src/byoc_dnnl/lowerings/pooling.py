"""Pooling with windows of a given size: means and largest elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument, Query
from byoc_dnnl.lowerings.attributes import axes_of_layout, flag, integers
from byoc_dnnl.lowerings.geometry import geometry_of
from byoc_dnnl.lowerings.quantisation import defer_integers, keeps_order
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import PrimitiveDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["add_windows", "lower_pooling"]


def lower_pooling(call: Call, planner: Planner) -> str | None:
    """Add the mean or the largest element of each window; the largest of finite elements only: oneDNN loses NaN.

    Not taken: windows entirely in the padding; a mean that counts padding, if ``ceil_mode`` adds to the padding.
    """
    rank = len(call.result.shape) - 2
    axes = axes_of_layout(call, "layout", "NC", rank)
    window = integers(call, "pool_size", rank)
    strides, dilation, before, declared_after = geometry_of(call, rank)
    image, result = sizes_of(call.operands[0]), sizes_of(call.result)
    after = tuple(
        (result[axis] - 1) * step + (size - 1) * tap_step + 1 - image[axis] - pad
        for axis, step, size, tap_step, pad in zip(axes[2:], strides, window, dilation, before, strict=True)
    )
    for axis, *windows in zip(axes[2:], strides, dilation, before, strict=True):
        if _misses_image(image[axis], result[axis], *windows):
            return "a window lies entirely in the padding"
    algorithm = Algorithm.POOLING_MAX
    if call.op.startswith("nn.avg"):
        counts = flag(call, "count_include_pad")
        if counts and any(pad > declared for pad, declared in zip(after, declared_after, strict=True)):
            return "oneDNN counts the elements added by `ceil_mode` beyond the padding"
        algorithm = Algorithm.POOLING_AVG_INCLUDE_PADDING if counts else Algorithm.POOLING_AVG_EXCLUDE_PADDING
    return add_windows(call, planner, algorithm, axes, window, Windows(strides, dilation, before, after))


def _misses_image(size: int, count: int, stride: int, dilation: int, before: int) -> bool:
    """Return whether all taps of a window lie in the padding along an axis: dilated windows may skip the image."""
    starts = np.arange(count, dtype=np.int64) * stride - before
    first_within = starts + np.maximum(-(starts // dilation), 0) * dilation  # the padding is smaller than the window
    return bool(np.any(first_within >= size))


def add_windows(
    call: Call, planner: Planner, algorithm: Algorithm, axes: Sequence[int], window: Sequence[int], windows: Windows
) -> str | None:
    """Add a pooling of the only operand, with ``axes`` in the order of images, channels, spatial axes.

    The largest of dequantised elements is found among the integers, and then stands for a dequantised value.
    """
    (x,) = call.inputs
    to_value = tuple(axes.index(axis) for axis in range(len(axes)))
    image, result = sizes_of(call.operands[0]), sizes_of(call.result)
    sizes = tuple(result[axis] for axis in axes)

    def make(at: Location) -> PrimitiveDesc | None:
        source = at.desc.permuted(axes)
        primitive = planner.factory.pooling(algorithm, source, planner.any_layout(sizes, source.dtype), window, windows)
        return primitive if planner.accepts(primitive) else None

    def add(primitive: PrimitiveDesc, at: Location, written: Location) -> None:
        target = written.view_as(primitive.memory_desc(Query.DST_MD))
        planner.add_step(call.op, primitive, {Argument.SRC: at.view_as(at.desc.permuted(axes)), Argument.DST: target})

    quantised = planner.quantised(x) if algorithm is Algorithm.POOLING_MAX else None
    if quantised and quantised.location.desc.sizes == image and keeps_order(planner, quantised):
        primitive = make(quantised.location)
        if primitive is not None:
            written = planner.allocate_temporary(
                f"%{call.output}", primitive.memory_desc(Query.DST_MD).permuted(to_value)
            )
            if defer_integers(call.output, planner, quantised._replace(integers=call.output, location=written)) is None:
                add(primitive, quantised.location, written)
                return None
    if algorithm is Algorithm.POOLING_MAX and not planner.check_finite([x]):
        return "oneDNN loses NaN, and the operand cannot be checked"
    for at in planner.candidate_locations(x):
        primitive = make(at)
        if primitive is not None:
            add(
                primitive,
                at,
                planner.allocate_result(call.output, primitive.memory_desc(Query.DST_MD).permuted(to_value)),
            )
            return None
    return "oneDNN has only a reference implementation"
