"""Transposed convolutions as convolutions: the phases of a stride are further output channels.

Along an axis with stride ``s``, filter size ``k`` and padding ``p`` before, result ``y`` receives the elements
``x[q - j] * w[r + s * j]`` with ``y + p = s * q + r``. So a convolution with stride 1, windows of ``ceil(k / s)``
elements and ``s`` times the output channels computes all phases ``r`` at ``q``. The phases are then placed side by side
(pixel shuffle, W. Shi et al., CVPR 2016), and the padding is cut off.

A phase has fewer taps than ``ceil(k / s)`` if the stride does not divide the filter size: a common window multiplies by
zeros, 7 of 16 times for filters of size 3 and stride 2. If cheaper, each phase is a convolution with the phase's own
taps, and writes between the elements of the other phases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from byoc_core.dims import Dim, ceildiv
from byoc_core.ir import Binding, IRModule, Value
from byoc_core.runtime.module import NDArray
from byoc_core.transform import RewriteGraph, rewrite_module

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.rejections import FLOATS
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["convolve_transposed"]

_RANKS = (1, 2, 3)
_MOST_WORK = 4
"""The most products for each product of the filter; others are products with zeros."""
_LANES = 16
"""Output channels side by side in a vector."""
_WINOGRAD_GAIN = 2
"""The products of a window for each product of Winograd's algorithm, about."""
_MOST_PHASES, _MOST_APART = 16, 0.75
"""The most convolutions in place of one, and their largest share of its products: each reads the image once more."""
_END = np.iinfo(np.int64).max


def convolve_transposed(module: IRModule) -> IRModule:
    """Return the module with convolutions and shuffles for transposed convolutions by a constant filter.

    Groups stay as they are, as do filters with few elements for the stride, or dilated along an axis with a stride.
    """
    return rewrite_module(module, {f"nn.conv{rank}d_transpose": (_convolve,) for rank in _RANKS})


def _convolve(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    x, weight = binding.operands
    filter_, layout = graph.array(weight), str(binding.attrs["data_layout"])
    strides, dilation = ints_of(binding, "strides"), ints_of(binding, "dilation")
    is_plain = int_of(binding, "groups") == 1 and all(1 in pair for pair in zip(strides, dilation, strict=True))
    if filter_ is None or not is_plain or dtype_of(x) not in FLOATS:
        return None
    letters = [letter for letter in layout if letter not in "NC"]
    rank, kernel_layout = len(letters), str(binding.attrs["kernel_layout"])
    before = ints_of(binding, "padding")[:rank]
    taps = filter_.transpose([kernel_layout.index(letter) for letter in (*letters, "O", "I")])
    windows = [-(-size // stride) for size, stride in zip(taps.shape, strides, strict=False)]
    sizes, outs = ([shape_of(value)[layout.index(letter)] for letter in letters] for value in (x, binding.result))
    steps = [ceildiv(out + cut, stride) for out, cut, stride in zip(outs, before, strides, strict=True)]
    after = [count - size for count, size in zip(steps, sizes, strict=True)]
    num_taps, num_products = taps[..., 0, 0].size, prod(windows) * prod(strides)
    if not all(isinstance(size, int) and size >= 0 for size in after) or num_products > _MOST_WORK * num_taps:
        return None
    are_apart = _are_cheaper_apart(taps.shape, strides, windows)
    if not graph.may_add(taps.nbytes // num_taps * (num_taps if are_apart else num_products)):
        return None
    channels, order = taps.shape[-2], _to_channels_last(layout)
    attrs = {
        "padding": (*((size - 1) * gap for size, gap in zip(windows, dilation, strict=True)), *after),
        "data_layout": "N" + "".join(letters) + "C",
        "kernel_layout": "OI" + "".join(letters),
        "strides": (1,) * rank,
        "dilation": dilation,
    }
    image = graph.emit("permute_dims", (x,), {"axes": order}, name="image")
    sizes_of_phases = (shape_of(x)[layout.index("N")], steps, strides, channels)
    if are_apart:
        phases_apart = _convolved_apart(graph, image, taps, {**attrs, "strides": strides}, binding.schedule)
        result = _joined(graph, phases_apart, sizes_of_phases)
    else:
        operands = (image, graph.const(_phases(taps, windows, strides)))
        # The convolution bears the name of the result, by which schedules are offered and chosen.
        phases = graph.emit(f"nn.conv{rank}d", operands, attrs, schedule=binding.schedule)
        result = _shuffled(graph, phases, sizes_of_phases)
    result = _cut(graph, result, before, [count * stride for count, stride in zip(steps, strides, strict=True)], outs)
    return (
        graph.emit(
            "permute_dims", (result,), {"axes": tuple(int(axis) for axis in np.argsort(order))}, name="shuffled"
        ),
    )


def _to_channels_last(layout: str) -> tuple[int, ...]:
    """Return the axes of a layout in the order images, spatial axes, channels."""
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    return (layout.index("N"), *spatial, layout.index("C"))


def _phases(taps: NDArray, windows: Sequence[int], strides: Sequence[int]) -> NDArray:
    """Return the filter of all phases, ``(phases * O, I, *windows)``, from taps ``(*sizes, O, I)``."""
    rank = len(windows)
    lengths = [window * stride for window, stride in zip(windows, strides, strict=True)]
    fills = [(0, length - size) for length, size in zip(lengths, taps.shape, strict=False)]
    filled = np.pad(taps, [*fills, (0, 0), (0, 0)])
    split = [size for pair in zip(windows, strides, strict=True) for size in pair]
    parts = filled.reshape(*split, *taps.shape[rank:])
    flipped = np.flip(parts, tuple(range(0, 2 * rank, 2)))  # the first tap meets the last element of a window
    order = (*range(1, 2 * rank, 2), 2 * rank, 2 * rank + 1, *range(0, 2 * rank, 2))
    outputs = int(np.prod(strides)) * taps.shape[rank]
    return np.ascontiguousarray(flipped.transpose(order).reshape(outputs, taps.shape[-1], *windows))


def _are_cheaper_apart(shape: Sequence[int], strides: Sequence[int], windows: Sequence[int]) -> bool:
    """Return whether a convolution for each phase takes fewer products of vectors than a convolution of all phases.

    Args:
        shape: the sizes of the filter, the output channels and the input channels.
        strides: the strides.
        windows: the window of a convolution of all phases.
    """
    rank, num_phases, channels = len(strides), prod(strides), shape[-2]
    if not 1 < num_phases <= _MOST_PHASES or any(size < stride for size, stride in zip(shape, strides, strict=False)):
        return False
    together = prod(windows) * -(-num_phases * channels // _LANES)
    apart = prod(shape[:rank]) * -(-channels // _LANES)
    return apart <= _MOST_APART * (together / _WINOGRAD_GAIN if windows == [3, 3] else together)


def _convolved_apart(
    graph: RewriteGraph, image: Value, taps: NDArray, attrs: Mapping[str, Any], schedule: str | None
) -> list[Value]:
    """Return the phases in order, the phases of the last axis fastest, each from a convolution with the phase's taps.

    Args:
        graph: receives the convolutions.
        image: the image, channels last.
        taps: the filter, ``(*sizes, O, I)``.
        attrs: the attributes of a convolution of all phases, and the strides of the transposed convolution.
        schedule: the schedule of the phase with the most taps, the first; this phase bears the name of the result, by
            which schedules are offered and chosen.
    """
    strides = attrs["strides"]
    rank = len(strides)
    results: list[Value] = []
    for phase in np.ndindex(*strides):
        own = taps[tuple(slice(first, None, stride) for first, stride in zip(phase, strides, strict=True))]
        flipped = np.flip(own, tuple(range(rank)))  # the first tap meets the last element of a window
        filter_ = graph.const(np.ascontiguousarray(flipped.transpose(rank, rank + 1, *range(rank))))
        before = ((size - 1) * gap for size, gap in zip(own.shape, attrs["dilation"], strict=False))
        padding = (*before, *attrs["padding"][rank:])
        name, phase_schedule = ("phase", None) if any(phase) else (None, schedule)
        phase_attrs = {**attrs, "strides": (1,) * rank, "padding": padding}
        results.append(graph.emit(f"nn.conv{rank}d", (image, filter_), phase_attrs, name=name, schedule=phase_schedule))
    return results


def _joined(
    graph: RewriteGraph, phases: Sequence[Value], sizes: tuple[Dim, Sequence[Dim], Sequence[int], int]
) -> Value:
    """Return separate phases side by side, channels last."""
    batch, steps, strides, channels = sizes
    rank = len(strides)
    shape = (batch, *(size for step in steps for size in (step, 1)), channels)
    parts = [graph.emit("reshape", (phase,), {"shape": shape}, name="apart") for phase in phases]
    for axis in reversed(range(rank)):
        stride = strides[axis]
        groups = [parts[first : first + stride] for first in range(0, len(parts), stride)]
        attrs = {"axis": 2 + 2 * axis}
        parts = [graph.emit("concat", group, attrs, name="turned") if stride > 1 else group[0] for group in groups]
    lengths = [count * stride for count, stride in zip(steps, strides, strict=True)]
    return graph.emit("reshape", tuple(parts), {"shape": (batch, *lengths, channels)}, name="joined")


def _shuffled(graph: RewriteGraph, phases: Value, sizes: tuple[Dim, Sequence[Dim], Sequence[int], int]) -> Value:
    """Return the phases side by side, channels last."""
    batch, steps, strides, channels = sizes
    rank = len(strides)
    if all(stride == 1 for stride in strides):
        return phases
    apart = graph.emit("reshape", (phases,), {"shape": (batch, *steps, *strides, channels)}, name="apart")
    pairs = [axis for k in range(rank) for axis in (1 + k, 1 + rank + k)]
    turned = graph.emit("permute_dims", (apart,), {"axes": (0, *pairs, 2 * rank + 1)}, name="turned")
    lengths = [count * stride for count, stride in zip(steps, strides, strict=True)]
    return graph.emit("reshape", (turned,), {"shape": (batch, *lengths, channels)}, name="joined")


def _cut(
    graph: RewriteGraph, value: Value, before: Sequence[int], lengths: Sequence[Dim], outs: Sequence[Dim]
) -> Value:
    """Return the elements behind the padding, as many as the result has."""
    behind = [length - cut - out for length, cut, out in zip(lengths, before, outs, strict=True)]
    if not any(before) and all(size == 0 for size in behind):
        return value
    ends = [_END if size == 0 else -size for size in behind]
    axes = tuple(range(1, 1 + len(outs)))
    attrs = {"axes": axes, "begin": tuple(before), "end": tuple(ends), "strides": (1,) * len(axes)}
    return graph.emit("strided_slice", (value,), attrs, name="cut")
