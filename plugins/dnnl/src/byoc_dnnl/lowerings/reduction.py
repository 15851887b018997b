"""Sums, means, products and extremes along axes.

oneDNN's reduction is fast for the innermost axes; axes further out are reduced as the windows of a pooling.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument
from byoc_dnnl.handles import MemoryDesc
from byoc_dnnl.lowerings.attributes import in_range, integers
from byoc_dnnl.post_ops import PostOp
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import PrimitiveDesc
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["REDUCTIONS", "lower_reduction"]

REDUCTIONS: Mapping[str, Algorithm] = {
    "max": Algorithm.REDUCTION_MAX,
    "mean": Algorithm.REDUCTION_MEAN,
    "min": Algorithm.REDUCTION_MIN,
    "prod": Algorithm.REDUCTION_MUL,
    "sum": Algorithm.REDUCTION_SUM,
}

_POOLINGS: Mapping[str, Algorithm] = {
    "max": Algorithm.POOLING_MAX,
    "mean": Algorithm.POOLING_AVG_INCLUDE_PADDING,
    "sum": Algorithm.POOLING_AVG_INCLUDE_PADDING,
}
"""The pooling for each reduction; a sum is the mean of a window times the window size."""

_LOSING_NAN = ("max", "min")


def lower_reduction(call: Call, planner: Planner) -> str | None:
    """Add a primitive for each run of adjacent axes; extremes require finite elements.

    Not taken: products and least elements along axes other than the innermost.
    """
    (x,) = call.inputs
    sizes = sizes_of(call.operands[0])
    axes = range(len(sizes)) if call.attrs.get("axis") is None else integers(call, "axis")
    reduced = {in_range(call, "axis", axis) for axis in axes} if call.operands[0].shape else set[int]()
    if all(sizes[axis] == 1 for axis in reduced):
        return "there is nothing to reduce"
    if call.op in _LOSING_NAN and not planner.check_finite([x]):
        return "oneDNN loses NaN, and of this nothing is proved"
    place, order, runs = _source(planner, x, sizes, reduced)
    target = _result_desc(call, planner, order, reduced)
    while any(goes for _, goes in runs):
        number = max(index for index, (_, goes) in enumerate(runs) if goes)
        gone = runs[number][0]
        outer, inner = (prod(size for size, _ in some) for some in (runs[:number], runs[number + 1 :]))
        runs = _runs([*runs[:number], *runs[number + 1 :]])
        is_last = not any(goes for _, goes in runs)
        dtypes = place.desc.dtype, call.result.dtype if is_last else "float32"
        views = _matrices(planner, outer, gone, dtypes) if inner == 1 else _images(planner, outer, gone, inner, dtypes)
        source, kept = views
        made = (
            planner.workshop.reduction(REDUCTIONS[call.op], *views) if inner == 1 else _pooling(call, planner, *views)
        )
        if made is None or not planner.accepts(made):
            return "oneDNN has only its reference implementation"
        written = planner.result(call.output, target) if is_last else planner.temporary(call.op, kept)
        given: dict[int, Place] = {Argument.SRC: place.seen_as(source), Argument.DST: written.seen_as(kept)}
        planner.add_step(call.op, made, given)
        place = written
    return None


def _source(
    planner: Planner, x: int, sizes: tuple[int, ...], reduced: set[int]
) -> tuple[Place, tuple[int, ...], list[tuple[int, bool]]]:
    """Return the operand's place without gaps, the axes from the outermost to the innermost, and the runs of axes.

    The reduction reads a tensor as stored; pooling takes float32.
    """
    place = planner.stored(x)
    if place.desc.plain_order() is None:
        place = planner.place_row_major(x)
    order = place.desc.plain_order()
    assert order is not None  # row-major order is one
    runs = _runs([(sizes[axis], axis in reduced) for axis in order])
    if not runs[-1][1] and place.desc.dtype != planner.own_dtype(x):
        place = planner.place_in(x, place.desc.cast(planner.engine, planner.own_dtype(x)) or place.desc)
    return place, order, runs


def _runs(axes: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Return the sizes of runs of axes that are reduced, or kept, together."""
    runs: list[tuple[int, bool]] = []
    for size, goes in axes:
        if size == 1:
            continue
        if runs and runs[-1][1] is goes:
            runs[-1] = (runs[-1][0] * size, goes)
        else:
            runs.append((size, goes))
    return runs


def _matrices(planner: Planner, outer: int, gone: int, dtypes: tuple[str, str]) -> tuple[MemoryDesc, MemoryDesc]:
    return planner.row_major((outer, gone), dtypes[0]), planner.row_major((outer, 1), dtypes[1])


def _images(
    planner: Planner, outer: int, gone: int, inner: int, dtypes: tuple[str, str]
) -> tuple[MemoryDesc, MemoryDesc]:
    """Return ``(outer, gone, inner)`` as channels-last images of ``inner`` channels, and the window of each image."""
    image, pixel = ((outer, inner, height, 1) for height in (gone, 1))
    engine = planner.engine
    return (
        MemoryDesc.strided(engine, image, (gone * inner, 1, inner, inner), dtypes[0]),
        MemoryDesc.strided(engine, pixel, (inner, 1, inner, inner), dtypes[1]),
    )


def _pooling(call: Call, planner: Planner, source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc | None:
    algorithm, window = _POOLINGS.get(call.op), source.sizes[2]
    if algorithm is None:
        return None
    post_ops = [PostOp(Algorithm.ELTWISE_LINEAR, float(window))] if call.op == "sum" else []
    whole = Windows((1, 1), (1, 1), (0, 0), (0, 0))
    return planner.workshop.pooling(algorithm, source, target, (window, 1), whole, post_ops)


def _result_desc(call: Call, planner: Planner, order: tuple[int, ...], reduced: set[int]) -> MemoryDesc:
    """Return the layout of the result: the kept axes in the order of the operand's axes."""
    sizes = sizes_of(call.operands[0])
    steps: dict[int, int] = {}
    step = 1
    for axis in reversed(order):
        steps[axis] = step
        step *= 1 if axis in reduced else sizes[axis]
    kept = [axis for axis in range(len(sizes)) if len(call.result.shape) == len(sizes) or axis not in reduced]
    strides = [steps[axis] for axis in kept] or [1]
    return MemoryDesc.strided(planner.engine, sizes_of(call.result), strides, call.result.dtype)
