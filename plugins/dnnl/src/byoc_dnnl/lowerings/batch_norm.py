"""Batch normalisation by given statistics, as an op and in spelled-out form."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from byoc_dnnl.capi import Argument
from byoc_dnnl.lowerings.attributes import axis_of, number
from byoc_dnnl.lowerings.epilogue import BINARIES, add_with_followers, find_side, first_reason
from byoc_dnnl.lowerings.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["add_spelled_batch_norm", "lower_batch_norm"]


def lower_batch_norm(call: Call, planner: Planner) -> str | None:
    """Add batch normalisation by given statistics."""
    rank, axis, epsilon = len(call.result.shape), axis_of(call), number(call, "epsilon")
    if rank < 2:
        return "oneDNN needs an axis of images and an axis of channels"
    other_axes = [index for index in range(rank) if index != axis]
    order = (other_axes[0], axis, *other_axes[1:])
    parameters = [planner.row_major_location(id_, "float32") for id_ in call.inputs[1:]]

    def add(location: Location) -> str | None:
        if location.desc.is_blocked() and epsilon == 0:
            return "oneDNN leaves a NaN in the padding of blocks"
        return _add([call], planner, location, _as_rows(planner, location.desc.permuted(order)), parameters, epsilon)

    return first_reason(map(add, planner.candidate_locations(call.inputs[0])))


def add_spelled_batch_norm(call: Call, planner: Planner) -> bool:
    """Add ``(x - mean) * scale + beta``, with a number of each per channel, as a single primitive if faster.

    The primitive is faster if ``x`` is stored narrower than declared, and channels lie innermost or in blocks: post-ops
    of oneDNN 3.2 look up their operands again for each vector, and take twice as long. In float32 the primitive writes
    past the caches, and the reader of the result loses the time again. Among followers, the primitive computes only
    ReLU, and no ReLU of values declared narrow.
    """
    product = planner.graph.follower(call)
    total = product and planner.graph.follower(product)
    if total is None or product is None or (call.op, product.op, total.op) != _SPELLED:
        return False
    next_call = planner.graph.follower(total)
    if not call.result == product.result == total.result or (
        next_call is not None and next_call.op in _BETTER_POST_OPS
    ):
        return False
    location = planner.stored_location(call.inputs[0])
    rank, channels = len(location.desc.sizes), location.desc.sizes[1:2]
    if location.desc.dtype == call.result.dtype or rank < 2:
        return False
    sides = (find_side(call), find_side(product, call.output), find_side(total, product.output))
    per_channel = (1, *channels, *[1] * (rank - 2))
    operands = [side.other for side in sides if not isinstance(side, str) and side.sizes == per_channel]
    if len(operands) < len(sides) or not all(map(planner.is_available, operands)):
        return False
    image = _as_rows(planner, location.desc)
    primitive = planner.factory.batch_normalization(image, _HALF)
    if primitive is None or "jit" not in primitive.implementation:
        return False
    row = planner.row_major(channels)
    mean, scale, beta = (planner.row_major_location(id_, "float32").view_as(row) for id_ in operands)
    halves = np.full(row.sizes, _HALF, np.float32)
    variance = planner.add_constant(str(_HALF), f"{len(halves)} times {_HALF}", lambda: halves, row)
    return _add([call, product, total], planner, location, image, (scale, beta, mean, variance), _HALF) is None


_SPELLED = ("subtract", "multiply", "nn.bias_add")
_BETTER_POST_OPS = {*FUNCTIONS, *BINARIES, "nn.bias_add", "quantize"} - {"nn.relu", "nn.leaky_relu"}
_HALF = 0.5
"""Value of variance and of epsilon; the sum is 1. In the padding of blocks oneDNN assumes variance 0, so epsilon 0
would leave 0 / 0.
"""


def _as_rows(planner: Planner, desc: MemoryDesc) -> MemoryDesc:
    """Return the same memory with an image for each row if channels are innermost: threads share images best."""
    images, channels, *spatial = desc.sizes
    if len(spatial) < 2 or desc != planner.channels_last(desc.sizes, desc.dtype):
        return desc
    return planner.channels_last((images * prod(spatial[:-1]), channels, spatial[-1]), desc.dtype)


def _add(
    calls: Sequence[Call],
    planner: Planner,
    location: Location,
    view: MemoryDesc,
    parameters: Sequence[Location],
    epsilon: float,
) -> str | None:
    """Add the primitive for calls on the contents of a location, viewed as images with channels on axis 1."""
    arguments = (Argument.SCALE, Argument.SHIFT, Argument.MEAN, Argument.VARIANCE)
    operands: dict[int, Location] = {
        Argument.SRC: location.view_as(view),
        **dict(zip(arguments, parameters, strict=True)),
    }
    return add_with_followers(
        calls[0],
        planner,
        lambda post_ops: planner.factory.batch_normalization(view, epsilon, post_ops),
        lambda _: operands,
        lambda _: None,  # none of its post-ops has an operand
        lambda _: location.desc,
        head=calls[1:],
    )
