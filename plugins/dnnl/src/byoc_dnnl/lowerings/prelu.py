"""PReLU: slopes of channels, or of all elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Argument

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.planner import Planner

__all__ = ["lower_prelu"]


def lower_prelu(call: Call, planner: Planner) -> str | None:
    """Add PReLU; slopes have to be finite, because oneDNN multiplies slopes by 0 for positive elements.

    Not taken: constant slopes that are not finite.
    """
    x, slope = call.inputs
    sizes, slope_sizes = sizes_of(call.result), sizes_of(call.operands[1])
    if sizes != sizes_of(call.operands[0]) or len(slope_sizes) > len(sizes):
        return "the slopes cannot be broadcast to the tensor"
    if not planner.check_finite([slope]):
        return "oneDNN multiplies slopes by 0, and a constant slope is not finite"
    slopes = planner.row_major((*(1,) * (len(sizes) - len(slope_sizes)), *slope_sizes))
    for location in planner.candidate_locations(x):
        if slopes.sizes != location.desc.sizes and not location.desc.has_usual_order():
            continue  # oneDNN 3.2 finds the slopes of channels by the strides of usual layouts
        primitive = planner.factory.prelu(location.desc, slopes)
        if primitive is not None and planner.accepts(primitive):
            steepness = planner.row_major_location(slope).view_as(slopes)
            target = planner.allocate_result(call.output, location.desc)
            planner.add_step(
                call.op, primitive, {Argument.SRC: location, Argument.WEIGHTS: steepness, Argument.DST: target}
            )
            return None
    return "oneDNN has only a reference implementation"
