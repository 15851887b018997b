"""Images at other sizes, if oneDNN reads the elements required by the op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm, Argument, Query
from byoc_dnnl.lowerings.attributes import choice, in_range, integers, numbers
from byoc_dnnl.reference import numpy_kernel

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.memory_desc import MemoryDesc
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["lower_resize"]

NDArray = npt.NDArray[Any]

_NEAREST = Algorithm.RESAMPLING_NEAREST
_MAX_SPATIAL = 3
_MOST_OFF = 2.0**-22
"""The largest permitted distance from the op's coordinate: two units of float32, like the rounding of the weights."""
_MOST_UNALIGNED_NBYTES = 1 << 14
"""Bytes of operand and result up to which the result may start anywhere. Tensors larger than a core's share of the
third cache are written past the caches: by `vmovntps`, which faults outside of multiples of 64. Virtual machines of
many cores may state shares below 256 KiB."""
_COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "half_pixel_or_first", "half_pixel_for_nearest"),
    *("align_corners", "asymmetric"),
)


def lower_resize(call: Call, planner: Planner) -> str | None:
    """Add resampling, by nearest elements or linear interpolation.

    Not taken: cubic interpolation; sampling at coordinates other than oneDNN's (``half_pixel`` in float32); more than
    three axes, or axes before the axes of images and channels.
    """
    method = choice(call, "method", ("nearest", "linear", "cubic"))
    if method == "cubic":
        return "oneDNN has no cubic interpolation"
    old, new = sizes_of(call.operands[0]), sizes_of(call.result)
    axes = [in_range(call, "axes", axis) for axis in integers(call, "axes")]
    scales = [None] * len(axes) if call.attrs.get("scales") is None else numbers(call, "scales", len(axes))
    changed = []
    for axis, scale in zip(axes, scales, strict=True):
        required, found = _coordinates(call, old[axis], new[axis], scale), _SAMPLED[method](old[axis], new[axis])
        if np.abs(required - found).max() > _MOST_OFF:
            return f"oneDNN samples other coordinates along axis {axis}"
        if old[axis] != new[axis]:
            changed.append(axis)
    if not 1 <= len(changed) <= _MAX_SPATIAL:
        return "oneDNN resizes one to three axes"
    if method == "linear" and not planner.check_finite(call.inputs):
        return "oneDNN skips neighbours of weight 0, and a constant is not finite"
    return _add(call, planner, Algorithm.RESAMPLING_LINEAR if method == "linear" else _NEAREST, changed)


def _coordinates(call: Call, old: int, new: int, scale: float | None) -> NDArray:
    """Return the coordinate sampled by the op for each element of the result: the op's kernel, applied to indices."""
    scales = None if scale is None else (scale,)
    word_options = {
        "method": choice(call, "method", ("nearest", "linear")),
        "coordinates": choice(call, "coordinates", _COORDINATES),
        "rounding": choice(call, "rounding", ("half_down", "half_up", "floor", "ceil")),
    }
    options: dict[str, Any] = {"cubic_coefficient": 0.0, "exclude_outside": False, **word_options}
    found = numpy_kernel("nn.resize")(
        np.arange(old, dtype=np.float64), axes=(0,), sizes=(new,), scales=scales, **options
    )
    return np.asarray(found)


def _half_pixels(old: int, new: int) -> NDArray:
    """Return the coordinates computed by oneDNN in float32."""
    half = np.float32(0.5)
    coordinates = (np.arange(new, dtype=np.float32) + half) * np.float32(old) / np.float32(new) - half
    return coordinates.astype(np.float64)


def _nearest(old: int, new: int) -> NDArray:
    """Return the elements taken by oneDNN: half-pixel coordinates, rounded, with ties away from 0."""
    coordinates = _half_pixels(old, new)
    return np.clip(np.copysign(np.floor(np.abs(coordinates) + 0.5), coordinates), 0, old - 1)


def _linear(old: int, new: int) -> NDArray:
    return np.clip(_half_pixels(old, new), 0, old - 1)


_SAMPLED: Mapping[str, Callable[[int, int], NDArray]] = {"nearest": _nearest, "linear": _linear}


def _add(call: Call, planner: Planner, algorithm: Algorithm, axes: Sequence[int]) -> str | None:
    """Add the primitive on the operand in the present layout, or else in row-major order."""
    x = call.inputs[0]
    old, new = sizes_of(call.operands[0]), sizes_of(call.result)
    fixed_axes = [axis for axis in range(len(old)) if axis not in axes]
    location = planner.location(x)
    for images, channels in combinations(fixed_axes, 2) if len(old) <= _MAX_SPATIAL + 2 else ():
        order = (images, channels, *(axis for axis in range(len(old)) if axis not in (images, channels)))
        source = location.desc.permuted(order)
        primitive = planner.factory.resampling(algorithm, source, planner.any_layout([new[axis] for axis in order]))
        if primitive is not None and planner.accepts(primitive):
            target = primitive.memory_desc(Query.DST_MD)
            desc = target.permuted([order.index(axis) for axis in range(len(order))])
            result = _allocate(call, planner, desc, source.nbytes + target.nbytes)
            arguments: dict[int, Location] = {
                Argument.SRC: location.view_as(source),
                Argument.DST: result.view_as(target),
            }
            planner.add_step(call.op, primitive, arguments)
            return None
    if axes[0] != len(fixed_axes):
        return "oneDNN resizes only axes after the axes of images and channels"
    num_planes = prod(old[: len(fixed_axes)])
    source, target = (planner.row_major((1, num_planes, *sizes[len(fixed_axes) :])) for sizes in (old, new))
    primitive = planner.factory.resampling(algorithm, source, target)
    if primitive is None or not planner.accepts(primitive):
        return "oneDNN has only a reference implementation"
    location = planner.row_major_location(x)
    written = _allocate(call, planner, planner.row_major(new), source.nbytes + target.nbytes)
    planner.add_step(
        call.op, primitive, {Argument.SRC: location.view_as(source), Argument.DST: written.view_as(target)}
    )
    return None


def _allocate(call: Call, planner: Planner, desc: MemoryDesc, nbytes: int) -> Location:
    """Return memory for the result: an intermediate, which is aligned, if the caller's memory may fault."""
    if nbytes <= _MOST_UNALIGNED_NBYTES:
        return planner.allocate_result(call.output, desc)
    location = planner.allocate_temporary(f"%{call.output}", desc)
    planner.set_location(call.output, location)
    return location
