"""Pooling, channels last: the inner loops run along the channels.

Sums over small windows of known size are unrolled: each tap has an address, that of a pixel of zeros where the tap lies
outside the image. Other windows are gone through pixel by pixel, the totals of a chunk of channels waiting in a small
array (maxima too: a chain of them waits for itself longer than for memory); sums are added up row by row first, so that
errors grow with the height and the width of a window, not with its area.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence

from byoc_core.authoring import c
from byoc_core.dims import product

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.copies import offset_along
from byoc_ccompiler.kernels.pooling_windows import Pooling, loops_over

__all__ = ["write"]

_MAX_UNROLLED = 32
_CHUNK = 256
"""Channels whose totals wait together."""

_TAP_PS = 100
"""Estimated picoseconds of one tap of one window."""


def write(kernel: Kernel) -> None:
    """Writes the kernel of a pooling op whose layout has the channels last."""
    (step,) = kernel.group.steps
    pooling = Pooling.of_step(step)
    num_taps = math.prod(axis.window for axis in pooling.axes)
    if pooling.is_sum and 0 < num_taps <= _MAX_UNROLLED:
        _write_unrolled(kernel, pooling)
    else:
        _write_chunks(kernel, pooling)


def _window_of(pooling: Pooling, item: c.Expression) -> tuple[list[c.Variable], c.Block]:
    """Return the image and the window along each axis that an item stands for, and their declarations."""
    variables = [c.Variable(name) for name in ("n", *(f"o_{name}" for name in pooling.names))]
    places = c.unravelled(item, [pooling.batch, *(axis.out_size for axis in pooling.axes)])
    return variables, tuple(map(c.Let, variables, places))


def _write_unrolled(kernel: Kernel, pooling: Pooling) -> None:
    """Writes the kernel of sums over small windows of known size."""
    (step,) = kernel.group.steps
    source, target, channels = kernel.source(step.operands[0]), kernel.target(step.result), c.Size(pooling.channels)
    item, channel, total = c.Variable("item"), c.Variable("c"), c.Variable("total", pooling.type)
    (batch, *indices), declarations = _window_of(pooling, item)
    window, to = pooling.window(indices), c.Buffer("to", pooling.dtype, c.MemoryAccess.WRITE)
    before: c.Block = ()
    zeros = None
    if not all(axis.is_inside for axis in pooling.axes):
        zeros = kernel.scratch_memory(pooling.channels, pooling.dtype)
        before = (c.Clear(zeros, c.Size(0), channels),)
    # Pointers by name, not in an array: then compilers know that the loop does not change them.
    pixels, pointers = _tap_pointers(kernel, pooling, source, zeros, [batch, *indices])
    element: c.Block = (
        c.Declare(total, pooling.start),
        *(c.Assign(total, pooling.combine(total, pixel[channel])) for pixel in pixels),
        c.Store(to, channel, pooling.finish(total, window.divisor)),
    )
    body: c.Block = (
        *declarations,
        *window.statements,
        *pointers,
        c.Alias(to, target, offset_along([batch, *indices], kernel.strides(step.result)[:-1])),
        *loops_over([channel], [channels], element),
    )
    count = c.Size(product([pooling.batch, *(axis.out_size for axis in pooling.axes)]))
    round_ps = pooling.channels * len(pixels) * _TAP_PS
    kernel.finish_block((*before, c.For(item, c.Size(0), count, body, kind=c.LoopKind.PARALLEL, round_ps=round_ps)))


def _tap_pointers(
    kernel: Kernel, pooling: Pooling, source: c.Buffer, zeros: c.Buffer | None, indices: Sequence[c.Expression]
) -> tuple[list[c.Buffer], c.Block]:
    """Return pointers to each tap's pixel, or to a pixel of zeros where it lies outside, and their declarations."""
    batch, *window = indices
    strides = kernel.strides(kernel.group.steps[0].operands[0])[:-1]
    begins = [c.Variable(f"from_{name}") for name in pooling.names]
    statements: list[c.Statement] = [
        c.Let(begin, index * axis.stride - axis.begin)
        for begin, index, axis in zip(begins, window, pooling.axes, strict=True)
    ]
    pixels: list[c.Buffer] = []
    for taps in itertools.product(*(range(axis.window) for axis in pooling.axes)):
        places = [begin + tap * axis.dilation for begin, tap, axis in zip(begins, taps, pooling.axes, strict=True)]
        conditions = [
            condition
            for place, axis in zip(places, pooling.axes, strict=True)
            if not axis.is_inside
            for condition in (place.compare(">=", 0), place.compare("<", c.Size(axis.size)))
        ]
        is_inside = functools.reduce(functools.partial(c.Binary, "&&"), conditions) if conditions else None
        pixel = c.Buffer(f"at{len(pixels)}", pooling.dtype)
        other = None if is_inside is None else zeros
        statements.append(c.Alias(pixel, source, offset_along([batch, *places], strides), is_inside, other))
        pixels.append(pixel)
    return pixels, tuple(statements)


def _write_chunks(kernel: Kernel, pooling: Pooling) -> None:
    """Writes the kernel of windows of any size."""
    (step,) = kernel.group.steps
    item, o, c0, c_count = (c.Variable(name) for name in ("item", "o", "c0", "c_count"))
    num_chunks = (pooling.channels + (_CHUNK - 1)) // _CHUNK
    (batch, *indices), declarations = _window_of(pooling, o)
    window = pooling.window(indices)
    total = c.Buffer("total", pooling.dtype, c.MemoryAccess.WRITE, _CHUNK)
    to, line = c.Buffer("to", pooling.dtype, c.MemoryAccess.WRITE), c.Buffer("line", pooling.dtype)

    def each(target: c.Buffer, value: Callable[[c.Variable], c.Expression]) -> c.Block:
        channel = c.Variable("c")
        return loops_over([channel], [c_count], (c.Store(target, channel, value(channel)),))

    sums = c.Buffer("part", pooling.dtype, c.MemoryAccess.WRITE, _CHUNK) if pooling.is_sum else total
    pixel = offset_along([batch, *window.places], kernel.strides(step.operands[0])[:-1])
    taps: c.Block = (
        c.Alias(line, kernel.source(step.operands[0]), pixel + c0),
        *each(sums, lambda channel: pooling.combine(sums[channel], line[channel])),
    )
    row = loops_over(window.taps[-1:], window.counts[-1:], taps)
    if pooling.is_sum:
        row = (c.LocalArray(sums, is_zeroed=True), *row, *each(total, lambda channel: total[channel] + sums[channel]))
    body: c.Block = (
        c.Let(o, item // num_chunks),
        c.Let(c0, item % num_chunks * _CHUNK),
        *declarations,
        *window.statements,
        c.Let(c_count, c.index_min(c.Size(_CHUNK), pooling.channels - c0)),
        c.LocalArray(total),
        *each(total, lambda _: pooling.start),
        *loops_over(window.taps[:-1], window.counts[:-1], row),
        c.Alias(to, kernel.target(step.result), offset_along([batch, *indices], kernel.strides(step.result)[:-1]) + c0),
        *each(to, lambda channel: pooling.finish(total[channel], window.divisor)),
    )
    count = product([pooling.batch, *(axis.out_size for axis in pooling.axes)]) * num_chunks
    round_ps = pooling.num_taps * _CHUNK * _TAP_PS
    kernel.finish_block((c.For(item, c.Size(0), c.Size(count), body, kind=c.LoopKind.PARALLEL, round_ps=round_ps),))
