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
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner
    from byoc_dnnl.unstored_values import Quantised

__all__ = ["lower_concat", "lower_permute_dims", "lower_reshape", "permuted_axes"]


def lower_reshape(call: Call, planner: Planner) -> str | None:
    """View the operand with other sizes; reorder only if neither the layout nor the reader permits a view."""
    (x, *_), sizes = call.inputs, sizes_of(call.result)
    integers = _movable(planner, x)
    if integers is not None:
        view = _viewed(planner, integers.integers, integers.location, sizes)
        if defer_integers(call.output, planner, integers._replace(location=view)) is None:
            return None

    def add_view() -> None:
        planner.set_location(call.output, _viewed(planner, x, planner.stored_location(x), sizes))

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
    if found is None or found.axis is not None or found.location.buffer.kind is Kind.CONSTANT:
        return None
    return found if planner.graph.is_read_once(id_) else None


def _viewed(planner: Planner, id_: int, location: Location, sizes: tuple[int, ...]) -> Location:
    """Return a view of a value with other sizes; reorder if the layout does not permit a view."""
    layout, view = next(_view_candidates(planner, location.desc, sizes))
    return (location if location.desc.is_row_major() else planner.reordered(id_, location, layout)).view_as(view)


def _view_candidates(
    planner: Planner, desc: MemoryDesc, sizes: tuple[int, ...]
) -> Iterator[tuple[MemoryDesc, MemoryDesc]]:
    """Yield possible layouts of a tensor, the cheapest first, each with the view with other sizes.

    If an operand other than row-major has no cheap view, a channels-last image is preferred as the result, because
    convolutions read this layout.
    """
    dtype = desc.dtype
    if not desc.is_row_major():
        blocked = desc.is_blocked() and len(desc.sizes) > 2
        for layout in (desc, *([planner.channels_last(desc.sizes, dtype)] if blocked else [])):
            view = layout.reshaped(sizes)
            if view is not None:
                yield layout, planner.row_major(sizes, dtype) if view.is_row_major() else view
        image = planner.channels_last(sizes, dtype) if len(sizes) > 3 else None
        source_layout = image and image.reshaped(desc.sizes)
        if image is not None and source_layout is not None:
            yield source_layout, image
    yield planner.row_major(desc.sizes, dtype), planner.row_major(sizes, dtype)


def lower_permute_dims(call: Call, planner: Planner) -> str | None:
    """View the operand with permuted axes."""
    (x,) = call.inputs
    axes, integers = permuted_axes(call), _movable(planner, x)
    if integers is not None and axes:
        moved = integers.location.view_as(integers.location.desc.permuted(axes))
        if defer_integers(call.output, planner, integers._replace(location=moved)) is None:
            return None

    def add_view() -> None:
        location = planner.stored_location(x)
        planner.set_location(call.output, location.view_as(location.desc.permuted(axes)) if axes else location)

    if planner.is_deferred(x) and planner.flattened(x) is None:
        planner.defer(call.output, None, add_view)
    else:
        add_view()
    return None


def permuted_axes(call: Call) -> tuple[int, ...]:
    """Return, for each axis of a permutation's result, the axis of the operand."""
    rank = len(call.result.shape)
    axes = reversed(range(rank)) if call.attrs.get("axes") is None else integers(call, "axes", rank)
    return tuple(in_range(call, "axes", axis) for axis in axes)


def lower_concat(call: Call, planner: Planner) -> str | None:
    """Add a concatenation of tensors along an axis."""
    axis = axis_of(call)
    sizes = sizes_of(call.result)
    stored = {planner.stored_location(id_).desc.dtype for id_ in call.inputs}
    dtype = stored.pop() if len(stored) == 1 else call.result.dtype
    if _joins_short_runs(call, planner, axis, sizes):
        _join_by_copies(call, planner, axis, sizes, dtype)
        return None
    for locations, target in _layout_candidates(call, planner, sizes, dtype):
        primitive = planner.factory.concat(axis, [location.desc for location in locations], target)
        if primitive is not None and planner.accepts(primitive):
            written = planner.allocate_result(call.output, primitive.memory_desc(Query.DST_MD))
            arguments = {Argument.MULTIPLE_SRC + index: location for index, location in enumerate(locations)}
            planner.add_step(call.op, primitive, {**arguments, Argument.DST: written})
            return None
    return "oneDNN has only a reference implementation"


_SHORT_NBYTES = 128
"""For shorter runs of elements, oneDNN's concatenation spends more time on calls than on copying."""

_MANY_RUNS = 256
"""The number of runs that compensates for an additional primitive."""


def _joins_short_runs(call: Call, planner: Planner, axis: int, sizes: tuple[int, ...]) -> bool:
    """Return whether a call joins many short runs of elements, as in channels-last images of few channels."""
    descs = [planner.stored_location(id_).desc for id_ in call.inputs]
    if any(desc.is_blocked() for desc in descs):
        return False
    joined = _joined(planner, descs, sizes, descs[0].dtype)
    order, num_runs = joined.plain_order(), prod(sizes) // sizes[axis]
    run_nbytes = joined.nbytes // (num_runs * len(descs))
    return order is not None and order[-1] == axis and run_nbytes < _SHORT_NBYTES and num_runs >= _MANY_RUNS


def _join_by_copies(call: Call, planner: Planner, axis: int, sizes: tuple[int, ...], dtype: str) -> None:
    """Add a copy of each operand into a part of the result."""
    locations = [planner.location_as(id_, dtype) for id_ in call.inputs]
    target = planner.allocate_result(
        call.output, _joined(planner, [location.desc for location in locations], sizes, dtype)
    )
    start = 0
    for location in locations:
        part = target.desc.part([start if k == axis else 0 for k in range(len(sizes))], location.desc.sizes)
        assert part is not None  # memory without blocks begins and ends anywhere
        add_copy(call, planner, location, target.view_as(part))
        start += location.desc.sizes[axis]


def _joined(planner: Planner, descs: Sequence[MemoryDesc], sizes: tuple[int, ...], dtype: str) -> MemoryDesc:
    """Return the layout of a concatenation of unblocked tensors: row-major if all are row-major, else channels last."""
    if len(sizes) <= 2 or all(desc.is_row_major() for desc in descs):
        return planner.row_major(sizes, dtype)
    return planner.channels_last(sizes, dtype)


def _is_image_layout(planner: Planner, desc: MemoryDesc) -> bool:
    """Return whether a tensor lies in blocks of channels, or channels last."""
    is_last = desc == planner.channels_last(desc.sizes, desc.dtype)
    return desc.is_blocked() or (is_last and not desc.is_row_major())


def _layout_candidates(
    call: Call, planner: Planner, sizes: tuple[int, ...], dtype: str
) -> Iterator[tuple[list[Location], MemoryDesc]]:
    """Yield layouts of operands, with the result's layout: unchanged if all are equal; channels last; row-major.

    Channels last is for images, if some lie channels last or in blocks; for permuted matrices, rows would be torn
    apart.
    """
    stored = [planner.location_as(id_, dtype) for id_ in call.inputs]
    if len({str(location.desc) for location in stored}) == 1:
        yield stored, planner.any_layout(sizes, dtype)
    if len(sizes) > 2 and any(_is_image_layout(planner, location.desc) for location in stored):
        descs = [planner.channels_last(location.desc.sizes, dtype) for location in stored]
        locations = [planner.location_in(id_, desc) for id_, desc in zip(call.inputs, descs, strict=True)]
        yield locations, planner.channels_last(sizes, dtype)
    yield [planner.row_major_location(id_, dtype) for id_ in call.inputs], planner.row_major(sizes, dtype)
