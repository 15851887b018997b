"""Pooling over one, two or three axes: the positions of windows, and the order of visiting windows and taps.

With channels last, the inner loops run along the channels. Sums over small windows of known size are unrolled: each tap
has an address, outside the image the address of a pixel of zeros. Other windows are visited individually, with the
totals of a chunk of channels in a small array (for maxima too: a chain of maxima has more latency than memory). With
channels first, a row takes a pass per tap, with the inner loop along the row; elsewhere a chunk is a single element.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import C_TYPES, FunctionScope, c_suffix
from byoc_core.backend.hooks import Rejection
from byoc_core.dims import Dim
from byoc_core.dtypes import is_integer
from byoc_core.ir import Binding, Value
from byoc_core.ops import axes_of

from byoc_ccompiler.attributes import int_of, ints_of
from byoc_ccompiler.family import Access, KernelFamily
from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import loops_around, offset_along
from byoc_ccompiler.kernels.pointwise import known_power
from byoc_ccompiler.rejections import FLOATS, operand_type, reject_non_floats
from byoc_ccompiler.size_checks import require_spatial
from byoc_ccompiler.steps import Step, dtype_of, shape_of

__all__ = ["FAMILY"]

_MAX_UNROLLED, _CHUNK = 32, 256
"""Maximum taps of an unrolled window; maximum channels with totals waiting together."""

_SHORT = 16
"""Minimum elements of a row worth a pass per tap."""


@dataclass(frozen=True, slots=True)
class _Axis:
    """The windows along a spatial axis.

    Each window has ``window`` taps, or 0 for adaptive pooling: the windows then divide the axis. ``begin`` and ``end``
    are padding.
    """

    name: str
    size: Dim
    out_size: Dim
    window: int = 0
    stride: int = 1
    dilation: int = 1
    begin: int = 0
    end: int = 0

    @property
    def is_inside(self) -> bool:
        """Whether every tap of every window is known to lie inside the image."""
        if not self.window or self.begin or not isinstance(self.size, int) or not isinstance(self.out_size, int):
            return False
        return (self.out_size - 1) * self.stride + (self.window - 1) * self.dilation < self.size

    def taps(self, index: c.Expression) -> tuple[c.Variable, c.Variable, c.Variable, c.Block]:
        """Return a window's first position inside the image, the taps inside and with padding, and the declarations."""
        first, count, wide, start, skip, room = (
            c.Variable(f"{prefix}_{self.name}") for prefix in ("first", "count", "wide", "start", "skip", "room")
        )
        size = c.Size(self.size)
        if not self.window:
            end = ((index + 1) * size + (self.out_size - 1)) // self.out_size
            return first, count, count, (c.Let(first, index * size // self.out_size), c.Let(count, end - first))
        skipped = (self.dilation - 1 - start) // self.dilation
        left = (size - 1 - first + self.dilation) // self.dilation
        reach = (size + (self.end - 1) - start) // self.dilation + 1
        statements: c.Block = (
            c.Let(start, index * self.stride - self.begin),
            c.Let(skip, c.Select(start.compare("<", 0), skipped, c.Size(0))),
            c.Let(first, start + skip * self.dilation),
            c.Let(room, c.Select(first.compare("<", size), left, c.Size(0))),
            # Padding is smaller than the window: at least one tap is not skipped.
            c.Let(count, c.index_min(self.window - skip, room)),
            c.Let(wide, c.index_min(c.Size(self.window), reach)),
        )
        return first, count, wide, statements


class _Window(NamedTuple):
    """A window: the position of a tap along each axis, the divisor of a mean, and the statements declaring both.

    For each axis, ``taps`` has the index of a tap, counted from the first tap inside the image, ``counts`` their
    number.
    """

    positions: Sequence[c.Expression]
    divisor: c.Variable
    statements: c.Block
    taps: Sequence[c.Variable]
    counts: Sequence[c.Variable]


@dataclass(frozen=True, slots=True)
class _Pooling:
    """A pooling op: ``kind`` is ``max``, ``avg`` or ``lp``, and ``power`` the exponent of ``lp``."""

    kind: str
    type: c.CType
    batch: Dim
    channels: Dim
    axes: tuple[_Axis, ...]
    counts_padding: bool
    power: int

    @classmethod
    def of_step(cls, step: Step) -> Self:
        """Return the pooling defined by an op."""
        binding, attrs = step.binding, step.binding.attrs
        order = axes_of(str(attrs["layout"]), "NC")
        batch, channels, *sizes = (shape_of(step.operands[0])[axis] for axis in order)
        out_sizes = [shape_of(step.result)[axis] for axis in order[2:]]
        columns: list[Sequence[Any]] = ["dhw"[-len(sizes) :], sizes, out_sizes]
        if "output_size" not in attrs:
            padding = ints_of(binding, "padding")
            columns += [ints_of(binding, name) for name in ("pool_size", "strides", "dilation")]
            columns += [padding[: len(sizes)], padding[len(sizes) :]]
        axes = tuple(_Axis(*axis) for axis in zip(*columns, strict=True))
        kind = step.op.removeprefix("nn.").removeprefix("adaptive_").partition("_")[0]
        power = int_of(binding, "p") if "p" in attrs else 1
        type_, counts_padding = c.CType(dtype_of(step.result)), attrs.get("count_include_pad") is True
        return cls(kind, type_, batch, channels, axes, counts_padding, power)

    @property
    def is_sum(self) -> bool:
        """Whether elements are added up."""
        return self.kind != "max"

    @property
    def is_inside(self) -> bool:
        """Whether every tap of every window is known to lie inside the image."""
        return all(axis.is_inside for axis in self.axes)

    @property
    def start(self) -> c.Literal:
        """The total of a window without elements."""
        least = -np.inf if self.type.is_float else np.iinfo(self.type.dtype).min
        return c.Literal(0 if self.is_sum else least, self.type)

    def combine(self, total: c.Expression, value: c.Expression) -> c.Expression:
        """Return a total with a further element."""
        if not self.is_sum:
            maximum = c.Callee(f"byoc_maximum_{c_suffix(self.type.dtype)}", np.maximum, flops=1)
            return c.Call(maximum, (total, value), self.type)
        if self.kind == "avg":
            return total + value
        size = c.Callee("fabsf" if self.type.dtype == "float32" else "fabs", np.abs, flops=1)
        return total + known_power(c.Call(size, (value,), self.type), self.power)

    def finish(self, total: c.Expression, divisor: c.Expression) -> c.Expression:
        """Return the result from a window's total and the divisor of a mean."""
        if self.kind == "avg":
            return total / divisor
        return known_power(total, 1.0 / self.power)

    def window(self, indices: Sequence[c.Expression]) -> _Window:
        """Return the window with this number along each axis."""
        statements: c.Block = ()
        taps = [c.Variable(f"k_{axis.name}") for axis in self.axes]
        positions: list[c.Expression] = []
        counts: list[c.Variable] = []
        counted: c.Expression = c.Size(1)
        for axis, index, tap in zip(self.axes, indices, taps, strict=True):
            first, count, wide, declarations = axis.taps(index)
            statements += declarations
            counts.append(count)
            positions.append(first + tap * axis.dilation)
            counted = counted * (wide if self.counts_padding else count)
        divisor = c.Variable("divisor", self.type)
        declared = c.Let(divisor, c.Cast(c.index_max(c.Size(1), counted), self.type))
        return _Window(positions, divisor, (*statements, declared), taps, counts)


class _Image(NamedTuple):
    """A channel of an image, or a chunk of channels: a pointer to the first element, and the spatial strides."""

    first: c.Alias
    strides: Sequence[Dim]

    def pointer(self, name: str, positions: Sequence[c.Expression]) -> c.Alias:
        """Return the pointer to the element at positions along the spatial axes, or along the leading axes."""
        buffer, offset = self.first.buffer, offset_along(positions, self.strides[: len(positions)])
        return c.Alias(replace(buffer, name=name), buffer, offset)


def _write(kernel: Kernel) -> None:
    """Write the kernel of a pooling op: a nest over windows, or rows of windows, in chunks of channels."""
    (step,) = kernel.group.steps
    (x,) = step.operands
    pooling, order = _Pooling.of_step(step), axes_of(str(step.binding.attrs["layout"]), "NC")
    batch, first, count, chunk = map(c.Variable, ("n", "c0", "c_count", "chunk"))
    windows = tuple(c.Axis(c.Variable(f"o_{axis.name}"), axis.out_size) for axis in pooling.axes)
    indices = [axis.index for axis in windows]

    def image_in(name: str, buffer: c.Buffer, value: Value) -> _Image:
        batch_step, channel_step, *strides = (kernel.strides(value)[axis] for axis in order)
        start = batch * batch_step + first * channel_step
        return _Image(c.Alias(replace(buffer, name=name), buffer, start), strides)

    images = image_in("from", kernel.source(x), x), image_in("to", kernel.target(step.result), step.result)
    before: c.Block = ()
    room: Dim = _CHUNK
    has_planes = _access(step, 0) is Access.COMPACT
    if has_planes:
        # Planes are consecutive, across batches too.
        pooling, room = replace(pooling, batch=1, channels=pooling.batch * pooling.channels), 1
        takes_passes = _takes_passes(pooling)
        if takes_passes:
            body, windows = _passes(pooling, indices, *images), windows[:-1]
        else:
            body = _reduction(pooling, indices, *images, c.Size(1), 1)
    elif pooling.is_sum and 0 < math.prod(axis.window for axis in pooling.axes) <= _MAX_UNROLLED:
        room = pooling.channels
        before, body = _unrolled(kernel, pooling, indices, *images)
    else:
        reduction = _reduction(pooling, indices, *images, count, _CHUNK)
        body = (c.Let(count, c.index_min(c.Size(_CHUNK), pooling.channels - first)), *reduction)
    chunks = c.Axis(chunk, 1 if room == pooling.channels else (pooling.channels + (room - 1)) // room)
    axes = (c.Axis(batch, pooling.batch), *((chunks, *windows) if has_planes else (*windows, chunks)))
    shared = tuple(axis.name for axis in (axes[:2] if has_planes else axes))
    nest = c.Nest(axes, (c.Let(first, chunk * room), *(image.first for image in images), *body))
    schedule = c.Schedule(parallel=shared)
    kernel.finish_block((*before, *kernel.lower(nest, schedule)))


def _takes_passes(pooling: _Pooling) -> bool:
    """Return whether a pass along a row for each tap takes less time than window by window."""
    right, rank = pooling.axes[-1], len(pooling.axes)
    is_short = isinstance(right.out_size, int) and right.out_size < _SHORT
    if pooling.is_inside:
        return not is_short and not pooling.is_sum and (rank == 2 or right.stride < right.window)
    is_tiny = isinstance(right.size, int) and right.size <= _SHORT // 2
    return right.window > 0 and not is_tiny and not (is_short and (pooling.is_sum or rank == 1))


def _passes(pooling: _Pooling, indices: Sequence[c.Variable], image: _Image, result: _Image) -> c.Block:
    """Return the statements visiting the windows of a row once for each tap: a sum takes the taps individually."""
    (*outer, last_index), along = indices, pooling.axes[-1]
    rows, window = pooling.window([*outer, c.Size(0)]), pooling.window(indices)
    tap, position, begin, col = map(c.Variable, ("k_w", "position", "begin", "col"))
    line, row = image.pointer("line", rows.positions[:-1]), result.pointer("to", outer)
    to = row.buffer
    # The windows from the first to the end have this tap inside the image.
    end = c.index_min(c.Size(along.out_size), (along.size - 1 - position + along.stride) // along.stride)
    one_pass: c.Block = (
        c.Let(position, tap * along.dilation - along.begin),
        replace(line, offset=line.offset + position),
        c.Let(begin, (c.index_max(c.Size(0), 0 - position) + (along.stride - 1)) // along.stride),
        c.For(col, begin, end, (c.Store(to, col, pooling.combine(to[col], line.buffer[col * along.stride])),)),
    )
    finish = c.Store(to, last_index, pooling.finish(to[last_index], window.divisor))
    finished = loops_around((*window.statements, finish), [last_index], [along.out_size])
    cleared = _each(to, c.Size(along.out_size), lambda _: pooling.start)
    passes = loops_around(one_pass, [*rows.taps[:-1], tap], [*rows.counts[:-1], along.window])
    return (*rows.statements, row, *cleared, *passes, *(finished if pooling.is_sum else ()))


def _unrolled(
    kernel: Kernel, pooling: _Pooling, indices: Sequence[c.Variable], image: _Image, result: _Image
) -> tuple[c.Block, c.Block]:
    """Return the statements before all windows, and the statements reducing a window of known size in all channels."""
    channel, total, to = c.Variable("c"), c.Variable("total", pooling.type), result.pointer("to", indices)
    window, channels = pooling.window(indices), c.Size(pooling.channels)
    zeros = None if pooling.is_inside else kernel.scratch_memory(pooling.channels, pooling.type.dtype)
    begins = [c.Variable(f"from_{axis.name}") for axis in pooling.axes]
    corner = [index * axis.stride - axis.begin for axis, index in zip(pooling.axes, indices, strict=True)]
    # Pointers by name, not in an array: then compilers know the pointers to be loop-invariant.
    pixels: list[c.Alias] = []
    for taps in itertools.product(*(range(axis.window) for axis in pooling.axes)):
        positions = [begin + tap * axis.dilation for axis, begin, tap in zip(pooling.axes, begins, taps, strict=True)]
        limits = [
            (position, axis) for axis, position in zip(pooling.axes, positions, strict=True) if not axis.is_inside
        ]
        bounds = [
            bound
            for position, axis in limits
            for bound in (position.compare(">=", 0), position.compare("<", axis.size))
        ]
        pixel = image.pointer(f"at{len(pixels)}", positions)
        if bounds:
            is_inside = functools.reduce(functools.partial(c.Binary, "&&"), bounds)
            pixel = replace(pixel, condition=is_inside, otherwise=zeros)
        pixels.append(pixel)
    element: c.Block = (
        c.Declare(total, pooling.start),
        *(c.Assign(total, pooling.combine(total, pixel.buffer[channel])) for pixel in pixels),
        c.Store(to.buffer, channel, pooling.finish(total, window.divisor)),
    )
    before = () if zeros is None else (c.Clear(zeros, c.Size(0), channels),)
    pointers = (*map(c.Let, begins, corner), *pixels, to)
    return before, (*window.statements, *pointers, *loops_around(element, [channel], [pooling.channels]))


def _reduction(
    pooling: _Pooling, indices: Sequence[c.Variable], image: _Image, result: _Image, count: c.Expression, room: int
) -> c.Block:
    """Return the statements reducing a window in ``count`` neighbouring elements, with room for their totals.

    Sums are added up row by row first: errors grow with the height and the width of a window, not with the area.
    """
    window, to = pooling.window(indices), result.pointer("to", indices)
    line, last = image.pointer("line", window.positions[:-1]), window.positions[-1] * image.strides[-1]
    total, part = (c.Buffer(name, pooling.type.dtype, c.MemoryAccess.WRITE, room) for name in ("total", "part"))
    sums = part if pooling.is_sum else total
    taps = _each(sums, count, lambda channel: pooling.combine(sums[channel], line.buffer[last + channel]))
    rows = (line, *loops_around(taps, window.taps[-1:], window.counts[-1:]))
    if pooling.is_sum:
        added = _each(total, count, lambda channel: total[channel] + part[channel])
        rows = (c.LocalArray(part, is_zeroed=True), *rows, *added)
    cleared = (c.LocalArray(total), *_each(total, count, lambda _: pooling.start))
    finished = _each(to.buffer, count, lambda channel: pooling.finish(total[channel], window.divisor))
    return (*window.statements, *cleared, *loops_around(rows, window.taps[:-1], window.counts[:-1]), to, *finished)


def _each(cells: c.Buffer, count: c.Expression, value: Callable[[c.Expression], c.Expression]) -> c.Block:
    """Return the loop setting the first ``count`` elements of a buffer."""
    index = c.Variable("c")
    return (c.For(index, c.Size(0), count, (c.Store(cells, index, value(index)),)),)


def _reject(binding: Binding) -> Rejection | None:
    if "max" not in binding.op.name:
        return reject_non_floats(binding)
    dtype = operand_type(binding, 0).dtype
    if dtype in FLOATS or (dtype in C_TYPES and is_integer(dtype)):
        return None
    return Rejection("dtype", f"{binding.op.name} is compiled for {', '.join(FLOATS)} and integers, not for {dtype}")


def _require(scope: FunctionScope, step: Step) -> None:
    axes = _Pooling.of_step(step).axes
    padded = [axis.size + axis.begin + axis.end for axis in axes]
    # Adaptive pooling divides any image.
    window = [(axis.window - 1) * axis.dilation + 1 if axis.window else 1 for axis in axes]
    require_spatial(scope, step.op, "the padded image", padded, window)


def _access(step: Step, index: int) -> Access:
    return Access.ROWS if str(step.binding.attrs["layout"]).endswith("C") else Access.COMPACT


_OPS = frozenset(
    f"nn.{kind}_pool{rank}d" for kind in ("max", "avg", "lp", "adaptive_max", "adaptive_avg") for rank in (1, 2, 3)
)
FAMILY = KernelFamily(_OPS, _reject, _write, require=_require, reads=_access, writes=_access)
"""Pooling."""
