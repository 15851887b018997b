"""Functions that the core computes, since oneDNN 3.2 computes them too inexactly (ADR 45)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.lowerings.attributes import axis_of
from byoc_dnnl.planner import sizes_of

if TYPE_CHECKING:
    from byoc_dnnl.planner import Call, Planner

__all__ = ["CORE_FUNCTIONS", "lower_core_function", "lower_log_softmax"]

CORE_FUNCTIONS = ("exp", "log", "nn.softplus")
"""Functions of each element that oneDNN 3.2 has, but too inexact: by 5 ULP far from 0 (exp), by 3e-6 whatever the
result (log), by 8e-6 for negative numbers (softplus)."""


def lower_core_function(call: Call, planner: Planner) -> None:
    """Adds a function of each element, of the core's: oneDNN 3.2 is inexact."""
    size = 4 * prod(sizes_of(call.result))
    # Padding has to stay zero, which is not what a function gives for it.
    ways = planner.ways(call.inputs[0])
    place = next(place for place in ways if place.desc.dtype == "float32" and place.desc.nbytes == size)
    planner.add_kernel(call.op, place, planner.result(call.output, place.desc))


def lower_log_softmax(call: Call, planner: Planner) -> None:
    """Adds the logarithm of softmax, of the core's: oneDNN 3.2 is wrong by 3e-6."""
    (x,) = call.inputs
    axis, sizes = axis_of(call), sizes_of(call.result)
    place = planner.place(x)
    order = place.desc.plain_order()
    if order is None or (sizes[axis] > 1 and [one for one in order if sizes[one] > 1][-1] != axis):
        order = (*(one for one in range(len(sizes)) if one != axis), axis)
        desc = planner.row_major([sizes[one] for one in order])
        place = planner.place_in(x, desc.permuted([order.index(one) for one in range(len(sizes))]))
    planner.add_kernel(call.op, place, planner.result(call.output, place.desc), sizes[axis])
