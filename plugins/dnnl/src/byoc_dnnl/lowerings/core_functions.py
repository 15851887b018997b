"""Functions computed by the core, because oneDNN 3.2 is too inexact (ADR 45) or rounds differently."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.attributes import axis_of, flag, number
from byoc_dnnl.lowerings.elementwise import add_functions
from byoc_dnnl.lowerings.functions import scaled
from byoc_dnnl.plan import Kernel
from byoc_dnnl.post_ops import PostOp

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["CORE_FUNCTIONS", "ELUS", "lower_core_function", "lower_elu", "lower_log_softmax", "lower_stepwise_softmax"]

CORE_FUNCTIONS = ("exp", "log", "nn.softplus")
"""Functions of each element available in oneDNN 3.2, but too inexact: by 5 ULP far from 0 (exp), by 3e-6 for any result
(log), by 8e-6 for negative numbers (softplus).
"""

ELUS = ("nn.celu", "nn.elu", "nn.selu")
"""Functions computed in oneDNN 3.2 by ``exp(x) - 1``, with the result 0 or no right digit near 0."""


def lower_core_function(call: Call, planner: Planner) -> None:
    """Add a function of each element from the core, in float32, because oneDNN 3.2 is inexact.

    Subnormal results of bfloat16 become 0.
    """
    _add(call, planner, _without_padding(call, planner))


def _without_padding(call: Call, planner: Planner) -> Place:
    """Return the operand in float32, without padding: a function would not leave padding zero."""
    (x,) = call.inputs
    place = planner.place_as(x, "float32")
    is_padded = place.desc.nbytes > 4 * prod(place.desc.sizes)
    return planner.place_in(x, planner.channels_last(place.desc.sizes)) if is_padded else place


def lower_elu(call: Call, planner: Planner) -> str | None:
    """Add the core's ELU, in float32; a following primitive applies other parameters.

    Not taken: `nn.celu` of another ``alpha`` than 1.
    """
    alpha = number(call, "alpha")
    if call.op == "nn.celu" and alpha != 1:
        return "oneDNN's ELU has no factor within the exponential"
    # The result of ELU is negative where its operand is. With slope 0, oneDNN's ReLU gives 0 for NaN, and its ELU NaN.
    functions = (
        [PostOp(Algorithm.ELTWISE_RELU, alpha) if alpha else PostOp(Algorithm.ELTWISE_ELU)] if alpha != 1 else []
    )
    if call.op == "nn.selu":
        functions.append(scaled(number(call, "gamma")))
    place = _without_padding(call, planner)
    if not functions:
        _add(call, planner, place)
        return None
    wide = planner.temporary(call.op, place.desc)
    planner.add_kernel(Kernel("nn.elu", place, wide))
    if call.result.dtype == "float32":
        return add_functions(call, planner, wide, functions)
    # Functions follow on operations of two operands, not on one another; the larger of x and x is x.
    made = planner.workshop.binary(Algorithm.BINARY_MAX, wide.desc, wide.desc, functions)
    if made is None or not planner.accepts(made):
        return "oneDNN has only its reference implementation"
    scaled_place = planner.temporary(call.op, place.desc)
    planner.add_step(call.op, made, {Argument.SRC: wide, Argument.SRC_1: wide, Argument.DST: scaled_place})
    _add_rounding(call, planner, scaled_place)
    return None


def lower_log_softmax(call: Call, planner: Planner) -> None:
    """Add the core's logarithm of softmax, in float32, because oneDNN 3.2 is wrong by 3e-6.

    Subnormal results of bfloat16 become 0.
    """
    _add(call, planner, *_rows(call, planner))


def _rows(call: Call, planner: Planner) -> tuple[Place, int]:
    """Return the operand in float32 with contiguous elements along the call's axis, and the size of the axis."""
    (x,) = call.inputs
    axis, sizes = axis_of(call), sizes_of(call.result)
    order = planner.stored(x).desc.plain_order()
    if order is not None and (sizes[axis] == 1 or [one for one in order if sizes[one] > 1][-1] == axis):
        place = planner.place_as(x, "float32")
    else:
        order = (*(one for one in range(len(sizes)) if one != axis), axis)
        desc = planner.row_major([sizes[one] for one in order])
        place = planner.place_in(x, desc.permuted([order.index(one) for one in range(len(sizes))]))
    return place, sizes[axis]


def lower_stepwise_softmax(call: Call, planner: Planner) -> None:
    """Add the core's softmax with each step rounded to the dtype, because oneDNN rounds only the result.

    Subnormal results of bfloat16 become 0.
    """
    place, columns = _rows(call, planner)
    wide = planner.temporary(call.op, place.desc)
    zero_unseen = flag(call, "zero_unseen")
    planner.add_kernel(Kernel(call.op, place, wide, columns, call.result.dtype, zero_unseen))
    _add_rounding(call, planner, wide)


def _add(call: Call, planner: Planner, place: Place, columns: int = 0) -> None:
    """Add the function; a following reorder rounds a result of a narrower dtype."""
    op = "nn.elu" if call.op in ELUS else call.op
    if call.result.dtype == "float32":
        planner.add_kernel(Kernel(op, place, planner.result(call.output, place.desc), columns))
        return
    wide = planner.temporary(call.op, place.desc)
    planner.add_kernel(Kernel(op, place, wide, columns))
    _add_rounding(call, planner, wide)


def _add_rounding(call: Call, planner: Planner, wide: Place) -> None:
    """Add a reorder of a float32 result to the dtype of the call."""
    desc, dtype = wide.desc, call.result.dtype
    target = planner.result(call.output, desc.cast(planner.engine, dtype) or planner.row_major(desc.sizes, dtype))
    reorder = planner.workshop.reorder(wide.desc, target.desc)
    planner.add_step("reorder", reorder, {Argument.SRC: wide, Argument.DST: target})
