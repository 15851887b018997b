"""Pieces of tensors, and tensors made of pieces: a reorder copies each, between parts of memory."""

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
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["add_copy", "lower_roll", "lower_split", "lower_stack", "lower_strided_slice"]


def lower_split(call: Call, planner: Planner) -> str | None:
    """Add a copy of each part with a reader."""
    sizes = sizes_of(call.operands[0])
    axis = in_range(call, "axis", integer(call, "axis"))
    lengths = integers(call, "sections", len(call.results))
    for index, start in enumerate(accumulate([0, *lengths[:-1]])):
        if planner.is_read(call.outputs[index]):
            starts = [start if place == axis else 0 for place in range(len(sizes))]
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
            return "oneDNN walks memory forwards only"
        size = sizes[axis]
        first, last = (bound + size if bound < 0 else bound for bound in (begin, end))
        places = ((first, begin), (last, end))
        if is_strict and any(not 0 <= at <= size and not is_open_bound(bound) for at, bound in places):
            return f"a bound lies outside axis {axis}"
        starts[axis], steps[axis] = min(max(first, 0), size), step
    if len(sizes) + sum(step > 1 for step in steps) > MAX_NDIMS:
        return f"oneDNN knows no more than {MAX_NDIMS} axes"
    _add_slice(call, planner, 0, starts, steps)
    return None


def lower_stack(call: Call, planner: Planner) -> str | None:
    """Add a copy of each operand into a part of the result."""
    sizes = sizes_of(call.result)
    rank = len(sizes)
    axis = integer(call, "axis") % rank
    target = planner.result(call.output, planner.row_major(sizes, call.result.dtype))
    for index, (id_, operand) in enumerate(zip(call.inputs, call.operands, strict=True)):
        starts = [index if place == axis else 0 for place in range(rank)]
        part = target.desc.part(starts, [1 if place == axis else size for place, size in enumerate(sizes)])
        seen = part and part.reshaped(sizes_of(operand))
        assert seen is not None  # row-major memory begins and ends anywhere, and an axis of size 1 may go
        add_copy(call, planner, planner.place(id_), target.seen_as(seen))
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
    source = planner.place_row_major(call.inputs[0])
    target = planner.result(call.output, planner.row_major(sizes, call.result.dtype))
    pieces = [
        [(0, shift, size - shift), *([(size - shift, 0, shift)] if shift else [])]
        for size, shift in zip(sizes, shifts, strict=True)
    ]
    for piece in product(*pieces):
        before, after, lengths = zip(*piece, strict=True)
        seen, written = source.desc.part(before, lengths), target.desc.part(after, lengths)
        assert seen is not None
        assert written is not None
        add_copy(call, planner, source.seen_as(seen), target.seen_as(written))
    return None


def _see_scalar(call: Call, planner: Planner) -> str | None:
    """View the single element: a scalar has no axes for pieces."""
    planner.set_view(call.output, planner.place(call.inputs[0]))
    return None


def _add_slice(call: Call, planner: Planner, index: int, starts: Sequence[int], steps: Sequence[int]) -> None:
    """Add a copy of a piece of the operand as a result, in the operand's order of axes if the layout is plain."""
    x, counts = call.inputs[0], sizes_of(call.results[index])
    cuts = [_cuts(*axis) for axis in zip(sizes_of(call.operands[0]), starts, counts, steps, strict=True)]
    place = planner.place(x)
    parts = [_part(place.desc, cut) for cut in product(*cuts)]
    if None in parts:
        place = planner.place_row_major(x)
        parts = [_part(place.desc, cut) for cut in product(*cuts)]
    order = place.desc.plain_order() or range(len(counts))
    desc = planner.row_major([counts[axis] for axis in order], place.desc.dtype).permuted(
        [*map(order.index, range(len(order)))]
    )
    target = planner.result(call.outputs[index], desc)
    goals = product(*[accumulate((cut.count for cut in axis[:-1]), initial=0) for axis in cuts])
    for part, goal in zip(parts, goals, strict=True):
        assert part is not None  # row-major memory can be cut anywhere
        written = target.desc.part(goal, part.sizes)
        assert written is not None
        add_copy(call, planner, place.seen_as(part), target.seen_as(written))


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
    chosen = split and split.part([rest for _, rest, _ in blocks], [taken for _, _, taken in blocks])
    return chosen and chosen.reshaped([cut.count for cut in cuts])


def add_copy(call: Call, planner: Planner, source: Place, target: Place) -> None:
    """Add a copy between two places, each perhaps a part of a tensor."""
    reorder = planner.workshop.reorder(source.desc, target.desc)
    planner.add_step(call.op, reorder, {Argument.SRC: source, Argument.DST: target})
