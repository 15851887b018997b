"""Functions of each element, and operations on two tensors.

Taken is what oneDNN computes with the op's meaning for all numbers, NaN and infinities too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.epilogue import Side, add_with_followers, find_side, functions_of

if TYPE_CHECKING:
    from byoc_dnnl.handles import MemoryDesc
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Call, Planner

__all__ = ["lower_binary", "lower_function"]


def lower_function(call: Call, planner: Planner) -> str | None:
    """Adds a function of each element; the result lies as the operand does."""
    (id_,) = call.inputs
    if not functions_of(call):
        return "oneDNN 3.2 loses NaN without a slope"
    reason = _add_function(call, planner, planner.place(id_))
    if reason is None or planner.place(id_).desc.is_row_major():
        return reason
    return _add_function(call, planner, planner.place_row_major(id_))


def _add_function(call: Call, planner: Planner, place: Place) -> str | None:
    functions, desc = functions_of(call), place.desc
    if len(functions) == 1:
        (function,) = functions
        return add_with_followers(
            call,
            planner,
            lambda post_ops: planner.workshop.eltwise(function.algorithm, function.alpha, desc, post_ops),
            lambda _: {Argument.SRC: place},
            _same,
            _same,
        )
    # Functions follow on operations of two operands, not on one another; the larger of x and x is x.
    return add_with_followers(
        call,
        planner,
        lambda post_ops: planner.workshop.binary(Algorithm.BINARY_MAX, desc, desc, post_ops),
        lambda _: {Argument.SRC: place, Argument.SRC_1: place},
        _same,
        _same,
        functions,
    )


def lower_binary(call: Call, planner: Planner) -> str | None:
    """Adds an operation on two tensors, of which the second one's axes may be repeated."""
    side = find_side(call)
    if isinstance(side, str):
        return side
    reason = _add_binary(call, planner, side, planner.place(side.main))
    if reason is None or planner.place(side.main).desc.is_row_major():
        return reason
    return _add_binary(call, planner, side, planner.place_row_major(side.main))


def _add_binary(call: Call, planner: Planner, side: Side, place: Place) -> str | None:
    other = side.desc(planner, place.desc)
    return add_with_followers(
        call,
        planner,
        lambda post_ops: planner.workshop.binary(side.algorithm, place.desc, other, post_ops),
        lambda _: {Argument.SRC: place, Argument.SRC_1: side.place(planner, other)},
        _same,
        _same,
    )


def _same(desc: MemoryDesc) -> MemoryDesc:
    return desc
