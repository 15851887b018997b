"""What moves elements: views of the same memory where the layout permits, concatenation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.lowerings.attributes import axis_of, in_range, integers
from byoc_dnnl.planner import sizes_of

if TYPE_CHECKING:
    from byoc_dnnl.planner import Call, Planner

__all__ = ["lower_concat", "lower_permute_dims", "lower_reshape"]


def lower_reshape(call: Call, planner: Planner) -> str | None:
    """Sees the operand with other sizes."""
    x = call.inputs[0]
    place = planner.place_row_major(x)
    planner.set_view(call.output, place.seen_as(planner.row_major(sizes_of(call.result))))
    return None


def lower_permute_dims(call: Call, planner: Planner) -> str | None:
    """Sees the operand with its axes in another order."""
    (x,) = call.inputs
    place = planner.place(x)
    rank = len(call.result.shape)
    given = reversed(range(rank)) if call.attrs.get("axes") is None else integers(call, "axes", rank)
    axes = tuple(in_range(call, "axes", axis) for axis in given)
    planner.set_view(call.output, place.seen_as(place.desc.permuted(axes)) if axes else place)
    return None


def lower_concat(call: Call, planner: Planner) -> str | None:
    """Adds what joins tensors along an axis."""
    axis = axis_of(call)
    sizes = sizes_of(call.result)
    for row_major in (False, True):
        places = [planner.place_row_major(id_) if row_major else planner.place(id_) for id_ in call.inputs]
        target = planner.row_major(sizes) if row_major else planner.any(sizes)
        made = planner.workshop.concat(axis, [place.desc for place in places], target)
        if made is not None and planner.accepts(made):
            written = planner.result(call.output, made.memory_desc(Query.DST_MD))
            arguments = {Argument.MULTIPLE_SRC + index: place for index, place in enumerate(places)}
            planner.add_step(call.op, made, {**arguments, Argument.DST: written})
            return None
    return "oneDNN has only its reference implementation"
