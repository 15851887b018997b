"""Functions that the core computes, since oneDNN 3.2 computes them too inexactly (ADR 45)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Argument
from byoc_dnnl.lowerings.attributes import axis_of

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["CORE_FUNCTIONS", "lower_core_function", "lower_log_softmax"]

CORE_FUNCTIONS = ("exp", "log", "nn.softplus")
"""Functions of each element that oneDNN 3.2 has, but too inexact: by 5 ULP far from 0 (exp), by 3e-6 whatever the
result (log), by 8e-6 for negative numbers (softplus)."""


def lower_core_function(call: Call, planner: Planner) -> None:
    """Adds a function of each element, of the core's, in float32: oneDNN 3.2 is inexact.

    Subnormal results of bfloat16 become 0.
    """
    (x,) = call.inputs
    place = planner.place_as(x, "float32")
    if place.desc.nbytes > 4 * prod(place.desc.sizes):  # padding has to stay zero, which a function does not leave it
        place = planner.place_in(x, planner.channels_last(place.desc.sizes))
    _add(call, planner, place)


def lower_log_softmax(call: Call, planner: Planner) -> None:
    """Adds the logarithm of softmax, of the core's, in float32: oneDNN 3.2 is wrong by 3e-6.

    Subnormal results of bfloat16 become 0.
    """
    (x,) = call.inputs
    axis, sizes = axis_of(call), sizes_of(call.result)
    order = planner.stored(x).desc.plain_order()
    if order is not None and (sizes[axis] == 1 or [one for one in order if sizes[one] > 1][-1] == axis):
        place = planner.place_as(x, "float32")
    else:
        order = (*(one for one in range(len(sizes)) if one != axis), axis)
        desc = planner.row_major([sizes[one] for one in order])
        place = planner.place_in(x, desc.permuted([order.index(one) for one in range(len(sizes))]))
    _add(call, planner, place, sizes[axis])


def _add(call: Call, planner: Planner, place: Place, columns: int = 0) -> None:
    """Adds the function; a result of a narrower dtype is rounded by a reorder behind it."""
    if call.result.dtype == "float32":
        planner.add_kernel(call.op, place, planner.result(call.output, place.desc), columns)
        return
    wide = planner.temporary(call.op, place.desc)
    planner.add_kernel(call.op, place, wide, columns)
    desc, dtype = place.desc, call.result.dtype
    target = planner.result(call.output, desc.cast(planner.engine, dtype) or planner.row_major(desc.sizes, dtype))
    reorder = planner.workshop.reorder(wide.desc, target.desc)
    planner.add_step("reorder", reorder, {Argument.SRC: wide, Argument.DST: target})
