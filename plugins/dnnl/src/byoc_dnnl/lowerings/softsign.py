"""Softsign: the operand divided by one plus the magnitude."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.epilogue import add_with_followers
from byoc_dnnl.post_ops import PostOp

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.planner import Planner

__all__ = ["lower_softsign"]


def lower_softsign(call: Call, planner: Planner) -> str | None:
    """Add two primitives; the operand has to be finite, because the quotient of infinities is NaN."""
    (x,) = call.inputs
    if not planner.check_finite([x]):
        return "oneDNN has no such function, and a constant is not finite"
    location = planner.row_major_location(x)
    desc = location.desc
    # Functions follow on operations of two operands, not on one another; the larger of x and x is x.
    divisor_post_ops = [PostOp(Algorithm.ELTWISE_ABS), PostOp(Algorithm.ELTWISE_LINEAR, 1.0, beta=1.0)]
    primitive = planner.factory.binary(Algorithm.BINARY_MAX, desc, desc, divisor_post_ops)
    if primitive is None or not planner.accepts(primitive):
        return "oneDNN has only a reference implementation"
    divisor = planner.allocate_temporary(call.op, desc)
    planner.add_step(call.op, primitive, {Argument.SRC: location, Argument.SRC_1: location, Argument.DST: divisor})
    return add_with_followers(
        call,
        planner,
        lambda post_ops: planner.factory.binary(Algorithm.BINARY_DIV, desc, desc, post_ops),
        lambda _: {Argument.SRC: location, Argument.SRC_1: divisor},
        lambda found: found,
        lambda found: found,
    )
