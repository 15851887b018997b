"""Convolutions with windows mostly in the padding: sums over the taps that meet the image.

Filters dilated as far as the image is large (atrous spatial pyramids, Chen et al. 2017, arXiv:1706.05587) multiply
zeros for most outputs. Outer taps meeting no element for any output are left out of the filter. If most products with
the other taps are products with zeros too, each tap is a convolution of its own on the elements in reach, and the
results are added where they belong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod

import numpy as np
from byoc_core.ir import AttrValue, Binding, IRModule, Value
from byoc_core.runtime.module import NDArray
from byoc_core.transform import RewriteGraph, rewrite_module

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.rejections import FLOATS
from byoc_ccompiler.steps import dtype_of, shape_of

__all__ = ["skip_padding"]

_MOST_USED = 0.6
"""The largest share of products with elements of the image in a convolution divided into its taps."""
_MOST_TAPS = 32
"""The most convolutions in place of one."""
_LEAST_CHANNELS, _LEAST_OUTPUTS = 64, 64
"""With fewer input channels, or outputs of a channel, adding up the taps costs more than products with zeros."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """A spatial axis of a convolution: sizes of image and result, taps, stride, dilation, padding in front."""

    size: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int

    def outputs_of(self, tap: int) -> range:
        """Return the outputs with an element of the image under a tap."""
        shift = self.before - tap * self.dilation
        return range(max(0, -(-shift // self.stride)), min(self.outputs, (self.size - 1 + shift) // self.stride + 1))

    def used_taps(self) -> list[int]:
        """Return the taps meeting an element of the image for some output."""
        return [tap for tap in range(self.taps) if self.outputs_of(tap)]

    def most_used_tap(self) -> int:
        """Return the tap meeting elements of the image for the most outputs."""
        return max(range(self.taps), key=lambda tap: len(self.outputs_of(tap)))

    def first_element(self, tap: int, output: int) -> int:
        """Return the element of the image under a tap of an output."""
        return output * self.stride + tap * self.dilation - self.before


def skip_padding(module: IRModule) -> IRModule:
    """Return the module without most products with padding in convolutions by constant filters of finite numbers."""
    return rewrite_module(module, {f"nn.conv{rank}d": (_skip,) for rank in (1, 2)})


def _skip(binding: Binding, graph: RewriteGraph) -> Sequence[Value] | None:
    x, weight = binding.operands
    filter_, layout, axes = graph.array(weight), str(binding.attrs["data_layout"]), _axes_of(binding)
    if filter_ is None or axes is None or dtype_of(x) not in FLOATS or not np.isfinite(filter_).all():
        return None
    used = [axis.used_taps() for axis in axes]
    if not all(used):
        return None
    kernel = _Taps(binding, graph, filter_, axes)
    products = [sum(len(axis.outputs_of(tap)) for tap in taps) for axis, taps in zip(axes, used, strict=True)]
    dense = [axis.outputs * len(taps) for axis, taps in zip(axes, used, strict=True)]
    channels = shape_of(x)[layout.index("C")]
    has_work = isinstance(channels, int) and channels // int_of(binding, "groups") >= _LEAST_CHANNELS
    has_work = has_work and prod(axis.outputs for axis in axes) >= _LEAST_OUTPUTS
    has_work = has_work and prod(map(len, used)) <= _MOST_TAPS
    if has_work and prod(products) <= _MOST_USED * prod(dense) and graph.may_add(filter_.nbytes):
        first = tuple(axis.most_used_tap() for axis in axes)
        rest = (taps for taps in product(*used) if taps != first)
        terms = [kernel.placed(first, is_named=True), *(kernel.placed(taps, is_named=False) for taps in rest)]
        return (reduce(lambda total, term: graph.emit("add", (total, term), name="sum"), terms),)
    spans = [slice(taps[0], taps[-1] + 1) for taps in used]
    if [span.stop - span.start for span in spans] == [axis.taps for axis in axes] or not graph.may_add(filter_.nbytes):
        return None
    return (kernel.convolved(spans, [range(axis.outputs) for axis in axes]),)


def _axes_of(binding: Binding) -> Sequence[_Axis] | None:
    """Return the spatial axes of a convolution; ``None`` for sizes known at run time only, and empty results."""
    layout, kernel_layout = str(binding.attrs["data_layout"]), str(binding.attrs["kernel_layout"])
    letters = [letter for letter in layout if letter not in "NC"]
    shapes = [shape_of(value) for value in (binding.operands[0], binding.result)]
    sizes, outputs = ([shape[layout.index(letter)] for letter in letters] for shape in shapes)
    taps = [shape_of(binding.operands[1])[kernel_layout.index(letter)] for letter in letters]
    if not all(isinstance(size, int) and size > 0 for size in (*sizes, *outputs, *taps)):
        return None
    numbers = (ints_of(binding, name) for name in ("strides", "dilation", "padding"))
    return [_Axis(*numbers_of_axis) for numbers_of_axis in zip(sizes, outputs, taps, *numbers, strict=False)]


@dataclass(frozen=True, slots=True)
class _Taps:
    """A convolution to be computed by parts of its filter."""

    binding: Binding
    graph: RewriteGraph
    filter: NDArray
    axes: Sequence[_Axis]

    def convolved(self, taps: Sequence[slice], outputs: Sequence[range], *, is_named: bool = True) -> Value:
        """Return the results of some outputs, with some neighbouring taps of the filter.

        A convolution with the name of the result is the one whose schedules are offered and chosen.
        """
        binding, graph = self.binding, self.graph
        layout, kernel_layout = str(binding.attrs["data_layout"]), str(binding.attrs["kernel_layout"])
        letters = [letter for letter in layout if letter not in "NC"]
        begins, ends, before, after = [], [], [], []
        for axis, part, range_ in zip(self.axes, taps, outputs, strict=True):
            first = axis.first_element(part.start, range_[0])
            end = axis.first_element(part.stop - 1, range_[-1]) + 1
            begins.append(max(0, first))
            ends.append(min(axis.size, end))
            before.append(max(0, -first))
            after.append(max(0, end - axis.size))
        image = binding.operands[0]
        if any(begins) or any(end < axis.size for end, axis in zip(ends, self.axes, strict=True)):
            axes = tuple(map(layout.index, letters))
            attrs = {"axes": axes, "begin": tuple(begins), "end": tuple(ends), "strides": (1,) * len(axes)}
            image = graph.emit("strided_slice", (image,), attrs, name="part")
        index = dict(zip(letters, taps, strict=True))
        taps_used = self.filter[tuple(index.get(letter, slice(None)) for letter in kernel_layout)]
        padded: Mapping[str, AttrValue] = {**binding.attrs, "padding": (*before, *after)}
        operands = (image, graph.const(np.ascontiguousarray(taps_used)))
        if is_named:
            return graph.emit(binding.op, operands, padded, schedule=binding.schedule)
        return graph.emit(binding.op.name, operands, padded, name="tap", keeps_schedule=False)

    def placed(self, taps: Sequence[int], *, is_named: bool) -> Value:
        """Return the products of one tap among zeros for the outputs not in reach of the tap."""
        outputs = [axis.outputs_of(tap) for axis, tap in zip(self.axes, taps, strict=True)]
        value = self.convolved([slice(tap, tap + 1) for tap in taps], outputs, is_named=is_named)
        layout = str(self.binding.attrs["data_layout"])
        spatial = iter(zip(outputs, self.axes, strict=True))
        widths: list[int] = []
        for letter in layout:
            reached, axis = (None, None) if letter in "NC" else next(spatial)
            widths += (0, 0) if reached is None or axis is None else (reached[0], axis.outputs - reached[-1] - 1)
        return (
            self.graph.emit("nn.pad", (value,), {"pad_width": tuple(widths)}, name="placed") if any(widths) else value
        )
