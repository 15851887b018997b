"""Convolutions with few outputs, computed for several neighbouring pixels to fill vectors of channels.

``count`` neighbouring pixels of a row are computed together, as ``count`` times as many channels of an image narrower
by the same factor. The windows of the primitive are as wide as the windows of the pixels together; the weights of each
pixel are 0 outside the pixel's own window. Both images are the same memory, channels last. Windows of ``taps`` at steps
of ``stride`` then take ``taps + (count - 1) * stride`` multiplications by a vector, while single pixels take ``count *
taps`` (``docs/notes/pixels-as-channels.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from byoc_dnnl.capi import Isa
from byoc_dnnl.derived_constants import BlockSums, ShiftedRows

if TYPE_CHECKING:
    from byoc_dnnl.handles import MemoryDesc
    from byoc_dnnl.lowerings.images import ImageAxes
    from byoc_dnnl.plan import Location
    from byoc_dnnl.planner import Planner

__all__ = ["Form", "Geometry", "in_phases"]

_WORTH_IT = 0.8
"""The largest remaining fraction of the work that pays."""

_NEAR = 1.125
"""The permitted excess over the least work if fewer phases suffice: weights grow with the square of the phases."""


class Geometry(NamedTuple):
    """The motion of windows over spatial axes: see :class:`~byoc_dnnl.primitives.Windows`."""

    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a convolution in a primitive.

    Attributes:
        axes: the axes of the call's images.
        source: the sizes of the image read by the primitive, ``(N, I, ...)``.
        target: the sizes of the image written by the primitive, ``(N, O, ...)``.
        geometry: the motion of windows over the image.
        weights: ``(O, I, ...)``, in groups ``(G, O, I, ...)``.
        bias: ``(O,)``, if any.
        full_target: the sizes of the result as seen by ``axes``, if a pixel of ``target`` stands for several pixels.
    """

    axes: ImageAxes
    source: tuple[int, ...]
    target: tuple[int, ...]
    geometry: Geometry
    weights: Location
    bias: Location | None
    full_target: tuple[int, ...] | None = None

    @property
    def has_phases(self) -> bool:
        """Whether several pixels are computed at once."""
        return self.full_target is not None

    def to_primitive(self, planner: Planner, desc: MemoryDesc) -> MemoryDesc | None:
        """Return a description of the call's result with the axes of the primitive; ``None`` if impossible."""
        view = self.axes.to_primitive(desc)
        if self.full_target is None or view is None:
            return view
        is_channels_last = view.has_same_layout(planner.channels_last(self.full_target, desc.dtype))
        return planner.channels_last(self.target, desc.dtype) if is_channels_last else None

    def to_value(self, planner: Planner, desc: MemoryDesc) -> MemoryDesc:
        """Return a description of the primitive's result with the axes of the call."""
        return self.axes.to_value(planner.channels_last(self.full_target, desc.dtype) if self.full_target else desc)


def in_phases(form: Form, planner: Planner, weight: int, bias: int | None) -> Form | None:
    """Return the form for computing several pixels at once; ``None`` if this is impossible or saves no work.

    The source has to be finite: a NaN would be multiplied by the zeros of neighbouring pixels.

    Args:
        form: the convolution, in one group.
        planner: the plan.
        weight: the value of the weights.
        bias: the value of the bias, if any.
    """
    outputs, inputs, *window = form.weights.desc.sizes
    stride, taps, width = form.geometry.strides[-1], window[-1], form.target[-1]
    constants = [id_ for id_ in (weight, bias) if id_ is not None]
    if form.geometry.dilation[-1] != 1 or not all(map(planner.is_constant, constants)):
        return None
    if not form.weights.desc.is_row_major() or form.weights.desc.dtype != "float32":
        return None
    lanes = 16 if planner.engine.isa & Isa.AVX512_CORE == Isa.AVX512_CORE else 8
    count = _best_count(outputs, taps, stride, width, lanes)
    if count == 1:
        return None

    rows = ShiftedRows((outputs * inputs * prod(window[:-1]), taps), count, stride)
    sizes = (count * outputs, inputs, *window[:-1], rows.result_sizes[-1])
    weights = planner.derived_constant(weight, rows).view_as(planner.row_major(sizes))
    biases = None
    if bias is not None:
        copies = planner.derived_constant(bias, BlockSums((1, 1, outputs), ((0,),) * count))
        biases = copies.view_as(planner.row_major((count * outputs,)))
    strides, dilation, before, after = form.geometry
    needed = (width - 1) * stride + taps - form.source[-1] - before[-1]
    geometry = Geometry((*strides[:-1], count * stride), dilation, before, (*after[:-1], needed))
    narrow = (form.target[0], count * outputs, *form.target[2:-1], width // count)

    return replace(form, target=narrow, geometry=geometry, weights=weights, bias=biases, full_target=form.target)


def _best_count(outputs: int, taps: int, stride: int, width: int, lanes: int) -> int:
    """Return the best number of pixels computed at once; 1 if several do not pay.

    Args:
        outputs: the channels of a pixel.
        taps: of a window, along rows.
        stride: the step between windows, along rows.
        width: the pixels of a row.
        lanes: the channels in a vector.
    """

    def work(count: int) -> float:
        vectors = -(-count * outputs // lanes)
        return vectors * (taps + (count - 1) * stride) / count

    counts = [count for count in range(1, lanes + 1) if width % count == 0]
    least = min(map(work, counts))
    if least > _WORTH_IT * work(1):
        return 1
    return next(count for count in counts if work(count) <= _NEAR * least)
