"""Convolutions of all kinds: the choice of a writer, and plain loops for any rank, layout and number type.

The plain loops compute every convolution not taken by another writer, and thus must accept everything not rejected.

An item of the loops is a run of neighbours along the last axis of the result. The neighbours are output channels, all
updated by every element of a window, or pixels of a line, updated by every tap with a stretch of a line of the image.
A C compiler vectorises along these neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from byoc_core.authoring import c
from byoc_core.authoring.csource import FunctionScope
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim, ceildiv, product
from byoc_core.errors import InternalError
from byoc_core.ir import Binding, Constant
from byoc_core.ops import RANKS, axes_of

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels import depthwise, implicit_gemm, pixel_schedule, winograd
from byoc_ccompiler.kernels.bfloat16_products import suits_convolution, write_convolution
from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.kernels.depthwise_blocks import DepthwiseSchedule, offered_blocks
from byoc_ccompiler.kernels.epilogue import SumsTile, epilogue
from byoc_ccompiler.kernels.named_schedules import schedule_as_chosen
from byoc_ccompiler.kernels.pixel_schedule import PixelSchedule
from byoc_ccompiler.kernels.pixel_tiles import offered_tiles
from byoc_ccompiler.kernels.winograd_plan import WinogradSchedule
from byoc_ccompiler.rejections import FLOATS, operand_shape, operand_type
from byoc_ccompiler.size_checks import require_spatial, require_window, window_sizes
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY", "LoopSchedule", "choose_schedule", "require_room"]


@dataclass(frozen=True, slots=True)
class LoopSchedule:
    """A schedule of plain loops for a convolution of any kind.

    Attributes:
        stretch: neighbours along the last axis of the result computed together.
    """

    stretch: int = 64


_Schedule = LoopSchedule | DepthwiseSchedule | WinogradSchedule | PixelSchedule


@dataclass(frozen=True, slots=True)
class _Axis:
    """A spatial axis: a tap of window ``y`` meets element ``(y * stride + shift) / scale``, with the shift of the tap.

    The elements of the image of a transposed convolution lie ``scale`` apart.
    """

    size: Dim
    taps: Dim
    tap: c.Variable
    index: c.Variable
    stride: int
    shift: c.Expression
    scale: int

    def loop(self, window: c.Expression, body: c.Block) -> c.Block:
        """Return the loop over the taps of a window inside the image."""
        position = c.Variable("position")
        is_inside = c.Binary("&&", position.compare(">=", 0), position.compare("<", self.size * self.scale))
        is_inside = c.Binary("&&", is_inside, (position % self.scale).compare("==", 0))
        found = c.If(is_inside, (c.Let(self.index, position // self.scale), *body))
        return loops_around((c.Let(position, window * self.stride + self.shift), found), (self.tap,), (self.taps,))


class _Convolution:
    """The first step of a kernel, a convolution, and the variables of an item."""

    def __init__(self, kernel: Kernel, stretch: int) -> None:
        step = kernel.group.steps[0]
        image, weight = step.operands
        layout, self.groups = str(step.binding.attrs["data_layout"]), int_of(step.binding, "groups")
        data_axes, weight_axes = axes_of(layout, "NC"), axes_of(str(step.binding.attrs["kernel_layout"]), "OI")
        self.is_last, self.is_transposed = layout.endswith("C"), step.op.endswith("_transpose")
        attributes = (ints_of(step.binding, name) for name in ("strides", "dilation", "padding"))
        self.axes = []
        # The padding behind the axes stands last.
        for number, item in enumerate(zip(data_axes[2:], weight_axes[2:], *attributes, strict=False)):
            axis, tap, stride, apart, padding = item
            k, index = c.Variable(f"k{number}"), c.Variable(f"i{number}")
            affine = (1, k * -apart + padding, stride) if self.is_transposed else (stride, k * apart + -padding, 1)
            self.axes.append(_Axis(shape_of(image)[axis], shape_of(weight)[tap], k, index, *affine))
        self.in_channels = shape_of(image)[data_axes[1]] // self.groups
        self.out_channels = shape_of(step.result)[data_axes[1]] // self.groups
        if self.is_last and isinstance(weight, Constant):
            # Output channels, the neighbours, side by side.
            array = kernel.scope.constants.array(weight, kernel.scope.where)
            weight = kernel.scope.constants.derive(array.transpose(*weight_axes[2:], weight_axes[1], weight_axes[0]))
            weight_axes = (-1, -2, *range(len(weight_axes) - 2))
        self.image, self.weight = kernel.source(image), kernel.source(weight, "weight")
        self.image_steps = [kernel.strides(image)[axis] for axis in data_axes]
        self.weight_steps = [kernel.strides(weight)[axis] for axis in weight_axes]
        # Integers wrap around, in an unsigned type as wide or wider.
        dtype = dtype_of(step.result)
        dtype = dtype if dtype.startswith("float") else "uint64" if dtype.endswith("64") else "uint32"
        # The totals updated by a line of the image lie side by side: as many lines of totals as the distance of totals.
        self.apart = self.axes[-1].scale if self.is_transposed and not self.is_last else 1
        self.line_size = ceildiv(stretch, self.apart)
        self.totals = c.Buffer("totals", dtype, c.MemoryAccess.WRITE, self.apart * self.line_size)
        self.first, self.count, self.group, self.channel, self.at = c.variables("first count g c at")
        self.factor, self.line = c.Variable("factor", c.CType(dtype)), c.Buffer("line", dtype_of(image))

    def value(self, element: c.Expression) -> c.Expression:
        """Return an element in the dtype of the totals."""
        return element if element.type == self.factor.type else c.Cast(element, self.factor.type)

    def added(self, slot: c.Expression, element: c.Expression, start: c.Expression, stop: c.Expression) -> c.For:
        """Return the loop adding products of the factor to totals."""
        total = self.totals[slot] + self.factor * self.value(self.line[element])
        return c.For(self.at, start, stop, (c.Store(self.totals, slot, total),), kind=c.LoopKind.ROLLED)

    def over_channels(self, offset: c.Expression, tap: c.Expression) -> c.Block:
        """Return the loop adding products of elements of the image to neighbouring output channels."""
        factor, line = c.Let(self.factor, self.value(self.image[offset])), c.Alias(self.line, self.weight, tap)
        added = self.added(self.at, self.at * self.weight_steps[0], c.Size(0), self.count)
        return loops_around((factor, line, added), (self.channel,), (self.in_channels,))

    def over_pixels(self, offset: c.Expression, tap: c.Expression) -> c.Block:
        """Return the statements adding products of a line of the image to neighbouring pixels."""
        last, right = self.axes[-1], c.Variable("right")
        # Of the lines of image and result, one is traversed contiguously, the other in steps.
        apart, shift = last.stride * last.scale, self.first * last.stride + last.shift
        size: c.Expression = c.Size(last.size)
        count: c.Expression = self.count
        slot: c.Expression = self.at
        element: c.Expression = right + self.at * apart
        before: c.Block = (c.Let(right, shift),)
        if self.is_transposed:
            phase, ahead = c.variables("phase ahead")
            size, count, element = count, size, self.at
            slot = phase * self.line_size + ahead + self.at
            before = (
                c.Let(right, 0 - shift),
                c.Let(phase, c.index_mod(right, apart)),
                c.Let(ahead, (right - phase) // apart),
            )
        start = c.index_max((apart - 1 - right) // apart, 0)
        stop = c.index_min(count, (size + (apart - 1) - right) // apart)
        inner: c.Block = (
            c.Let(self.factor, self.value(self.weight[tap])),
            *before,
            self.added(slot, element * self.image_steps[-1], start, stop),
        )
        return (c.Alias(self.line, self.image, offset), *loops_around(inner, (last.tap,), (last.taps,)))

    def total(self, position: c.Expression) -> c.Load:
        """Return the total at a position of the stretch."""
        return self.totals[position % self.apart * self.line_size + position // self.apart]

    def sums(self, image: c.Expression, *indices: c.Expression) -> c.Block:
        """Return the loops accumulating the totals."""
        channel: c.Expression = self.first
        axes, windows = self.axes, indices
        if not self.is_last:
            axes, windows, channel = self.axes[:-1], indices[1:], indices[0] % self.out_channels
        in_channel, out_channel = self.group * self.in_channels + self.channel, self.group * self.out_channels + channel
        pair = (channel, in_channel) if self.is_transposed else (out_channel, self.channel)
        tap = offset_along([*pair, *(axis.tap for axis in self.axes)], self.weight_steps)
        offset = offset_along([image, in_channel, *(axis.index for axis in axes)], self.image_steps[: 2 + len(axes)])
        body = self.over_channels(offset, tap) if self.is_last else self.over_pixels(offset, tap)
        for axis, window in reversed(list(zip(axes, windows, strict=True))):
            body = axis.loop(window, body)
        return body if self.is_last else loops_around(body, (self.channel,), (self.in_channels,))


def _write_loops(kernel: Kernel, schedule: LoopSchedule) -> None:
    """Write the kernel of a convolution of any kind with an elementwise epilogue."""
    stretch = schedule.stretch
    if stretch < 1:
        raise InternalError("schedule", "has a stretch below 1", got=str(schedule))
    loops, result = _Convolution(kernel, stretch), kernel.group.steps[0].result
    *sizes, width = shape_of(result)
    indices = [c.Variable(f"index{axis}") for axis in range(len(sizes))]
    (item, row), groups = c.variables("item row"), 1
    column: c.Expression = loops.first
    if loops.is_last:
        width, groups = loops.out_channels, loops.groups
        column = loops.group * width + loops.first
    stretches = ceildiv(width, stretch)
    group = item // stretches % groups if loops.is_last else indices[1] // loops.out_channels
    sums, at = loops.totals, loops.at
    rounded: c.Block = ()
    if sums.dtype != dtype_of(result) or loops.apart > 1:
        sums = c.Buffer("sums", dtype_of(result), c.MemoryAccess.WRITE, stretch)
        store = c.Store(
            sums,
            at,
            loops.total(at) if sums.dtype == loops.totals.dtype else c.Cast(loops.total(at), c.CType(sums.dtype)),
        )
        rounded = (c.LocalArray(sums), c.For(at, c.Size(0), loops.count, (store,)))
    body: c.Block = (
        c.Let(row, item // (groups * stretches)),
        c.Let(loops.first, item % stretches * stretch),
        *(c.Let(index, coordinate) for index, coordinate in zip(indices, c.unravelled(row, sizes), strict=True)),
        c.Let(loops.group, group if loops.groups > 1 else c.Size(0)),
        c.Let(loops.count, c.index_min(c.Size(width) - loops.first, stretch)),
        c.LocalArray(loops.totals, is_zeroed=True),
        *loops.sums(*indices),
        *rounded,
        *epilogue(kernel, SumsTile(sums, stretch, row, c.Size(1), column, loops.count)),
    )
    count = product(sizes) * (groups * stretches)
    kernel.finish_block(loops_around(body, (item,), (count,), part=0))


def _has_product_form(step: Step) -> bool:
    """Return whether a convolution may be computed as a matrix product: floats, channels last, over one or two axes."""
    is_flat = step.op in ("nn.conv1d", "nn.conv2d") and str(step.binding.attrs["data_layout"]).endswith("C")
    return is_flat and dtype_of(step.result) in FLOATS


def choose_schedule(kernel: Kernel) -> _Schedule:
    """Return the first suitable schedule for the convolution at the start of a kernel."""
    step = kernel.group.steps[0]
    if _has_product_form(step):
        for choose in (depthwise.choose_schedule, winograd.choose_schedule, pixel_schedule.choose_schedule):
            schedule = choose(kernel, ConvolutionGeometry.of_step(step))
            if schedule is not None:
                return schedule
    return LoopSchedule()


def _schedule_of(kernel: Kernel) -> _Schedule:
    """Return the schedule named by the convolution at the start of a kernel, or the heuristic's choice."""
    default = choose_schedule(kernel)
    return schedule_as_chosen(kernel, kernel.group.steps[0], default, lambda: _offered_schedules(kernel, default))


def _offered_schedules(kernel: Kernel, default: _Schedule) -> Iterator[_Schedule]:
    """Yield legal schedules near the heuristic's choice.

    Tiles of pixels and Winograd's tiles come in turn, the most promising of both first.
    """
    if isinstance(default, LoopSchedule):
        sizes = (default.stretch * 4, default.stretch * 2, default.stretch // 2, default.stretch // 4)
        yield from map(LoopSchedule, sizes)
        return
    geometry = ConvolutionGeometry.of_step(kernel.group.steps[0])
    if isinstance(default, DepthwiseSchedule):
        yield from offered_blocks(kernel, geometry, default)
        if geometry.group_channels == 1:
            return
    tiles = pixel_schedule.choose_schedule(kernel, geometry)
    direct = [] if tiles is None else offered_tiles(kernel, geometry, tiles)
    for pair in zip_longest(winograd.offered_schedules(kernel, geometry), direct):
        yield from (schedule for schedule in pair if schedule is not None)


def _write(kernel: Kernel) -> None:
    """Write the kernel of a convolution and the epilogue."""
    step = kernel.group.steps[0]
    if 0 in shape_of(step.result):
        kernel.finish_block(())
    elif _has_product_form(step) and suits_convolution(step, kernel):
        # Rounded operands give different numbers, not the same numbers in another way.
        write_convolution(kernel)
    else:
        kernel.schedule = schedule = _schedule_of(kernel)
        if isinstance(schedule, LoopSchedule):
            _write_loops(kernel, schedule)
        elif isinstance(schedule, DepthwiseSchedule):
            depthwise.write(kernel, ConvolutionGeometry.of_step(step), schedule)
        elif isinstance(schedule, WinogradSchedule):
            winograd.write(kernel, ConvolutionGeometry.of_step(step), schedule)
        else:
            implicit_gemm.write(kernel, ConvolutionGeometry.of_step(step), schedule)


def _reject(binding: Binding) -> Rejection | None:
    name, weight = binding.op.name, operand_type(binding, 1)
    channels = operand_shape(binding, 0)[str(binding.attrs["data_layout"]).index("C")]
    if weight.symbols or not isinstance(channels, int):
        return Rejection(
            "dynamic-shape", f"{name} is compiled for a known number of channels and a filter of known shape only"
        )
    if 0 in (weight.shape or ()):
        return Rejection("shape", f"{name} has an empty filter")
    return None


def _require(scope: FunctionScope, step: Step) -> None:
    """Require a window inside the padded image, and a non-empty result of a transposed convolution."""
    if step.op.endswith("_transpose"):
        sizes = [shape_of(step.result)[axis] for axis in axes_of(str(step.binding.attrs["data_layout"]), "NC")[2:]]
        require_spatial(scope, step.op, "the result", sizes, [1] * len(sizes))
    else:
        require_room(scope, step, step.op)


def require_room(scope: FunctionScope, step: Step, op: str) -> None:
    """Require a window of a convolution inside the padded image; ``op`` is the op's name in the message."""
    require_window(scope, op, *window_sizes(step.binding, *map(shape_of, step.operands[:2])))


def _reads(step: Step, index: int) -> Access:
    if not _has_product_form(step):
        return Access.ANY
    if index > 0:
        return Access.COMPACT
    # An image of few channels may be copied, and then from any order.
    return Access.ANY if ConvolutionGeometry.of_step(step).joins_lines else Access.ROWS


_OPS = frozenset(f"nn.conv{rank}d{kind}" for rank in RANKS for kind in ("", "_transpose"))

FAMILY = KernelFamily(
    _OPS, _reject, _write, takes_epilogue=True, require=_require, reads=_reads, writes=lambda *_: Access.ROWS
)
"""Convolution over one, two or three axes, and its transpose."""
