"""Functions of each element, and operations on two tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.batch_norm import add_spelled_batch_norm
from byoc_dnnl.lowerings.epilogue import BINARIES, Side, add_with_followers, dtype_after, find_side, first_reason, same
from byoc_dnnl.lowerings.functions import functions_of
from byoc_dnnl.lowerings.quantised_sum import add_quantised_sum
from byoc_dnnl.lowerings.rearrangement import repeated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import PrimitiveDesc
    from byoc_dnnl.plan import Place
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
    return first_reason(add_functions(call, planner, place, functions) for place in planner.ways(id_))


def add_functions(call: Call, planner: Planner, place: Place, functions: Sequence[PostOp]) -> str | None:
    """Add functions of each element of a place, in order; or return the reason why oneDNN has none."""
    desc = place.desc
    if len(functions) == 1:
        (function,) = functions
        return add_with_followers(
            call,
            planner,
            lambda post_ops: planner.workshop.eltwise(function, desc, post_ops),
            lambda _: {Argument.SRC: place},
            same,
            same,
        )
    # Functions follow on operations of two operands, not on one another; the larger of x and x is x.
    return add_with_followers(
        call,
        planner,
        lambda post_ops: planner.workshop.binary(Algorithm.BINARY_MAX, desc, desc, post_ops),
        lambda _: {Argument.SRC: place, Argument.SRC_1: place},
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
        reason = first_reason(_add_binary(call, planner, side, place) for place in planner.ways(side.main))
    if reason is None or call.op == "nn.bias_add" or call.result.dtype == "bfloat16":  # copies lose subnormal numbers
        return reason
    whole = planner.row_major(sizes_of(call.result), call.result.dtype)
    left, right = (repeated(planner, id_, whole) for id_ in call.inputs)
    if left is None or right is None:
        return "the tensors cannot be repeated to the result"
    return add_with_followers(
        call,
        planner,
        lambda post_ops: planner.workshop.binary(BINARIES[call.op], whole, whole, post_ops),
        lambda _: {Argument.SRC: left, Argument.SRC_1: right},
        same,
        same,
    )


def _add_binary(call: Call, planner: Planner, side: Side, place: Place) -> str | None:
    other = side.desc(planner, place.desc)

    def make(post_ops: Sequence[PostOp]) -> PrimitiveDesc | None:
        dtype = dtype_after(post_ops, place.desc.dtype)
        target = place.desc.cast(planner.engine, dtype)
        return None if target is None else planner.workshop.binary(side.algorithm, place.desc, other, post_ops, target)

    return add_with_followers(
        call,
        planner,
        make,
        lambda _: {Argument.SRC: place, Argument.SRC_1: side.place(planner, other)},
        same,
        same,
        gives_bytes=True,
    )
