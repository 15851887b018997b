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
    from byoc_dnnl.plan import Place
    from byoc_dnnl.planner import Planner

__all__ = ["lower_resize"]

NDArray = npt.NDArray[Any]

_NEAREST = Algorithm.RESAMPLING_NEAREST
_MAX_SPATIAL = 3
_MOST_OFF = 2.0**-22
"""The largest permitted distance from the op's place: two units of float32, like the rounding of the weights."""
_COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "half_pixel_or_first", "half_pixel_for_nearest"),
    *("align_corners", "asymmetric"),
)


def lower_resize(call: Call, planner: Planner) -> str | None:
    """Add resampling, by nearest elements or linear interpolation.

    Not taken: cubic interpolation; sampling at places other than oneDNN's (the places of ``half_pixel`` in float32);
    more than three axes, or axes before the axes of images and channels.
    """
    method = choice(call, "method", ("nearest", "linear", "cubic"))
    if method == "cubic":
        return "oneDNN knows no cubic interpolation"
    old, new = sizes_of(call.operands[0]), sizes_of(call.result)
    axes = [in_range(call, "axes", axis) for axis in integers(call, "axes")]
    scales = [None] * len(axes) if call.attrs.get("scales") is None else numbers(call, "scales", len(axes))
    changed = []
    for axis, scale in zip(axes, scales, strict=True):
        wanted, found = _places(call, old[axis], new[axis], scale), _PLACES[method](old[axis], new[axis])
        if np.abs(wanted - found).max() > _MOST_OFF:
            return f"oneDNN samples other places along axis {axis}"
        if old[axis] != new[axis]:
            changed.append(axis)
    if not 1 <= len(changed) <= _MAX_SPATIAL:
        return "oneDNN resizes one to three axes"
    if method == "linear" and not planner.check_finite(call.inputs):
        return "oneDNN leaves out neighbours of weight 0, and a constant is not finite"
    return _add(call, planner, Algorithm.RESAMPLING_LINEAR if method == "linear" else _NEAREST, changed)


def _places(call: Call, old: int, new: int, scale: float | None) -> NDArray:
    """Return the place sampled by the op for each element of the result: the op's kernel, applied to places."""
    scales = None if scale is None else (scale,)
    words = {
        "method": choice(call, "method", ("nearest", "linear")),
        "coordinates": choice(call, "coordinates", _COORDINATES),
        "rounding": choice(call, "rounding", ("half_down", "half_up", "floor", "ceil")),
    }
    how: dict[str, Any] = {"cubic_coefficient": 0.0, "exclude_outside": False, **words}
    found = numpy_kernel("nn.resize")(np.arange(old, dtype=np.float64), axes=(0,), sizes=(new,), scales=scales, **how)
    return np.asarray(found)


def _half_pixels(old: int, new: int) -> NDArray:
    """Return the places computed by oneDNN in float32."""
    half = np.float32(0.5)
    places = (np.arange(new, dtype=np.float32) + half) * np.float32(old) / np.float32(new) - half
    return places.astype(np.float64)


def _nearest(old: int, new: int) -> NDArray:
    """Return the elements taken by oneDNN: half-pixel places, rounded, with ties away from 0."""
    places = _half_pixels(old, new)
    return np.clip(np.copysign(np.floor(np.abs(places) + 0.5), places), 0, old - 1)


def _linear(old: int, new: int) -> NDArray:
    return np.clip(_half_pixels(old, new), 0, old - 1)


_PLACES: Mapping[str, Callable[[int, int], NDArray]] = {"nearest": _nearest, "linear": _linear}


def _add(call: Call, planner: Planner, algorithm: Algorithm, axes: Sequence[int]) -> str | None:
    """Add the primitive on the operand in the present layout, or else in row-major order."""
    x = call.inputs[0]
    old, new = sizes_of(call.operands[0]), sizes_of(call.result)
    others = [axis for axis in range(len(old)) if axis not in axes]
    place = planner.place(x)
    for images, channels in combinations(others, 2) if len(old) <= _MAX_SPATIAL + 2 else ():
        order = (images, channels, *(axis for axis in range(len(old)) if axis not in (images, channels)))
        source = place.desc.permuted(order)
        made = planner.workshop.resampling(algorithm, source, planner.any([new[axis] for axis in order]))
        if made is not None and planner.accepts(made):
            target = made.memory_desc(Query.DST_MD)
            result = planner.result(call.output, target.permuted([order.index(axis) for axis in range(len(order))]))
            given: dict[int, Place] = {Argument.SRC: place.seen_as(source), Argument.DST: result.seen_as(target)}
            planner.add_step(call.op, made, given)
            return None
    if axes[0] != len(others):
        return "oneDNN resizes the axes behind those of images and channels"
    kept = prod(old[: len(others)])
    source, target = (planner.row_major((1, kept, *sizes[len(others) :])) for sizes in (old, new))
    made = planner.workshop.resampling(algorithm, source, target)
    if made is None or not planner.accepts(made):
        return "oneDNN has only its reference implementation"
    place = planner.place_row_major(x)
    written = planner.result(call.output, planner.row_major(new)).seen_as(target)
    planner.add_step(call.op, made, {Argument.SRC: place.seen_as(source), Argument.DST: written})
    return None
