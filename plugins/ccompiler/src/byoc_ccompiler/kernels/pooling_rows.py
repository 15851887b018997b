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

from byoc_core.authoring.c import (
    Alias,
    Assign,
    Binary,
    Block,
    Buffer,
    Clear,
    Declare,
    Expression,
    For,
    Let,
    LocalArray,
    LoopKind,
    MemoryAccess,
    Size,
    Statement,
    Store,
    Variable,
    index_min,
    unravelled,
)
from byoc_core.dims import product

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.pooling_windows import Pooling, loops_over, position

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


def _window_of(pooling: Pooling, item: Expression) -> tuple[list[Variable], Block]:
    """Return the image and the window along each axis that an item stands for, and their declarations."""
    variables = [Variable(name) for name in ("n", *(f"o_{name}" for name in pooling.names))]
    places = unravelled(item, [pooling.batch, *(axis.out_size for axis in pooling.axes)])
    return variables, tuple(map(Let, variables, places))


def _write_unrolled(kernel: Kernel, pooling: Pooling) -> None:
    """Writes the kernel of sums over small windows of known size."""
    (step,) = kernel.group.steps
    source, target, channels = kernel.source(step.operands[0]), kernel.target(step.result), Size(pooling.channels)
    item, c, total = Variable("item"), Variable("c"), Variable("total", pooling.type)
    (batch, *indices), declarations = _window_of(pooling, item)
    window, to = pooling.window(indices), Buffer("to", pooling.dtype, MemoryAccess.WRITE)
    before: Block = ()
    zeros = None
    if not all(axis.is_inside for axis in pooling.axes):
        zeros = kernel.scratch_memory(pooling.channels, pooling.dtype)
        before = (Clear(zeros, Size(0), channels),)
    # Pointers by name, not in an array: then compilers know that the loop does not change them.
    pixels, pointers = _tap_pointers(kernel, pooling, source, zeros, [batch, *indices])
    element: Block = (
        Declare(total, pooling.start),
        *(Assign(total, pooling.combine(total, pixel[c])) for pixel in pixels),
        Store(to, c, pooling.finish(total, window.divisor)),
    )
    body: Block = (
        *declarations,
        *window.statements,
        *pointers,
        Alias(to, target, position(kernel.strides(step.result)[:-1], [batch, *indices])),
        *loops_over([c], [channels], element),
    )
    count = Size(product([pooling.batch, *(axis.out_size for axis in pooling.axes)]))
    round_ps = pooling.channels * len(pixels) * _TAP_PS
    kernel.finish_block((*before, For(item, Size(0), count, body, kind=LoopKind.PARALLEL, round_ps=round_ps)))


def _tap_pointers(
    kernel: Kernel, pooling: Pooling, source: Buffer, zeros: Buffer | None, indices: Sequence[Expression]
) -> tuple[list[Buffer], Block]:
    """Return pointers to each tap's pixel, or to a pixel of zeros where it lies outside, and their declarations."""
    batch, *window = indices
    strides = kernel.strides(kernel.group.steps[0].operands[0])[:-1]
    begins = [Variable(f"from_{name}") for name in pooling.names]
    statements: list[Statement] = [
        Let(begin, index * axis.stride - axis.begin)
        for begin, index, axis in zip(begins, window, pooling.axes, strict=True)
    ]
    pixels: list[Buffer] = []
    for taps in itertools.product(*(range(axis.window) for axis in pooling.axes)):
        places = [begin + tap * axis.dilation for begin, tap, axis in zip(begins, taps, pooling.axes, strict=True)]
        conditions = [
            condition
            for place, axis in zip(places, pooling.axes, strict=True)
            if not axis.is_inside
            for condition in (place.compare(">=", 0), place.compare("<", Size(axis.size)))
        ]
        is_inside = functools.reduce(functools.partial(Binary, "&&"), conditions) if conditions else None
        pixel = Buffer(f"at{len(pixels)}", pooling.dtype)
        other = None if is_inside is None else zeros
        statements.append(Alias(pixel, source, position(strides, [batch, *places]), is_inside, other))
        pixels.append(pixel)
    return pixels, tuple(statements)


def _write_chunks(kernel: Kernel, pooling: Pooling) -> None:
    """Writes the kernel of windows of any size."""
    (step,) = kernel.group.steps
    item, o, c0, c_count = (Variable(name) for name in ("item", "o", "c0", "c_count"))
    num_chunks = (pooling.channels + (_CHUNK - 1)) // _CHUNK
    (batch, *indices), declarations = _window_of(pooling, o)
    window = pooling.window(indices)
    total = Buffer("total", pooling.dtype, MemoryAccess.WRITE, _CHUNK)
    to, line = Buffer("to", pooling.dtype, MemoryAccess.WRITE), Buffer("line", pooling.dtype)

    def each(target: Buffer, value: Callable[[Variable], Expression]) -> Block:
        c = Variable("c")
        return loops_over([c], [c_count], (Store(target, c, value(c)),))

    sums = Buffer("part", pooling.dtype, MemoryAccess.WRITE, _CHUNK) if pooling.is_sum else total
    pixel = position(kernel.strides(step.operands[0])[:-1], [batch, *window.places])
    taps: Block = (
        Alias(line, kernel.source(step.operands[0]), pixel + c0),
        *each(sums, lambda c: pooling.combine(sums[c], line[c])),
    )
    row = loops_over(window.taps[-1:], window.counts[-1:], taps)
    if pooling.is_sum:
        row = (LocalArray(sums, is_zeroed=True), *row, *each(total, lambda c: total[c] + sums[c]))
    body: Block = (
        Let(o, item // num_chunks),
        Let(c0, item % num_chunks * _CHUNK),
        *declarations,
        *window.statements,
        Let(c_count, index_min(Size(_CHUNK), pooling.channels - c0)),
        LocalArray(total),
        *each(total, lambda _: pooling.start),
        *loops_over(window.taps[:-1], window.counts[:-1], row),
        Alias(to, kernel.target(step.result), position(kernel.strides(step.result)[:-1], [batch, *indices]) + c0),
        *each(to, lambda c: pooling.finish(total[c], window.divisor)),
    )
    count = product([pooling.batch, *(axis.out_size for axis in pooling.axes)]) * num_chunks
    round_ps = pooling.num_taps * _CHUNK * _TAP_PS
    kernel.finish_block((For(item, Size(0), Size(count), body, kind=LoopKind.PARALLEL, round_ps=round_ps),))
