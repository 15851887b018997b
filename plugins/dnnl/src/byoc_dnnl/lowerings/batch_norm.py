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
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["add_spelled_batch_norm", "lower_batch_norm"]


def lower_batch_norm(call: Call, planner: Planner) -> str | None:
    """Add batch normalisation by given statistics."""
    rank, axis, epsilon = len(call.result.shape), axis_of(call), number(call, "epsilon")
    if rank < 2:
        return "oneDNN needs an axis of images and one of channels"
    others = [place for place in range(rank) if place != axis]
    order = (others[0], axis, *others[1:])
    parameters = [planner.place_row_major(id_, "float32") for id_ in call.inputs[1:]]

    def add(place: Place) -> str | None:
        if place.desc.is_blocked() and epsilon == 0:
            return "oneDNN leaves a NaN in the padding of blocks"
        return _add([call], planner, place, _as_rows(planner, place.desc.permuted(order)), parameters, epsilon)

    return first_reason(map(add, planner.ways(call.inputs[0])))


def add_spelled_batch_norm(call: Call, planner: Planner) -> bool:
    """Add ``(x - mean) * scale + beta``, with a number of each per channel, as a single primitive if faster.

    The primitive is faster if ``x`` is stored narrower than declared, and channels lie innermost or in blocks: post-ops
    of oneDNN 3.2 look up their operands again for each vector, and take twice as long. In float32 the primitive writes
    past the caches, and the reader of the result loses the time again. Among followers, the primitive computes only
    ReLU, and no ReLU of values declared narrow.
    """
    product = planner.follower(call)
    total = product and planner.follower(product)
    if total is None or product is None or (call.op, product.op, total.op) != _SPELLED:
        return False
    last = planner.follower(total)
    if not call.result == product.result == total.result or (last is not None and last.op in _BETTER_POST_OPS):
        return False
    place = planner.stored(call.inputs[0])
    rank, channels = len(place.desc.sizes), place.desc.sizes[1:2]
    if place.desc.dtype == call.result.dtype or rank < 2:
        return False
    sides = (find_side(call), find_side(product, call.output), find_side(total, product.output))
    per_channel = (1, *channels, *[1] * (rank - 2))
    others = [side.other for side in sides if not isinstance(side, str) and side.sizes == per_channel]
    if len(others) < len(sides) or not all(map(planner.is_placed, others)):
        return False
    view = _as_rows(planner, place.desc)
    made = planner.workshop.batch_normalization(view, _HALF)
    if made is None or "jit" not in made.implementation:
        return False
    row = planner.row_major(channels)
    mean, scale, beta = (planner.place_row_major(id_, "float32").seen_as(row) for id_ in others)
    halves = np.full(row.sizes, _HALF, np.float32)
    variance = planner.made_constant(str(_HALF), f"{len(halves)} times {_HALF}", halves, row)
    return _add([call, product, total], planner, place, view, (scale, beta, mean, variance), _HALF) is None


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
    place: Place,
    view: MemoryDesc,
    parameters: Sequence[Place],
    epsilon: float,
) -> str | None:
    """Add the primitive for calls on the contents of a place, seen as images with channels on axis 1."""
    arguments = (Argument.SCALE, Argument.SHIFT, Argument.MEAN, Argument.VARIANCE)
    given: dict[int, Place] = {Argument.SRC: place.seen_as(view), **dict(zip(arguments, parameters, strict=True))}
    return add_with_followers(
        calls[0],
        planner,
        lambda post_ops: planner.workshop.batch_normalization(view, epsilon, post_ops),
        lambda _: given,
        lambda _: None,  # none of its post-ops has an operand
        lambda _: place.desc,
        head=calls[1:],
    )
