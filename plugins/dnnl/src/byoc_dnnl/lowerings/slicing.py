"""Slices of tensors, and tensors assembled from parts: a reorder copies each, between parts of memory."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, product
from typing import TYPE_CHECKING

from byoc_core.opset import is_open_bound

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import MAX_NDIMS, Argument
from byoc_dnnl.lowerings.attributes import choice, in_range, integer, integers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["add_copy", "lower_roll", "lower_split", "lower_stack", "lower_strided_slice"]


def lower_split(call: Call, planner: Planner) -> str | None:
    """Add a copy of each part with a reader."""
    sizes = sizes_of(call.operands[0])
    axis = in_range(call, "axis", integer(call, "axis"))
    lengths = integers(call, "sections", len(call.results))
    for index, start in enumerate(accumulate([0, *lengths[:-1]])):
        if planner.graph.is_read(call.outputs[index]):
            starts = [start if index_axis == axis else 0 for index_axis in range(len(sizes))]
            _add_slice(call, planner, index, starts, [1] * len(sizes))
    return None


def lower_strided_slice(call: Call, planner: Planner) -> str | None:
    """Add a copy of every n-th slice between two bounds.

    Not taken: negative steps.
    """
    if not call.operands[0].shape:
        return _see_scalar(call, planner)
    sizes = sizes_of(call.operands[0])
    axes = [in_range(call, "axes", axis) for axis in integers(call, "axes")]
    bounds = [integers(call, name, len(axes)) for name in ("begin", "end", "strides")]
    is_strict = choice(call, "mode", ("clip", "strict")) == "strict"
    starts, steps = [0] * len(sizes), [1] * len(sizes)
    for axis, begin, end, step in zip(axes, *bounds, strict=True):
        if step < 1:
            return "oneDNN does not support negative strides"
        size = sizes[axis]
        first, last = (bound + size if bound < 0 else bound for bound in (begin, end))
        bounds_in_axis = ((first, begin), (last, end))
        if is_strict and any(not 0 <= at <= size and not is_open_bound(bound) for at, bound in bounds_in_axis):
            return f"a bound lies outside axis {axis}"
        starts[axis], steps[axis] = min(max(first, 0), size), step
    if len(sizes) + sum(step > 1 for step in steps) > MAX_NDIMS:
        return f"oneDNN supports at most {MAX_NDIMS} axes"
    _add_slice(call, planner, 0, starts, steps)
    return None


def lower_stack(call: Call, planner: Planner) -> str | None:
    """Add a copy of each operand into a part of the result."""
    sizes = sizes_of(call.result)
    rank = len(sizes)
    axis = integer(call, "axis") % rank
    target = planner.allocate_result(call.output, planner.row_major(sizes, call.result.dtype))
    for index, (id_, operand) in enumerate(zip(call.inputs, call.operands, strict=True)):
        starts = [index if index_axis == axis else 0 for index_axis in range(rank)]
        part = target.desc.part(starts, [1 if index_axis == axis else size for index_axis, size in enumerate(sizes)])
        view = part and part.reshaped(sizes_of(operand))
        assert view is not None  # row-major memory begins and ends anywhere, and an axis of size 1 may go
        add_copy(call, planner, planner.location(id_), target.view_as(view))
    return None


def lower_roll(call: Call, planner: Planner) -> str | None:
    """Add a copy of each piece that moves as a whole: two for each axis."""
    if not call.operands[0].shape:
        return _see_scalar(call, planner)
    sizes = sizes_of(call.operands[0])
    axes = [in_range(call, "axis", axis) for axis in integers(call, "axis")]
    shifts = [0] * len(sizes)
    for axis, shift in zip(axes, integers(call, "shift", len(axes)), strict=True):
        shifts[axis] = shift % sizes[axis]
    source = planner.row_major_location(call.inputs[0])
    target = planner.allocate_result(call.output, planner.row_major(sizes, call.result.dtype))
    blocks = [
        [(0, shift, size - shift), *([(size - shift, 0, shift)] if shift else [])]
        for size, shift in zip(sizes, shifts, strict=True)
    ]
    for block in product(*blocks):
        before, after, lengths = zip(*block, strict=True)
        source_part, target_part = source.desc.part(before, lengths), target.desc.part(after, lengths)
        assert source_part is not None
        assert target_part is not None
        add_copy(call, planner, source.view_as(source_part), target.view_as(target_part))
    return None


def _see_scalar(call: Call, planner: Planner) -> str | None:
    """View the single element: a scalar has no axes for pieces."""
    planner.set_location(call.output, planner.location(call.inputs[0]))
    return None


def _add_slice(call: Call, planner: Planner, index: int, starts: Sequence[int], steps: Sequence[int]) -> None:
    """Add a copy of a piece of the operand as a result, in the operand's order of axes if the layout is plain."""
    x, counts = call.inputs[0], sizes_of(call.results[index])
    cuts = [_cuts(*axis) for axis in zip(sizes_of(call.operands[0]), starts, counts, steps, strict=True)]
    location = planner.location(x)
    parts = [_part(location.desc, cut) for cut in product(*cuts)]
    if None in parts:
        location = planner.row_major_location(x)
        parts = [_part(location.desc, cut) for cut in product(*cuts)]
    order = location.desc.plain_order() or range(len(counts))
    desc = planner.row_major([counts[axis] for axis in order], location.desc.dtype).permuted(
        [*map(order.index, range(len(order)))]
    )
    target = planner.allocate_result(call.outputs[index], desc)
    target_starts = product(*[accumulate((cut.count for cut in axis[:-1]), initial=0) for axis in cuts])
    for part, start in zip(parts, target_starts, strict=True):
        assert part is not None  # row-major memory can be cut anywhere
        target_part = target.desc.part(start, part.sizes)
        assert target_part is not None
        add_copy(call, planner, location.view_as(part), target.view_as(target_part))


@dataclass(frozen=True, slots=True)
class _Cut:
    """Elements along an axis: element ``rest`` of each of ``count`` blocks of ``step`` elements, from ``start``."""

    start: int
    count: int
    step: int
    rest: int


def _cuts(size: int, start: int, count: int, step: int) -> list[_Cut]:
    """Return the elements as whole blocks within the axis, and the last element alone if needed."""
    if count == 1 or step == 1:
        return [_Cut(start, count, 1, 0)]
    if count * step > size:
        last = start + (count - 1) * step
        return [*_cuts(size, start, count - 1, step), _Cut(last, 1, 1, 0)]
    rest = max(0, start + count * step - size)
    return [_Cut(start - rest, count, step, rest)]


def _part(desc: MemoryDesc, cuts: Sequence[_Cut]) -> MemoryDesc | None:
    """Return elements of a tensor; ``None`` if the layout does not permit a separate view."""
    part = desc.part([cut.start for cut in cuts], [cut.count * cut.step for cut in cuts])
    if part is None or all(cut.step == 1 for cut in cuts):
        return part
    blocks: list[tuple[int, int, int]] = []
    for cut in cuts:
        blocks += [(cut.count, 0, cut.count), *([(cut.step, cut.rest, 1)] if cut.step > 1 else [])]
    split = part.reshaped([size for size, _, _ in blocks])
    elements = split and split.part([rest for _, rest, _ in blocks], [length for _, _, length in blocks])
    return elements and elements.reshaped([cut.count for cut in cuts])


def add_copy(call: Call, planner: Planner, source: Location, target: Location) -> None:
    """Add a copy between two locations, each perhaps a part of a tensor."""
    reorder = planner.factory.reorder(source.desc, target.desc)
    planner.add_step(call.op, reorder, {Argument.SRC: source, Argument.DST: target})
