"""Pooling to a given size, if all windows are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_dnnl.calls import sizes_of
from byoc_dnnl.capi import Algorithm
from byoc_dnnl.lowerings.attributes import axes_of_layout
from byoc_dnnl.lowerings.pooling import add_windows
from byoc_dnnl.primitives import Windows

if TYPE_CHECKING:
    from byoc_dnnl.calls import Call
    from byoc_dnnl.planner import Planner

__all__ = ["lower_adaptive_pooling"]


def lower_adaptive_pooling(call: Call, planner: Planner) -> str | None:
    """Add the mean, or the largest of finite elements, of as many windows as requested.

    Not taken: windows of several sizes, or at uneven steps.
    """
    rank = len(call.result.shape) - 2
    axes = axes_of_layout(call, "layout", "NC", rank)
    image, result = sizes_of(call.operands[0]), sizes_of(call.result)
    windows = [_window(image[axis], result[axis]) for axis in axes[2:]]
    alike = [window for window in windows if window is not None]
    if len(alike) < rank:
        return "windows of several sizes, or at uneven steps"
    size, strides = zip(*alike, strict=True)
    geometry = Windows(strides, (1,) * rank, (0,) * rank, (0,) * rank)
    is_mean = call.op.startswith("nn.adaptive_avg")
    algorithm = Algorithm.POOLING_AVG_INCLUDE_PADDING if is_mean else Algorithm.POOLING_MAX
    return add_windows(call, planner, algorithm, axes, size, geometry)


def _window(size: int, count: int) -> tuple[int, int] | None:
    """Return the size of the windows along an axis, and the step between windows; ``None`` if windows differ.

    Source: PyTorch's adaptive pooling; window ``i`` takes ``i * size // count`` up to ``ceil((i + 1) * size / count)``.
    With a remainder of 1, each window shares an element with the next; with larger remainders some steps are longer.
    """
    step, rest = divmod(size, count)
    return (step + rest, step) if step and rest < 2 else None
