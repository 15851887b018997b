"""Sums and means along axes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.lowerings.attributes import in_range, integers
from byoc_dnnl.planner import sizes_of

if TYPE_CHECKING:
    from byoc_dnnl.planner import Call, Planner

__all__ = ["REDUCTIONS", "lower_reduction"]

REDUCTIONS: Mapping[str, Algorithm] = {"mean": Algorithm.REDUCTION_MEAN, "sum": Algorithm.REDUCTION_SUM}


def lower_reduction(call: Call, planner: Planner) -> str | None:
    """Adds a sum or a mean along axes."""
    (x,) = call.inputs
    sizes = sizes_of(call.operands[0])
    axes = range(len(sizes)) if call.attrs.get("axis") is None else integers(call, "axis")
    reduced = {in_range(call, "axis", axis) for axis in axes} if call.operands[0].shape else set[int]()
    kept = tuple(1 if axis in reduced else size for axis, size in enumerate(sizes))
    if kept == sizes:
        return "there is nothing to reduce"
    source, target = planner.row_major(sizes), planner.row_major(kept)
    made = planner.workshop.reduction(REDUCTIONS[call.op], source, target)
    if made is None or not planner.accepts(made):
        return "oneDNN has only its reference implementation"
    place = planner.place_row_major(x)
    written = planner.result(call.output, planner.row_major(sizes_of(call.result))).seen_as(target)
    planner.add_step(call.op, made, {Argument.SRC: place, Argument.DST: written})
    return None
