"""Sums after a quantised result, as at the end of residual blocks: computed by the primitive of the result.

The result of a primitive is quantised, dequantised, added to another dequantised tensor, and quantised again. The
primitive computes all of this before any byte is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from byoc_dnnl.capi import Algorithm
from byoc_dnnl.lowerings.quantisation import parameters_of, to_bytes
from byoc_dnnl.lowerings.quantised_terms import are_small, term_of
from byoc_dnnl.post_ops import PostOp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.unstored_values import Quantised

__all__ = ["ResidualSum", "find_residual_sum"]


@dataclass(frozen=True, slots=True)
class ResidualSum:
    """The calls from a quantised result to the quantised sum, as post-ops.

    Attributes:
        before: the calls before the sum, each with post-ops: the last results are steps of the other term's scale.
        add: the sum.
        other: the other term, as integers.
        after: the calls after the sum, each with post-ops.
    """

    before: Sequence[tuple[Call, tuple[PostOp, ...]]]
    add: Call
    other: Quantised
    after: Sequence[tuple[Call, tuple[PostOp, ...]]]


def find_residual_sum(quantize: Call, planner: Planner) -> ResidualSum | None:
    """Return the sum behind a ``quantize``, at the end of a primitive; ``None`` if there is none.

    The first rounding and saturation happen as if bytes were written. With equal scales the sum is exact. Otherwise the
    limits of :func:`~byoc_dnnl.lowerings.quantised_terms.are_small` hold.
    """
    dequantize = planner.graph.follower(quantize)
    add = planner.graph.follower(dequantize) if dequantize is not None and dequantize.op == "dequantize" else None
    if dequantize is None or add is None or add.op != "add" or add.operands[0].shape != add.operands[1].shape:
        return None
    if dequantize.inputs[0] != quantize.output:
        return None
    relu, last = None, planner.graph.follower(add)
    if last is not None and last.op == "nn.relu":
        relu, last = last, planner.graph.follower(last)
    if last is None or last.op != "quantize" or last.inputs[0] != (relu or add).output:
        return None
    (other_id,) = (id_ for id_ in add.inputs if id_ != dequantize.output)
    own, end, other = (
        parameters_of(dequantize, planner),
        parameters_of(last, planner),
        term_of(planner, planner.quantised_early(other_id)),
    )
    if own is None or own != parameters_of(quantize, planner) or end is None or other is None:
        return None
    last_post_ops = to_bytes(last, planner, other.scale)
    if last_post_ops is None or not are_small([own, other[1:]], end[0]):
        return None
    limits, (scale, zero) = np.iinfo(quantize.result.dtype), own
    in_steps = (
        PostOp(Algorithm.ELTWISE_LINEAR, float(np.float32(1) / np.float32(scale))),
        PostOp(Algorithm.ELTWISE_ROUND),
        PostOp(Algorithm.ELTWISE_CLIP, limits.min - zero, beta=limits.max - zero),
    )
    factor = float(np.float32(scale / other.scale))
    rescaled = PostOp(Algorithm.ELTWISE_LINEAR, factor, beta=-other.zero)
    before = [(quantize, in_steps), (dequantize, () if factor == 1 and other.zero == 0 else (rescaled,))]
    after = [(relu, (PostOp(Algorithm.ELTWISE_RELU),))] if relu is not None else []
    return ResidualSum(before, add, other.quantised, [*after, (last, last_post_ops)])
