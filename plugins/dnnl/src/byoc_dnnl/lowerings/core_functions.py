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
    from byoc_dnnl.plan import Location
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


def _without_padding(call: Call, planner: Planner) -> Location:
    """Return the operand in float32, without padding: a function would not leave padding zero."""
    (x,) = call.inputs
    location = planner.location_as(x, "float32")
    is_padded = location.desc.nbytes > 4 * prod(location.desc.sizes)
    return planner.location_in(x, planner.channels_last(location.desc.sizes)) if is_padded else location


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
    location = _without_padding(call, planner)
    if not functions:
        _add(call, planner, location)
        return None
    wide = planner.allocate_temporary(call.op, location.desc)
    planner.add_kernel(Kernel("nn.elu", location, wide))
    if call.result.dtype == "float32":
        return add_functions(call, planner, wide, functions)
    # Functions follow on operations of two operands, not on one another; the larger of x and x is x.
    primitive = planner.factory.binary(Algorithm.BINARY_MAX, wide.desc, wide.desc, functions)
    if primitive is None or not planner.accepts(primitive):
        return "oneDNN has only a reference implementation"
    scaled_location = planner.allocate_temporary(call.op, location.desc)
    planner.add_step(call.op, primitive, {Argument.SRC: wide, Argument.SRC_1: wide, Argument.DST: scaled_location})
    _add_rounding(call, planner, scaled_location)
    return None


def lower_log_softmax(call: Call, planner: Planner) -> None:
    """Add the core's logarithm of softmax, in float32, because oneDNN 3.2 is wrong by 3e-6.

    Subnormal results of bfloat16 become 0.
    """
    _add(call, planner, *_rows(call, planner))


def _rows(call: Call, planner: Planner) -> tuple[Location, int]:
    """Return the operand in float32 with contiguous elements along the call's axis, and the size of the axis."""
    (x,) = call.inputs
    axis, sizes = axis_of(call), sizes_of(call.result)
    order = planner.stored_location(x).desc.plain_order()
    if order is not None and (sizes[axis] == 1 or [index for index in order if sizes[index] > 1][-1] == axis):
        location = planner.location_as(x, "float32")
    else:
        order = (*(index for index in range(len(sizes)) if index != axis), axis)
        desc = planner.row_major([sizes[index] for index in order])
        location = planner.location_in(x, desc.permuted([order.index(index) for index in range(len(sizes))]))
    return location, sizes[axis]


def lower_stepwise_softmax(call: Call, planner: Planner) -> None:
    """Add the core's softmax with each step rounded to the dtype, because oneDNN rounds only the result.

    Subnormal results of bfloat16 become 0.
    """
    location, columns = _rows(call, planner)
    wide = planner.allocate_temporary(call.op, location.desc)
    zero_unseen = flag(call, "zero_unseen")
    planner.add_kernel(Kernel(call.op, location, wide, columns, call.result.dtype, zero_unseen))
    _add_rounding(call, planner, wide)


def _add(call: Call, planner: Planner, location: Location, columns: int = 0) -> None:
    """Add the function; a following reorder rounds a result of a narrower dtype."""
    op = "nn.elu" if call.op in ELUS else call.op
    if call.result.dtype == "float32":
        planner.add_kernel(Kernel(op, location, planner.allocate_result(call.output, location.desc), columns))
        return
    wide = planner.allocate_temporary(call.op, location.desc)
    planner.add_kernel(Kernel(op, location, wide, columns))
    _add_rounding(call, planner, wide)


def _add_rounding(call: Call, planner: Planner, wide: Location) -> None:
    """Add a reorder of a float32 result to the dtype of the call."""
    desc, dtype = wide.desc, call.result.dtype
    target = planner.allocate_result(
        call.output, desc.cast(planner.engine, dtype) or planner.row_major(desc.sizes, dtype)
    )
    reorder = planner.factory.reorder(wide.desc, target.desc)
    planner.add_step("reorder", reorder, {Argument.SRC: wide, Argument.DST: target})
