"""Quantised sums of two dequantised tensors, as in merging branches of a quantised network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.epilogue import add_with_followers, dtype_after, same
from byoc_dnnl.lowerings.quantisation import scalar_of
from byoc_dnnl.lowerings.quantised_terms import are_small, term_of
from byoc_dnnl.post_ops import PostOp, Scaling

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import PrimitiveDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["add_quantised_sum"]


def add_quantised_sum(call: Call, planner: Planner) -> bool:
    """Add a sum of bytes, with the following ReLU and ``quantize``; return whether a primitive exists.

    Zero points are subtracted after the sum. With equal scales this is exact. Otherwise cancelling terms are rounded,
    and the step of the result has to be large in comparison.
    """
    found = [term_of(planner, planner.quantised(id_)) for id_ in call.inputs]
    step = _step_after(call, planner)
    if found[0] is None or found[1] is None or step is None or call.operands[0].shape != call.operands[1].shape:
        return False
    left, right = found[0], found[1]
    if left.quantised.location.desc.is_row_major():
        left, right = right, left  # images stay in the layout of convolutions
    first, second = left.quantised, right.quantised
    layout = first.location.desc.cast(planner.engine, second.location.desc.dtype)
    if layout is None or not are_small([left[1:], right[1:]], step):
        return False
    has_one_scale = left.scale == right.scale
    scaling = Scaling() if has_one_scale else Scaling({Argument.SRC: 0, Argument.SRC_1: 0})
    total = left.zero + right.zero if has_one_scale else left.zero * left.scale + right.zero * right.scale
    own = [PostOp(Algorithm.ELTWISE_LINEAR, 1.0, beta=-total)] if total else []
    own += [PostOp(Algorithm.ELTWISE_LINEAR, left.scale)] if has_one_scale else []

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        dtype = dtype_after(post_ops, "float32")
        target = None if dtype == "float32" else first.location.desc.cast(planner.engine, dtype)
        if target is None:
            return None
        return planner.factory.binary(Algorithm.BINARY_ADD, first.location.desc, layout, post_ops, target, scaling)

    def arguments(_: PrimitiveDesc) -> Mapping[int, Location]:
        scales = {
            Argument.SCALES | argument: planner.row_major_location(quantised.scale)
            for argument, quantised in ((Argument.SRC, first), (Argument.SRC_1, second))
            if argument in scaling.scales
        }
        addend = planner.reordered(second.integers, second.location, layout)
        return {Argument.SRC: first.location, Argument.SRC_1: addend, **scales}

    return add_with_followers(call, planner, make, arguments, same, same, own, accepts_quantize=True) is None


def _step_after(call: Call, planner: Planner) -> float | None:
    """Return the scale of the ``quantize`` after a call, directly or after a ReLU."""
    follower = planner.graph.follower(call)
    if follower is not None and follower.op == "nn.relu":
        follower = planner.graph.follower(follower)
    return scalar_of(planner, follower.inputs[1]) if follower is not None and follower.op == "quantize" else None
