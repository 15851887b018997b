"""Movement of elements: views of the same memory if the layout permits, and concatenation."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Argument, Query
from byoc_dnnl.lowerings.attributes import axis_of, in_range, integers
from byoc_dnnl.lowerings.flattening import find_flattened
from byoc_dnnl.lowerings.quantisation import defer_integers
from byoc_dnnl.lowerings.slicing import add_copy
from byoc_dnnl.plan import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.handles import MemoryDesc
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.unstored_values import Quantised

__all__ = ["lower_concat", "lower_permute_dims", "lower_reshape", "permuted_axes"]


def lower_reshape(call: Call, planner: Planner) -> str | None:
    """View the operand with other sizes; reorder only if neither the layout nor the reader permits a view."""
    (x, *_), sizes = call.inputs, sizes_of(call.result)
    integers = _movable(planner, x)
    if integers is not None:
        seen = _seen(planner, integers.integers, integers.place, sizes)
        if defer_integers(call.output, planner, integers._replace(place=seen)) is None:
            return None

    def add_view() -> None:
        planner.set_view(call.output, _seen(planner, x, planner.stored(x), sizes))

    flat = find_flattened(call, planner)
    if flat is None:
        add_view()
    else:
        planner.defer(call.output, flat, add_view)
    return None


def _movable(planner: Planner, id_: int) -> Quantised | None:
    """Return the integers behind a dequantised value, if the integers can be moved instead of the value.

    The integers have a single scale, and the value has a single reader; otherwise the value would be dequantised twice.
    Constants are dequantised once for all.
    """
    found = planner.quantised(id_)
    if found is None or found.axis is not None or found.place.buffer.kind is Kind.CONSTANT:
        return None
    return found if planner.is_read_once(id_) else None


def _seen(planner: Planner, id_: int, place: Place, sizes: tuple[int, ...]) -> Place:
    """Return a view of a value with other sizes; reorder if the layout does not permit a view."""
    lying, seen = next(_ways_to_see(planner, place.desc, sizes))
    return (place if place.desc.is_row_major() else planner.reordered(id_, place, lying)).seen_as(seen)


def _ways_to_see(planner: Planner, desc: MemoryDesc, sizes: tuple[int, ...]) -> Iterator[tuple[MemoryDesc, MemoryDesc]]:
    """Yield possible layouts of a tensor, the cheapest first, each with the view with other sizes.

    If an operand other than row-major has no cheap view, a channels-last image is preferred as the result, because
    convolutions read this layout.
    """
    dtype = desc.dtype
    if not desc.is_row_major():
        blocked = desc.is_blocked() and len(desc.sizes) > 2
        for lying in (desc, *([planner.channels_last(desc.sizes, dtype)] if blocked else [])):
            seen = lying.reshaped(sizes)
            if seen is not None:
                yield lying, planner.row_major(sizes, dtype) if seen.is_row_major() else seen
        image = planner.channels_last(sizes, dtype) if len(sizes) > 3 else None
        lies_so = image and image.reshaped(desc.sizes)
        if image is not None and lies_so is not None:
            yield lies_so, image
    yield planner.row_major(desc.sizes, dtype), planner.row_major(sizes, dtype)


def lower_permute_dims(call: Call, planner: Planner) -> str | None:
    """View the operand with permuted axes."""
    (x,) = call.inputs
    axes, integers = permuted_axes(call), _movable(planner, x)
    if integers is not None and axes:
        moved = integers.place.seen_as(integers.place.desc.permuted(axes))
        if defer_integers(call.output, planner, integers._replace(place=moved)) is None:
            return None
    place = planner.stored(x)
    planner.set_view(call.output, place.seen_as(place.desc.permuted(axes)) if axes else place)
    return None


def permuted_axes(call: Call) -> tuple[int, ...]:
    """Return, for each axis of a permutation's result, the axis of the operand."""
    rank = len(call.result.shape)
    given = reversed(range(rank)) if call.attrs.get("axes") is None else integers(call, "axes", rank)
    return tuple(in_range(call, "axes", axis) for axis in given)


def lower_concat(call: Call, planner: Planner) -> str | None:
    """Add a concatenation of tensors along an axis."""
    axis = axis_of(call)
    sizes = sizes_of(call.result)
    stored = {planner.stored(id_).desc.dtype for id_ in call.inputs}
    dtype = stored.pop() if len(stored) == 1 else call.result.dtype
    if _joins_short_runs(call, planner, axis, sizes):
        _join_by_copies(call, planner, axis, sizes, dtype)
        return None
    for places, target in _ways_to_join(call, planner, sizes, dtype):
        made = planner.workshop.concat(axis, [place.desc for place in places], target)
        if made is not None and planner.accepts(made):
            written = planner.result(call.output, made.memory_desc(Query.DST_MD))
            arguments = {Argument.MULTIPLE_SRC + index: place for index, place in enumerate(places)}
            planner.add_step(call.op, made, {**arguments, Argument.DST: written})
            return None
    return "oneDNN has only its reference implementation"


_SHORT_NBYTES = 128
"""For shorter runs of elements, oneDNN's concatenation spends more time on calls than on copying."""

_MANY_RUNS = 256
"""The number of runs that compensates for an additional primitive."""


def _joins_short_runs(call: Call, planner: Planner, axis: int, sizes: tuple[int, ...]) -> bool:
    """Return whether a call joins many short runs of elements, as in channels-last images of few channels."""
    descs = [planner.stored(id_).desc for id_ in call.inputs]
    if any(desc.is_blocked() for desc in descs):
        return False
    joined = _joined(planner, descs, sizes, descs[0].dtype)
    order, num_runs = joined.plain_order(), prod(sizes) // sizes[axis]
    run_nbytes = joined.nbytes // (num_runs * len(descs))
    return order is not None and order[-1] == axis and run_nbytes < _SHORT_NBYTES and num_runs >= _MANY_RUNS


def _join_by_copies(call: Call, planner: Planner, axis: int, sizes: tuple[int, ...], dtype: str) -> None:
    """Add a copy of each operand into a part of the result."""
    places = [planner.place_as(id_, dtype) for id_ in call.inputs]
    target = planner.result(call.output, _joined(planner, [place.desc for place in places], sizes, dtype))
    start = 0
    for place in places:
        part = target.desc.part([start if k == axis else 0 for k in range(len(sizes))], place.desc.sizes)
        assert part is not None  # memory without blocks begins and ends anywhere
        add_copy(call, planner, place, target.seen_as(part))
        start += place.desc.sizes[axis]


def _joined(planner: Planner, descs: Sequence[MemoryDesc], sizes: tuple[int, ...], dtype: str) -> MemoryDesc:
    """Return the layout of a concatenation of unblocked tensors: row-major if all are row-major, else channels last."""
    if len(sizes) <= 2 or all(desc.is_row_major() for desc in descs):
        return planner.row_major(sizes, dtype)
    return planner.channels_last(sizes, dtype)


def _lies_as_image(planner: Planner, desc: MemoryDesc) -> bool:
    """Return whether a tensor lies in blocks of channels, or channels last."""
    is_last = desc == planner.channels_last(desc.sizes, desc.dtype)
    return desc.is_blocked() or (is_last and not desc.is_row_major())


def _ways_to_join(
    call: Call, planner: Planner, sizes: tuple[int, ...], dtype: str
) -> Iterator[tuple[list[Place], MemoryDesc]]:
    """Yield layouts of operands, with the result's layout: unchanged if all are equal; channels last; row-major.

    Channels last is for images, if some lie channels last or in blocks; for permuted matrices, rows would be torn
    apart.
    """
    stored = [planner.place_as(id_, dtype) for id_ in call.inputs]
    if len({str(place.desc) for place in stored}) == 1:
        yield stored, planner.any(sizes, dtype)
    if len(sizes) > 2 and any(_lies_as_image(planner, place.desc) for place in stored):
        wanted = [planner.channels_last(place.desc.sizes, dtype) for place in stored]
        places = [planner.place_in(id_, desc) for id_, desc in zip(call.inputs, wanted, strict=True)]
        yield places, planner.channels_last(sizes, dtype)
    yield [planner.place_row_major(id_, dtype) for id_ in call.inputs], planner.row_major(sizes, dtype)
