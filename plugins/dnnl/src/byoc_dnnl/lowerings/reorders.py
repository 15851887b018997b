"""Results equal to the operand with other strides, or repeated: a reorder writes the new layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import MAX_NDIMS, Argument
from byoc_dnnl.desc_facts import row_major_strides
from byoc_dnnl.handles import MemoryDesc
from byoc_dnnl.lowerings.attributes import choice, integer, integers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["lower_broadcast_to", "lower_depth_to_space", "lower_space_to_depth", "lower_tile", "repeated"]

Axis = tuple[int, int]
"""The size of an axis of the result, and the step along the axis in the operand."""


def lower_broadcast_to(call: Call, planner: Planner) -> str | None:
    """Add the operand broadcast along new axes, and axes of size 1."""
    sizes, result = sizes_of(call.operands[0]), sizes_of(call.result)
    axes = _repeated_axes(sizes, result)
    return f"{list(sizes)} cannot be broadcast to {list(result)}" if axes is None else _add(call, planner, axes)


def repeated(planner: Planner, id_: int, desc: MemoryDesc) -> Location | None:
    """Return a row-major copy of a value broadcast along axes; the value itself if already complete.

    Returns:
        ``None`` unless each size equals the size of ``desc``, or 1.
    """
    location = planner.row_major_location(id_)
    axes = _repeated_axes(location.desc.sizes, desc.sizes)
    if axes is None or location.desc.sizes == desc.sizes:
        return None if axes is None else location
    source = MemoryDesc.strided(planner.engine, desc.sizes, [step for _, step in axes], desc.dtype)
    copy = planner.allocate_temporary(location.buffer.name, desc)
    reorder = planner.factory.reorder(source, desc)
    planner.add_step("broadcast_to", reorder, {Argument.SRC: location.view_as(source), Argument.DST: copy})
    return copy


def _repeated_axes(sizes: Sequence[int], result: Sequence[int]) -> Sequence[Axis] | None:
    sizes = (*(1,) * (len(result) - len(sizes)), *sizes)
    if len(sizes) != len(result) or any(size not in (1, length) for size, length in zip(sizes, result, strict=True)):
        return None
    steps = row_major_strides(sizes)
    return [(w, step if size == w else 0) for size, w, step in zip(sizes, result, steps, strict=True)]


def lower_tile(call: Call, planner: Planner) -> str | None:
    """Add the operand repeated as a whole along each axis."""
    sizes = sizes_of(call.operands[0]) if call.operands[0].shape else ()
    repeats = integers(call, "repeats", len(sizes))
    axes: list[Axis] = []
    for size, count, step in zip(sizes, repeats, row_major_strides(sizes), strict=True):
        axes += [(count, 0), (size, step)]
    return _add(call, planner, axes)


def lower_depth_to_space(call: Call, planner: Planner) -> str | None:
    """Add an image with blocks of pixels in place of channels."""
    images, channels, height, width = sizes_of(call.operands[0])
    block = integer(call, "block_size")
    depth = channels // (block * block)
    steps = row_major_strides((images, channels, height, width))
    is_block_first = choice(call, "mode", ("DCR", "CRD")) == "DCR"
    deep, outer, inner = (1, depth * block, depth) if is_block_first else (block * block, block, 1)
    axes = (images, steps[0]), (depth, deep * steps[1]), (height, steps[2]), (block, outer * steps[1])
    return _add(call, planner, [*axes, (width, steps[3]), (block, inner * steps[1])])


def lower_space_to_depth(call: Call, planner: Planner) -> str | None:
    """Add an image with channels in place of blocks of pixels."""
    images, channels, height, width = sizes_of(call.operands[0])
    block = integer(call, "block_size")
    steps = row_major_strides((images, channels, height, width))
    deep, rows, columns = (channels, steps[1]), (block, steps[2]), (block, steps[3])
    is_block_first = choice(call, "mode", ("DCR", "CRD")) == "DCR"
    order = (rows, columns, deep) if is_block_first else (deep, rows, columns)
    pixels = (height // block, block * steps[2]), (width // block, block * steps[3])
    return _add(call, planner, [(images, steps[0]), *order, *pixels])


def _add(call: Call, planner: Planner, axes: Sequence[Axis]) -> str | None:
    """Add a reorder; each axis of the result is a run of adjacent ``axes``."""
    long_axes = [axis for axis in axes if axis[0] != 1] or [(1, 1)]
    if len(long_axes) > MAX_NDIMS:
        return f"oneDNN supports at most {MAX_NDIMS} axes"
    sizes, steps = zip(*long_axes, strict=True)
    location = planner.row_major_location(call.inputs[0])
    dtype = call.result.dtype
    source = location.view_as(MemoryDesc.strided(planner.engine, sizes, steps, dtype))
    written = planner.row_major(sizes, dtype)
    target = planner.allocate_result(call.output, planner.row_major(sizes_of(call.result), dtype)).view_as(written)
    reorder = planner.factory.reorder(source.desc, written)
    planner.add_step(call.op, reorder, {Argument.SRC: source, Argument.DST: target})
    return None
