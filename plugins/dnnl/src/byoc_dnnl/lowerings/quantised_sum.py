"""Sums of two dequantised tensors that are quantised again, as where branches of a quantised network meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.epilogue import add_with_followers, dtype_after, same
from byoc_dnnl.lowerings.quantisation import keeps_order, scalar_of
from byoc_dnnl.post_ops import PostOp, Scaling

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import PrimitiveDesc
    from byoc_dnnl.known import Quantised
    from byoc_dnnl.planner import Planner

__all__ = ["add_quantised_sum"]


def add_quantised_sum(call: Call, planner: Planner) -> bool:
    """Adds a sum of integers, with what follows up to a call of ``quantize``; whether there is a primitive for it.

    What is rounded, where zero points are subtracted after the sum, is far below a step of the result.
    """
    left, right = map(planner.quantised, call.inputs)
    if left is None or right is None or call.operands[0].shape != call.operands[1].shape:
        return False
    zeros = [_zero_of(planner, quantised) for quantised in (left, right)]
    if zeros[0] is None or zeros[1] is None:
        return False
    total = zeros[0] + zeros[1]
    shift = [PostOp(Algorithm.ELTWISE_LINEAR, 1.0, beta=-total)] if total else []
    first = left.place
    layout = first.desc.cast(planner.engine, right.place.desc.dtype)
    if layout is None:
        return False
    second = planner.reordered(right.integers, right.place, layout)

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        dtype = dtype_after(post_ops, "float32")
        target = None if dtype == "float32" else first.desc.cast(planner.engine, dtype)
        if target is None:
            return None
        scaling = Scaling({Argument.SRC: 0, Argument.SRC_1: 0})
        return planner.workshop.binary(Algorithm.BINARY_ADD, first.desc, layout, post_ops, target, scaling)

    scales = {
        Argument.SCALES | argument: planner.place_row_major(quantised.scale)
        for argument, quantised in ((Argument.SRC, left), (Argument.SRC_1, right))
    }
    given = {Argument.SRC: first, Argument.SRC_1: second, **scales}
    reason = add_with_followers(call, planner, make, lambda _: given, same, same, shift, gives_bytes=True)
    return reason is None


def _zero_of(planner: Planner, quantised: Quantised) -> float | None:
    """Gives what the integer 0 stands for with the sign turned; ``None`` where that is not known."""
    scale, zero = (scalar_of(planner, id_) for id_ in (quantised.scale, quantised.zero_point))
    return None if scale is None or zero is None or not keeps_order(planner, quantised) else scale * zero
