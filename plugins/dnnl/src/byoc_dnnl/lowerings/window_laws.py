"""The geometry of windows that slide over images: the laws between attributes and declared sizes, and bounds.

An attribute of a document from a file may be any integer. Lowerings read windows through :func:`geometry_of`, after the
law of the op has held: the numbers that oneDNN reads are then of the order of the tensors' sizes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_core.errors import ArtifactError

from byoc_dnnl.calls import shape_of
from byoc_dnnl.capi import MAX_INT
from byoc_dnnl.lowerings.attributes import axes_of_layout, flag, integer, integers, require_operand
from byoc_dnnl.lowerings.phases import Geometry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call

__all__ = [
    "MAX_TAPS",
    "adaptive_pooling_shape",
    "convolution_shape",
    "declines_windows",
    "deconvolution_shape",
    "geometry_of",
    "pooling_shape",
    "spatial_rank",
]

Shape = tuple[int, ...]

MAX_TAPS = 1 << 16
"""The largest number of taps of a pooling window along one axis: oneDNN unrolls the taps of a row when it generates
code, and generates it without the interpreter's lock."""


def spatial_rank(call: Call) -> int:
    """Return the number of axes that windows go along: the digit in the op's name.

    Raises:
        ArtifactError: the operand has another rank; only a document from a file can say so.
    """
    rank = int(next(letter for letter in call.op if letter.isdigit()))
    if len(call.operands[0].shape) != rank + 2:
        got = len(call.operands[0].shape)
        raise ArtifactError(f"`{call.op}`", "has an operand of a wrong rank", got=got, expected=rank + 2)
    return rank


def convolution_shape(call: Call) -> Shape:
    """Return the shape of a convolution's result.

    Raises:
        ArtifactError: the attributes and operands do not fit one another.
    """
    rank = spatial_rank(call)
    places, kernel_places = _image_axes(call), axes_of_layout(call, "kernel_layout", "OI", rank)
    batch, channels, *image = _chosen(shape_of(call.operands[0]), places)
    weight = shape_of(call.operands[1])
    outputs, _, *window = _chosen(weight, kernel_places)
    groups = _groups(call, channels, outputs)
    wanted = [outputs, channels // groups, *window]
    require_operand(call, 1, [wanted[kernel_places.index(axis)] for axis in range(rank + 2)])
    stated = _stated(call, rank)
    counts = [_count(call, *axis) for axis in zip(image, window, *stated, strict=True)]
    return _restored((batch, outputs, *counts), places)


def deconvolution_shape(call: Call) -> Shape:
    """Return the shape of a transposed convolution's result.

    Raises:
        ArtifactError: the attributes and operands do not fit one another.
    """
    rank = spatial_rank(call)
    places, kernel_places = _image_axes(call), axes_of_layout(call, "kernel_layout", "IO", rank)
    batch, channels, *image = _chosen(shape_of(call.operands[0]), places)
    _, per_group, *window = _chosen(shape_of(call.operands[1]), kernel_places)
    groups = _groups(call, channels)
    wanted = [channels, per_group, *window]
    require_operand(call, 1, [wanted[kernel_places.index(axis)] for axis in range(rank + 2)])
    longer = _at_least(call, "output_padding", rank, 0)
    sizes = []
    for size, taps, stride, dilation, begin, end, more in zip(image, window, *_stated(call, rank), longer, strict=True):
        whole = (size - 1) * stride + (taps - 1) * dilation + 1
        if whole + more <= begin + end:
            problem = "attribute `padding` leaves nothing of the result"
            raise ArtifactError(f"`{call.op}`", problem, got=begin + end, expected=f"less than {whole + more}")
        sizes.append(whole + more - begin - end)
    return _restored((batch, per_group * groups, *sizes), places)


def pooling_shape(call: Call) -> Shape:
    """Return the shape of a pooling's result.

    Raises:
        ArtifactError: a window is larger than the padded image, or not larger than the padding on one side.
    """
    rank, places = spatial_rank(call), _image_axes(call)
    batch, channels, *image = _chosen(shape_of(call.operands[0]), places)
    window = _at_least(call, "pool_size", rank, 1)
    has_partial = flag(call, "ceil_mode")
    stated = _stated(call, rank)
    _, dilation, before, after = stated
    for taps, spread, *around in zip(window, dilation, before, after, strict=True):
        if max(around) > (taps - 1) * spread:
            problem = "attribute `padding` is not smaller than the window"
            raise ArtifactError(
                f"`{call.op}`", problem, got=max(around), expected=f"less than {(taps - 1) * spread + 1}"
            )
    counts = [_count(call, *axis, has_partial=has_partial) for axis in zip(image, window, *stated, strict=True)]
    return _restored((batch, channels, *counts), places)


def adaptive_pooling_shape(call: Call) -> Shape:
    """Return the shape of an adaptive pooling's result."""
    rank, places = spatial_rank(call), _image_axes(call)
    batch, channels, *_ = _chosen(shape_of(call.operands[0]), places)
    return _restored((batch, channels, *_at_least(call, "output_size", rank, 1)), places)


def geometry_of(call: Call, rank: int) -> Geometry:
    """Return the windows of a call whose law holds, with steps no longer than the padded image.

    A longer stride or dilation is never taken: one window or one tap fits along such an axis.
    """
    strides, dilation, before, after = _stated(call, rank)
    places = _image_axes(call)[2:]
    sizes = _chosen(shape_of(call.result if "_transpose" in call.op else call.operands[0]), places)
    longest = [max(1, size + begin + end) for size, begin, end in zip(sizes, before, after, strict=True)]
    return Geometry(_limited(strides, longest), _limited(dilation, longest), before, after)


def declines_windows(call: Call) -> str | None:
    """Return the reason why oneDNN does not get the windows of a call: the padded image or its windows are too large.

    The call's law holds.
    """
    rank = len(call.operands[0].shape) - 2
    if "_transpose" in call.op:
        return _declines_image(call, call.result.shape, rank)
    if call.op.startswith("nn.conv"):
        return _declines_image(call, call.operands[0].shape, rank)
    if "_pool" not in call.op or call.op.startswith("nn.adaptive"):
        return None
    if max(integers(call, "pool_size", rank)) > MAX_TAPS:
        return f"oneDNN would generate code for more than {MAX_TAPS} taps"
    return _declines_image(call, call.operands[0].shape, rank)


def _declines_image(call: Call, shape: Sequence[object], rank: int) -> str | None:
    """Return a reason if the image that windows go over has more elements with its padding than oneDNN counts."""
    padding = integers(call, "padding", 2 * rank)
    longer = integers(call, "output_padding", rank) if "output_padding" in call.attrs else (0,) * rank
    around = [begin + end + more for begin, end, more in zip(padding[:rank], padding[rank:], longer, strict=True)]
    places = _image_axes(call)
    sizes = [dim for dim in shape if isinstance(dim, int)]
    for axis, width in zip(places[2:], around, strict=True):
        sizes[axis] += width
    return f"with its padding an image has more than {MAX_INT} elements" if prod(sizes) > MAX_INT else None


def _image_axes(call: Call) -> tuple[int, ...]:
    return axes_of_layout(call, "data_layout" if "nn.conv" in call.op else "layout", "NC", spatial_rank(call))


def _chosen(sizes: Sequence[int], places: Sequence[int]) -> tuple[int, ...]:
    return tuple(sizes[place] for place in places)


def _restored(sizes: Sequence[int], places: Sequence[int]) -> Shape:
    """Return sizes ``(N, C, ...)`` in the order of the call's axes."""
    return tuple(sizes[places.index(axis)] for axis in range(len(places)))


def _groups(call: Call, *counts: int) -> int:
    groups = integer(call, "groups")
    if groups < 1 or any(count % groups for count in counts):
        expected = " and ".join(map(str, counts))
        raise ArtifactError(f"`{call.op}`", "has groups that do not divide its channels", got=groups, expected=expected)
    return groups


def _stated(call: Call, rank: int) -> tuple[Shape, Shape, Shape, Shape]:
    """Return strides, dilation, padding before, padding after."""
    padding = _at_least(call, "padding", 2 * rank, 0)
    strides, dilation = (_at_least(call, name, rank, 1) for name in ("strides", "dilation"))
    return strides, dilation, padding[:rank], padding[rank:]


def _at_least(call: Call, name: str, count: int, least: int) -> Shape:
    values = integers(call, name, count)
    if any(value < least for value in values):
        where = f"attribute `{name}` of `{call.op}`"
        raise ArtifactError(where, "has a value that is too small", got=values, expected=f"{least} or more")
    return values


def _count(
    call: Call, size: int, taps: int, stride: int, dilation: int, begin: int, end: int, *, has_partial: bool = False
) -> int:
    """Return how many windows fit along an axis."""
    reach = (taps - 1) * dilation + 1
    room = size + begin + end - reach
    if room < 0:
        problem = "an axis of the padded image is smaller than the window"
        raise ArtifactError(f"`{call.op}`", problem, got=size + begin + end, expected=f"{reach} or more")
    if has_partial:
        return min(-(-room // stride) + 1, -(-(size + begin) // stride))
    return room // stride + 1


def _limited(steps: Sequence[int], longest: Sequence[int]) -> Shape:
    return tuple(min(step, limit) for step, limit in zip(steps, longest, strict=True))
