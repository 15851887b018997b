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
    sizes, given = sizes_of(call.result), sizes_of(call.operands[1])
    if sizes != sizes_of(call.operands[0]) or len(given) > len(sizes):
        return "the slopes have more axes, or larger ones, than the tensor"
    if not planner.check_finite([slope]):
        return "oneDNN multiplies slopes by 0, and a constant one is not finite"
    slopes = planner.row_major((*(1,) * (len(sizes) - len(given)), *given))
    for place in planner.ways(x):
        if slopes.sizes != place.desc.sizes and not place.desc.has_usual_order():
            continue  # oneDNN 3.2 finds the slopes of channels by the strides of usual layouts
        made = planner.workshop.prelu(place.desc, slopes)
        if made is not None and planner.accepts(made):
            steepness = planner.place_row_major(slope).seen_as(slopes)
            target = planner.result(call.output, place.desc)
            planner.add_step(call.op, made, {Argument.SRC: place, Argument.WEIGHTS: steepness, Argument.DST: target})
            return None
    return "oneDNN has only its reference implementation"
