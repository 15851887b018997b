"""Pooling with windows of a given size: means and largest elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument, Query
from byoc_dnnl.lowerings.attributes import axes_of_layout, flag, integers
from byoc_dnnl.lowerings.geometry import geometry_of
from byoc_dnnl.lowerings.quantisation import defer_integers, keeps_order
from byoc_dnnl.native import extension
from byoc_dnnl.plan import BytePooling
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc
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

    def find(at: Location) -> tuple[MemoryDesc, Callable[[Location], None]] | None:
        """Return the layout of the result for an operand, and a function to add the step."""
        viewed = at.view_as(at.desc.permuted(axes))
        if algorithm is Algorithm.POOLING_MAX and _is_byte_image(viewed.desc, planner):
            byte_target = planner.channels_last(sizes, viewed.desc.dtype)
            return byte_target.permuted(to_value), lambda written: planner.add_kernel(
                _byte_pooling(call, viewed, written.view_as(byte_target), window, windows)
            )
        target = planner.any_layout(sizes, viewed.desc.dtype)
        primitive = planner.factory.pooling(algorithm, viewed.desc, target, window, windows)
        if primitive is None or not planner.accepts(primitive):
            return None
        result_desc = primitive.memory_desc(Query.DST_MD)

        def add(written: Location) -> None:
            arguments = {Argument.SRC: viewed, Argument.DST: written.view_as(result_desc)}
            planner.add_step(call.op, primitive, arguments)

        return result_desc.permuted(to_value), add

    quantised = planner.quantised(x) if algorithm is Algorithm.POOLING_MAX else None
    if quantised and quantised.location.desc.sizes == image and keeps_order(planner, quantised):
        found = find(quantised.location)
        if found is not None:
            written = planner.allocate_temporary(f"%{call.output}", found[0])
            if defer_integers(call.output, planner, quantised._replace(integers=call.output, location=written)) is None:
                found[1](written)
                return None
    may_be_nan = algorithm is Algorithm.POOLING_MAX and call.result.dtype == "float32"
    if may_be_nan and not planner.check_finite([x]):
        return "oneDNN loses NaN, and the operand cannot be checked"

    def candidates() -> Iterator[Location]:
        yield from planner.candidate_locations(x)
        if call.result.dtype != "float32":  # oneDNN has no other layout for bytes
            desc = planner.channels_last([image[axis] for axis in axes], call.result.dtype)
            yield planner.location_in(x, desc.permuted(to_value))

    for at in candidates():
        found = find(at)
        if found is not None:
            found[1](planner.allocate_result(call.output, found[0]))
            return None
    return "oneDNN has only a reference implementation"


def _is_byte_image(desc: MemoryDesc, planner: Planner) -> bool:
    """Return whether the extension computes the largest bytes of windows: of channels last, in up to two axes."""
    is_image = desc.dtype in ("int8", "uint8") and len(desc.sizes) in (3, 4) and extension() is not None
    return is_image and desc == planner.channels_last(desc.sizes, desc.dtype)


def _byte_pooling(
    call: Call, source: Location, target: Location, window: Sequence[int], windows: Windows
) -> BytePooling:
    images, channels, *sizes = source.desc.sizes
    _, _, *counts = target.desc.sizes
    dilation = (skipped + 1 for skipped in windows.dilation)
    columns = zip(sizes, counts, window, windows.strides, dilation, windows.before, strict=False)  # oneDNN has 12 axes
    axes = [(size, count, taps, stride, step, pad) for size, count, taps, stride, step, pad in columns]
    return BytePooling(call.op, source, target, images, channels, *([(1, 1, 1, 1, 1, 0)] * (2 - len(axes))), *axes)
