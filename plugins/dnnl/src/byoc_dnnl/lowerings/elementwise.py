"""Functions of each element, and operations on two tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.batch_norm import add_spelled_batch_norm
from byoc_dnnl.lowerings.epilogue import BINARIES, Side, add_with_followers, dtype_after, find_side, first_reason, same
from byoc_dnnl.lowerings.functions import functions_of
from byoc_dnnl.lowerings.quantised_sum import add_quantised_sum
from byoc_dnnl.lowerings.reorders import repeated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import PrimitiveDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.post_ops import PostOp

__all__ = ["add_functions", "lower_binary", "lower_function"]


def lower_function(call: Call, planner: Planner) -> str | None:
    """Add a function of each element; the result has the layout of the operand.

    Not taken: a `clip` with no number between the ends.
    """
    (id_,) = call.inputs
    functions = functions_of(call)
    if isinstance(functions, str):
        return functions
    return first_reason(
        add_functions(call, planner, location, functions) for location in planner.candidate_locations(id_)
    )


def add_functions(call: Call, planner: Planner, location: Location, functions: Sequence[PostOp]) -> str | None:
    """Add functions of each element of a location, in order; or return the reason why oneDNN has none."""
    desc = location.desc
    if len(functions) == 1:
        (function,) = functions
        return add_with_followers(
            call,
            planner,
            lambda post_ops: planner.factory.eltwise(function, desc, post_ops),
            lambda _: {Argument.SRC: location},
            same,
            same,
        )
    # Functions follow on operations of two operands, not on one another; the larger of x and x is x.
    return add_with_followers(
        call,
        planner,
        lambda post_ops: planner.factory.binary(Algorithm.BINARY_MAX, desc, desc, post_ops),
        lambda _: {Argument.SRC: location, Argument.SRC_1: location},
        same,
        same,
        functions,
    )


def lower_binary(call: Call, planner: Planner) -> str | None:
    """Add an operation on two tensors; a broadcast beyond oneDNN's abilities is computed before."""
    if call.op == "subtract" and add_spelled_batch_norm(call, planner):
        return None
    if call.op == "add" and add_quantised_sum(call, planner):
        return None
    side = find_side(call)
    reason: str | None = side if isinstance(side, str) else None
    if not isinstance(side, str):
        reason = first_reason(
            _add_binary(call, planner, side, location) for location in planner.candidate_locations(side.main)
        )
    if reason is None or call.op == "nn.bias_add" or call.result.dtype == "bfloat16":  # copies lose subnormal numbers
        return reason
    full_desc = planner.row_major(sizes_of(call.result), call.result.dtype)
    left_copy, right_copy = (repeated(planner, id_, full_desc) for id_ in call.inputs)
    if left_copy is None or right_copy is None:
        return "the operands cannot be broadcast to the result"
    return add_with_followers(
        call,
        planner,
        lambda post_ops: planner.factory.binary(BINARIES[call.op], full_desc, full_desc, post_ops),
        lambda _: {Argument.SRC: left_copy, Argument.SRC_1: right_copy},
        same,
        same,
    )


def _add_binary(call: Call, planner: Planner, side: Side, location: Location) -> str | None:
    other = side.desc(planner, location.desc)

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        dtype = dtype_after(post_ops, location.desc.dtype)
        target = location.desc.cast(planner.engine, dtype)
        return (
            None if target is None else planner.factory.binary(side.algorithm, location.desc, other, post_ops, target)
        )

    return add_with_followers(
        call,
        planner,
        make,
        lambda _: {Argument.SRC: location, Argument.SRC_1: side.location(planner, other)},
        same,
        same,
        accepts_quantize=True,
    )
