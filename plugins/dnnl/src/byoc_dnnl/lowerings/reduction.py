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
    from byoc_dnnl.plan import Location
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
        return "all reduced axes have size 1"
    if call.op in _LOSING_NAN and not planner.check_finite([x]):
        return "oneDNN loses NaN, and the operand cannot be checked"
    location, order, runs = _source(planner, x, sizes, reduced, has_pooling=call.op in _POOLINGS)
    target = _result_desc(call, planner, order, reduced)
    while any(is_reduced for _, is_reduced in runs):
        number = max(index for index, (_, is_reduced) in enumerate(runs) if is_reduced)
        length = runs[number][0]
        outer, inner = (prod(size for size, _ in side) for side in (runs[:number], runs[number + 1 :]))
        runs = _runs([*runs[:number], *runs[number + 1 :]])
        is_last = not any(is_reduced for _, is_reduced in runs)
        dtypes = location.desc.dtype, call.result.dtype if is_last else "float32"
        views = (
            _matrices(planner, outer, length, dtypes) if inner == 1 else _images(planner, outer, length, inner, dtypes)
        )
        source, reduced_desc = views
        primitive = (
            planner.factory.reduction(REDUCTIONS[call.op], *views) if inner == 1 else _pooling(call, planner, *views)
        )
        if primitive is None or not planner.accepts(primitive):
            return "oneDNN has only a reference implementation"
        written = (
            planner.allocate_result(call.output, target)
            if is_last
            else planner.allocate_temporary(call.op, reduced_desc)
        )
        arguments: dict[int, Location] = {
            Argument.SRC: location.view_as(source),
            Argument.DST: written.view_as(reduced_desc),
        }
        planner.add_step(call.op, primitive, arguments)
        location = written
    return None


def _source(
    planner: Planner, x: int, sizes: tuple[int, ...], reduced: set[int], *, has_pooling: bool
) -> tuple[Location, tuple[int, ...], list[tuple[int, bool]]]:
    """Return the operand's location without gaps, the axes from the outermost to the innermost, and the runs of axes.

    The reduction reads a tensor as stored, or in row-major order if the axes are innermost only there and no pooling
    computes the reduction. Pooling takes float32.
    """
    location = planner.stored_location(x)
    order = location.desc.plain_order()
    runs = [] if order is None else _runs([(sizes[axis], axis in reduced) for axis in order])
    is_innermost = [is_reduced for _, is_reduced in runs] in ([True], [False, True])
    if order is None or not (has_pooling or is_innermost):
        location, order = planner.row_major_location(x), tuple(range(len(sizes)))
        runs = _runs([(sizes[axis], axis in reduced) for axis in order])
    if not runs[-1][1] and location.desc.dtype != planner.declared_dtype(x):
        location = planner.location_in(
            x, location.desc.cast(planner.engine, planner.declared_dtype(x)) or location.desc
        )
    return location, order, runs


def _runs(axes: list[tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Return the sizes of runs of axes that are reduced, or kept, together."""
    runs: list[tuple[int, bool]] = []
    for size, is_reduced in axes:
        if size == 1:
            continue
        if runs and runs[-1][1] is is_reduced:
            runs[-1] = (runs[-1][0] * size, is_reduced)
        else:
            runs.append((size, is_reduced))
    return runs


def _matrices(planner: Planner, outer: int, length: int, dtypes: tuple[str, str]) -> tuple[MemoryDesc, MemoryDesc]:
    return planner.row_major((outer, length), dtypes[0]), planner.row_major((outer, 1), dtypes[1])


def _images(
    planner: Planner, outer: int, length: int, inner: int, dtypes: tuple[str, str]
) -> tuple[MemoryDesc, MemoryDesc]:
    """Return ``(outer, gone, inner)`` as channels-last images of ``inner`` channels, and the window of each image."""
    image, pixel = ((outer, inner, height, 1) for height in (length, 1))
    engine = planner.engine
    return (
        MemoryDesc.strided(engine, image, (length * inner, 1, inner, inner), dtypes[0]),
        MemoryDesc.strided(engine, pixel, (inner, 1, inner, inner), dtypes[1]),
    )


def _pooling(call: Call, planner: Planner, source: MemoryDesc, target: MemoryDesc) -> PrimitiveDesc | None:
    algorithm, window = _POOLINGS.get(call.op), source.sizes[2]
    if algorithm is None:
        return None
    post_ops = [PostOp(Algorithm.ELTWISE_LINEAR, float(window))] if call.op == "sum" else []
    single_window = Windows((1, 1), (1, 1), (0, 0), (0, 0))
    return planner.factory.pooling(algorithm, source, target, (window, 1), single_window, post_ops)


def _result_desc(call: Call, planner: Planner, order: tuple[int, ...], reduced: set[int]) -> MemoryDesc:
    """Return the layout of the result: the kept axes in the order of the operand's axes."""
    sizes = sizes_of(call.operands[0])
    steps: dict[int, int] = {}
    step = 1
    for axis in reversed(order):
        steps[axis] = step
        step *= 1 if axis in reduced else sizes[axis]
    kept_axes = [axis for axis in range(len(sizes)) if len(call.result.shape) == len(sizes) or axis not in reduced]
    strides = [steps[axis] for axis in kept_axes] or [1]
    return MemoryDesc.strided(planner.engine, sizes_of(call.result), strides, call.result.dtype)
