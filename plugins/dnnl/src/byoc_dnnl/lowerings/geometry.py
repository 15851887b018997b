"""The geometry of windows sliding over images, in numbers supported by oneDNN.

The type rules check attributes against the declared sizes before planning. The rules permit large cancelling numbers,
for example a stride and a padding of 2^40. Such numbers are refused or cut here.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from byoc_dnnl.calls import shape_of
from byoc_dnnl.capi import MAX_INT
from byoc_dnnl.lowerings.attributes import axes_of_layout, integers
from byoc_dnnl.lowerings.pixel_packing import Geometry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from byoc_dnnl.calls import Call

__all__ = ["MAX_TAPS", "declines_windows", "geometry_of"]

MAX_TAPS = 1 << 16
"""The largest number of taps of a pooling window along an axis: oneDNN unrolls the taps of a row in generated code, and
generates code without the interpreter's lock.
"""


def geometry_of(call: Call, rank: int) -> Geometry:
    """Return the windows of a call, with steps no longer than the padded image.

    A longer stride or dilation is never used: only a single window or tap fits along the axis.
    """
    padding = integers(call, "padding", 2 * rank)
    before, after = padding[:rank], padding[rank:]
    longest = [max(1, size) for size in _padded_sizes(call, rank)[-rank:]]
    strides, dilation = (
        tuple(min(step, limit) for step, limit in zip(integers(call, name, rank), longest, strict=True))
        for name in ("strides", "dilation")
    )
    return Geometry(strides, dilation, before, after)


def declines_windows(call: Call) -> str | None:
    """Return the reason why oneDNN does not get the windows of a call: windows or padded image are too large."""
    rank = len(call.operands[0].shape) - 2
    if "padding" not in call.attrs:
        return None
    if "pool_size" in call.attrs and max(integers(call, "pool_size", rank)) > MAX_TAPS:
        return f"oneDNN would generate code for more than {MAX_TAPS} taps"
    if prod(_padded_sizes(call, rank)) > MAX_INT:
        return f"with padding an image has more than {MAX_INT} elements"
    return None


def _padded_sizes(call: Call, rank: int) -> Sequence[int]:
    """Return the sizes ``(N, C, ...)`` of the image under the windows, with padding."""
    image = shape_of(call.result if call.op.endswith("_transpose") else call.operands[0])
    axes = axes_of_layout(call, "data_layout" if "data_layout" in call.attrs else "layout", "NC", rank)
    padding = integers(call, "padding", 2 * rank)
    total_padding = [begin + end for begin, end in zip(padding[:rank], padding[rank:], strict=True)]
    if "output_padding" in call.attrs:
        total_padding = [
            width + extra for width, extra in zip(total_padding, integers(call, "output_padding", rank), strict=True)
        ]
    sizes = [image[axis] for axis in axes]
    return [*sizes[:2], *(size + width for size, width in zip(sizes[2:], total_padding, strict=True))]
