"""Convolutions and transposed convolutions of any rank, layout and number type, as plain loops.

One item is some neighbours along the last axis of the result: output channels, to each of which every element of a
window adds its share; or pixels of a line, to which every tap adds a stretch of a line of the image. These neighbours
are what a C compiler makes vectors of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv, product
from byoc_core.ir import Constant, Value
from byoc_core.ops import axes_of

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import offset_along
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["write"]

_STRETCH = 64
"""Neighbours that are computed together."""

_PRODUCT_PS = 200
"""Estimated picoseconds of one product and sum."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """A spatial axis. Tap ``k`` of window ``y`` meets element ``(y * stride + k * apart + shift) / scale``.

    Attributes:
        size: of the image.
        taps: of a window.
        tap: the number of a tap.
        place: where a tap lies in the image.
        stride: from one window to the next.
        apart: from one tap to the next; below 0 where the convolution is transposed.
        shift: where the first tap of the first window lies.
        scale: of a transposed convolution, how far the elements of the image lie apart; else 1.
    """

    size: Dim
    taps: Dim
    tap: c.Variable
    place: c.Variable
    stride: int
    apart: int
    shift: int
    scale: int

    def reach(self, window: c.Expression) -> c.Expression:
        """Return what a tap of a window meets, before it is divided."""
        return window * self.stride + (self.tap * self.apart + self.shift)

    def loop(self, window: c.Expression, body: c.Block) -> c.Block:
        """Return the loop over the taps of a window that lie inside the image."""
        there = c.Variable("there")
        is_inside = c.Binary("&&", there.compare(">=", 0), there.compare("<", self.size * self.scale))
        is_inside = c.Binary("&&", is_inside, (there % self.scale).compare("==", 0))
        found = c.If(is_inside, (c.Let(self.place, there // self.scale), *body))
        return (c.For(self.tap, c.Size(0), c.Size(self.taps), (c.Let(there, self.reach(window)), found)),)


def _axes(step: Step, data_axes: Sequence[int], weight_axes: Sequence[int]) -> tuple[_Axis, ...]:
    image, weight = shape_of(step.operands[0]), shape_of(step.operands[1])
    attributes = (ints_of(step.binding, name) for name in ("strides", "dilation", "padding"))
    axes = []
    # The padding behind the axes stands last.
    for number, item in enumerate(zip(data_axes, weight_axes, *attributes, strict=False)):
        axis, tap, stride, apart, padding = item
        lie = (1, -apart, padding, stride) if step.op.endswith("_transpose") else (stride, apart, -padding, 1)
        axes.append(_Axis(image[axis], weight[tap], c.Variable(f"k{number}"), c.Variable(f"i{number}"), *lie))
    return tuple(axes)


class _Convolution:
    """The convolution that a kernel begins with, and the variables of one item."""

    def __init__(self, kernel: Kernel) -> None:
        step = kernel.group.steps[0]
        image, weight = step.operands
        self.layout, self.groups = str(step.binding.attrs["data_layout"]), int_of(step.binding, "groups")
        data_axes, weight_axes = axes_of(self.layout, "NC"), axes_of(str(step.binding.attrs["kernel_layout"]), "OI")
        self.is_transposed = step.op.endswith("_transpose")
        self.axes = _axes(step, data_axes[2:], weight_axes[2:])
        self.in_channels = shape_of(image)[data_axes[1]] // self.groups
        self.out_channels = shape_of(step.result)[data_axes[1]] // self.groups
        filter_: Value = weight
        if self.layout.endswith("C") and isinstance(weight, Constant):
            # Output channels, the neighbours, side by side.
            array = kernel.scope.constants.array(weight, kernel.scope.where)
            filter_ = kernel.scope.constants.derive(array.transpose(*weight_axes[2:], weight_axes[1], weight_axes[0]))
            rank = len(weight_axes)
            weight_axes = (rank - 1, rank - 2, *range(rank - 2))
        self.image, self.weight = kernel.source(image), kernel.source(filter_, "weight")
        self.image_steps = [kernel.strides(image)[axis] for axis in data_axes]
        self.weight_steps = [kernel.strides(filter_)[axis] for axis in weight_axes]
        # Integers wrap around, in an unsigned type as wide or wider.
        dtype = dtype_of(step.result)
        dtype = dtype if dtype.startswith("float") else "uint64" if dtype.endswith("64") else "uint32"
        self.totals = c.Buffer("totals", dtype, c.MemoryAccess.WRITE, _STRETCH)
        self.first, self.count, self.channel = map(c.Variable, ("first", "count", "c"))
        self.factor, self.line = c.Variable("factor", c.CType(dtype)), c.Buffer("line", dtype_of(image))
        self.group: c.Expression = c.Variable("g") if self.groups > 1 else c.Size(0)

    def value(self, element: c.Expression) -> c.Expression:
        """Return an element as the totals have it."""
        return element if element.type == self.factor.type else c.Cast(element, self.factor.type)

    def add(self, place: c.Expression, element: c.Expression) -> c.Store:
        """Return the statement that adds a product to a total."""
        return c.Store(self.totals, place, self.totals[place] + self.factor * self.value(element))

    def image_place(self, image: c.Expression, places: Sequence[c.Expression]) -> c.Expression:
        """Return where an element of the image lies, at places along the first spatial axes."""
        indices = [image, self.group * self.in_channels + self.channel, *places]
        return offset_along(indices, self.image_steps[: len(indices)])

    def weight_place(self, channel: c.Expression) -> c.Expression:
        """Return where a tap of the filter lies, to an output channel of the group."""
        into, out = self.group * self.in_channels, self.group * self.out_channels
        pair = (channel, into + self.channel) if self.is_transposed else (out + channel, self.channel)
        return offset_along([*pair, *(axis.tap for axis in self.axes)], self.weight_steps)

    def over_channels(self, image: c.Expression, windows: Sequence[c.Expression]) -> c.Block:
        """Return the loops that add up the totals of neighbouring output channels."""
        at = c.Variable("at")
        added = self.add(at, self.line[at * self.weight_steps[0]])
        inner: c.Block = (
            c.Let(self.factor, self.value(self.image[self.image_place(image, [axis.place for axis in self.axes])])),
            c.Alias(self.line, self.weight, self.weight_place(self.first)),
            c.For(at, c.Size(0), self.count, (added,)),
        )
        body: c.Block = (c.For(self.channel, c.Size(0), c.Size(self.in_channels), inner),)
        for axis, window in reversed(list(zip(self.axes, windows, strict=True))):
            body = axis.loop(window, body)
        return body

    def over_pixels(self, image: c.Expression, channel: c.Expression, windows: Sequence[c.Expression]) -> c.Block:
        """Return the loops that add up the totals of neighbouring pixels of a line."""
        *outer, last = self.axes
        apart, right, at = last.stride * last.scale, c.Variable("right"), c.Variable("at")
        # Of a line of the image and one of the result, one is walked through, the other in steps.
        shift, ends = last.reach(self.first), [c.Size(last.size), self.count]
        places = [right + at * apart, at]
        if self.is_transposed:
            shift, ends, places = 0 - shift, ends[::-1], places[::-1]
        start = c.index_max((apart - 1 - right) // apart, 0)
        stop = c.index_min(ends[1], (ends[0] + (apart - 1) - right) // apart)
        added = self.add(places[1], self.line[places[0] * self.image_steps[-1]])
        inner: c.Block = (
            c.Let(self.factor, self.value(self.weight[self.weight_place(channel)])),
            c.Let(right, shift),
            c.For(at, start, stop, (added,)),
        )
        body: c.Block = (
            c.Alias(self.line, self.image, self.image_place(image, [axis.place for axis in outer])),
            c.For(last.tap, c.Size(0), c.Size(last.taps), inner),
        )
        for axis, window in reversed(list(zip(outer, windows, strict=True))):
            body = axis.loop(window, body)
        return (c.For(self.channel, c.Size(0), c.Size(self.in_channels), body),)


def write(kernel: Kernel) -> None:
    """Write the kernel of a convolution of any kind, and of what follows it elementwise."""
    loops, result, at = _Convolution(kernel), kernel.group.steps[0].result, c.Variable("at")
    *sizes, width = shape_of(result)
    is_last, groups = loops.layout.endswith("C"), 1
    if is_last:
        width, groups = loops.out_channels, loops.groups
    stretches = ceildiv(width, _STRETCH)
    item, row = c.Variable("item"), c.Variable("row")
    indices = [c.Variable(f"index{axis}") for axis in range(len(sizes))]
    group, column = item // stretches % groups, loops.group * width + loops.first
    if is_last:
        added = loops.over_channels(indices[0], indices[1:])
    else:
        group, column = indices[1] // loops.out_channels, loops.first
        added = loops.over_pixels(indices[0], indices[1] % loops.out_channels, indices[2:])
    sums = loops.totals
    rounded: c.Block = ()
    if sums.dtype != dtype_of(result):
        sums = c.Buffer("sums", dtype_of(result), c.MemoryAccess.WRITE, _STRETCH)
        store = c.Store(sums, at, c.Cast(loops.totals[at], c.CType(sums.dtype)))
        rounded = (c.LocalArray(sums), c.For(at, c.Size(0), loops.count, (store,)))
    body: c.Block = (
        c.Let(row, item // (groups * stretches)),
        c.Let(loops.first, item % stretches * _STRETCH),
        *(c.Let(index, place) for index, place in zip(indices, c.unravelled(row, sizes), strict=True)),
        *([c.Let(loops.group, group)] if isinstance(loops.group, c.Variable) else []),
        c.Let(loops.count, c.index_min(c.Size(width) - loops.first, _STRETCH)),
        c.LocalArray(loops.totals, is_zeroed=True),
        *added,
        *rounded,
        *epilogue(kernel, SumsTile(sums, _STRETCH, row, c.Size(1), column, loops.count)),
    )
    round_ps = loops.in_channels * product(axis.taps for axis in loops.axes) * (_STRETCH * _PRODUCT_PS)
    count = product(sizes) * (groups * stretches)
    kernel.finish_block((c.For(item, c.Size(0), c.Size(count), body, kind=c.LoopKind.PARALLEL, round_ps=round_ps),))
