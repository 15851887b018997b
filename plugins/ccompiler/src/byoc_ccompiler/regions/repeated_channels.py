"""Depthwise convolutions with several filters for each channel, as one filter for each copy of a channel.

Kernels of depthwise convolutions hold neighbouring channels and filters in vectors of equal length.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from byoc_core.ir import Binding, IRModule, Value
from byoc_core.transform import RewriteGraph, rewrite_module

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.steps import shape_of

__all__ = ["repeat_channels"]

_MOST_COPIES, _MOST_STEPS = 8, 4
"""With more filters for a channel, or elements of the image for an output, copying costs more than the loops save."""


def repeat_channels(module: IRModule) -> IRModule:
    """Return the module with an image channel for each filter of a depthwise convolution, if few for each channel."""
    return rewrite_module(module, {f"nn.conv{rank}d": (_repeat,) for rank in (1, 2)})


def _repeat(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    x, weight = binding.operands
    axis, groups = str(binding.attrs["data_layout"]).index("C"), int_of(binding, "groups")
    channels, filters = shape_of(x)[axis], shape_of(binding.result)[axis]
    if groups == 1 or channels != groups or not isinstance(filters, int) or filters == groups:
        return None
    if filters > _MOST_COPIES * groups or prod(ints_of(binding, "strides")) > _MOST_STEPS:
        return None
    before, after = shape_of(x)[:axis], shape_of(x)[axis + 1 :]
    apart = graph.emit("reshape", (x,), {"shape": (*before, groups, 1, *after)}, name="channels")
    copies = graph.emit(
        "broadcast_to", (apart,), {"shape": (*before, groups, filters // groups, *after)}, name="copies"
    )
    image = graph.emit("reshape", (copies,), {"shape": (*before, filters, *after)}, name="image")
    attrs = {**binding.attrs, "groups": filters}
    return (graph.emit(binding.op, (image, weight), attrs, schedule=binding.schedule),)
