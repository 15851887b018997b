"""Rows of short numbers, gathered in words: those of a matrix, or the windows of an image, channels last.

A row comes in runs, each of which lies side by side. Bytes are copied. Floats are rounded to bfloat16, a step at a
time: where runs are no whole steps, a row is gathered first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv
from byoc_core.dtypes import to_numpy
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue import collapsed_step
from byoc_ccompiler.kernels.word_tiles import STEP_DEPTH, STEP_PITCH, STEP_WORDS

__all__ = ["RowWriter", "byte_rows", "gather_rows", "gather_windows", "rounded", "rounded_rows"]

_ROUND = """\
/* Rounds up to 32 numbers to bfloat16; zeros fill the 32 up. */
static inline __attribute__((always_inline)) void {name}(const float *from, int64_t count, uint32_t *restrict to) {
#if defined(__AVX512BF16__)
  typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
  floats low, high;
  words both;
  if (count < 32) {
    const uint32_t there = (1u << count) - 1;
    const uint16_t first = (uint16_t)there, second = (uint16_t)(there >> 16);
    __asm__("vmovups %1, %0 %{%2%}%{z%}" : "=v"(low) : "m"(*(const floats *)from), "Yk"(first));
    __asm__("vmovups %1, %0 %{%2%}%{z%}" : "=v"(high) : "m"(*(const floats *)(from + 16)), "Yk"(second));
  } else {
    low = *(const floats *)from;
    high = *(const floats *)(from + 16);
  }
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(low), "v"(high));
  *(words *)to = both;
#else
  typedef uint16_t half __attribute__((may_alias));
  for (int j = 0; j < 32; ++j) ((half *)to)[j] = j < count ? byoc_f32_to_bf16(from[j]).bits : 0;
#endif
}
"""


def rounded(numbers: NDArray) -> NDArray:
    """Return the bits of floats, rounded to bfloat16: ``uint16``."""
    with np.errstate(over="ignore"):
        return numbers.astype(to_numpy("bfloat16")).view(np.uint16)


def _round(source: NDArray, count: int, target: NDArray) -> None:
    target[:STEP_WORDS] = rounded(np.append(source[:count], np.zeros(STEP_DEPTH - count, np.float32))).view(np.uint32)


_ROUND_STEP = c.Callee("vec_round_step", _round, writes=(2,), definition=_ROUND)
_BYTE, _WIDE = c.CType("uint8"), c.CType("int32")


class _Move(Protocol):
    """Return the statements that write so many numbers of a row from a place on."""

    def __call__(self, row: c.Expression, at: c.Expression, source: c.Load, count: Dim, /) -> c.Block: ...


class _Fill(Protocol):
    """Return the statements that write so many numbers from beyond the borders of an image."""

    def __call__(self, row: c.Expression, at: c.Expression, count: Dim, /) -> c.Block: ...


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes rows run by run.

    Attributes:
        move: returns the statements that write a run.
        fill: returns those that write a run beyond the borders of an image.
        end: returns those behind the last run of a row.
        arrays: what is declared before the rows.
    """

    move: _Move
    fill: _Fill
    end: Callable[[c.Expression], c.Block] = lambda _: ()
    arrays: c.Block = ()


def _each(count: Dim, target: c.Buffer, at: c.Expression, value: Callable[[c.Variable], c.Expression]) -> c.Block:
    """Return the loop that stores so many numbers."""
    k = c.Variable("k")
    return (c.For(k, c.Size(0), c.Size(count), (c.Store(target, at + k, value(k)),)),)


def byte_rows(target: c.Buffer, pitch: int, zero: c.Expression) -> RowWriter:
    """Return a writer of bytes without a sign; those with a sign are moved up by half of what there are.

    Args:
        target: the bytes.
        pitch: bytes from row to row.
        zero: what stands beyond the borders of an image.
    """

    def move(row: c.Expression, at: c.Expression, source: c.Load, count: Dim) -> c.Block:
        buffer, index, place = source.buffer, source.index, row * pitch + at
        if buffer.dtype == "uint8":
            return (c.Copy(target, place, buffer, index, c.Size(count)),)
        return _each(count, target, place, lambda k: c.Cast(c.Cast(buffer[index + k], _WIDE) + 128, _BYTE))

    return RowWriter(move, lambda row, at, count: _each(count, target, row * pitch + at, lambda _: zero))


def rounded_rows(target: c.Buffer, first: c.Expression, depth: Dim, run: Dim) -> RowWriter:
    """Return a writer of floats, rounded to bfloat16, cut into steps.

    Args:
        target: the words.
        first: the offset of the first row.
        depth: the numbers of a row.
        run: the numbers of the shortest run, of which all are multiples.
    """
    line = c.Buffer("line", "float32", c.MemoryAccess.WRITE, ceildiv(depth, STEP_DEPTH) * STEP_DEPTH)

    def write(row: c.Expression, at: c.Expression, source: c.Load, count: Dim) -> c.Block:
        k, place = c.Variable("k"), first + at // STEP_DEPTH * STEP_PITCH + row * STEP_WORDS
        whole = count // STEP_DEPTH
        rest = count - whole * STEP_DEPTH

        def of_step(number: c.Expression, there: Dim) -> c.Block:
            begin = c.Address(source.buffer, source.index + number * STEP_DEPTH)
            words = c.Address(target, place + number * STEP_PITCH)
            return (c.Evaluate(c.Call(_ROUND_STEP, (begin, c.Size(there), words))),)

        last = c.If(c.Size(rest).compare(">", 0), of_step(c.Size(whole), rest))
        return (c.For(k, c.Size(0), c.Size(whole), of_step(k, STEP_DEPTH)), last)

    def clear(row: c.Expression, at: c.Expression, count: Dim) -> c.Block:
        k, place = c.Variable("k"), first + at // STEP_DEPTH * STEP_PITCH + row * STEP_WORDS
        step = (c.Clear(target, place + k * STEP_PITCH, c.Size(STEP_WORDS)),)
        return (c.For(k, c.Size(0), c.Size(ceildiv(count, STEP_DEPTH)), step),)

    # A row of one run is rounded where it lies.
    if run == depth or (isinstance(run, int) and run % STEP_DEPTH == 0):
        return RowWriter(write, clear)
    return RowWriter(
        lambda _, at, source, count: (c.Copy(line, at, source.buffer, source.index, c.Size(count)),),
        lambda _, at, count: (c.Clear(line, at, c.Size(count)),),
        lambda row: write(row, c.Size(0), line[0], depth),
        (c.LocalArray(line),),
    )


def gather_rows(source: c.Load, step: Dim, depth: Dim, count: c.Expression, writer: RowWriter) -> c.For:
    """Return the loop over rows that lie so far apart.

    Args:
        source: the first number of the first row.
        step: elements from row to row.
        depth: numbers of a row.
        count: how many rows.
        writer: writes them.
    """
    row = c.Variable("row")
    move = writer.move(row, c.Size(0), source.buffer[source.index + row * step], depth)
    return c.For(row, c.Size(0), count, (*move, *writer.end(row)))


def gather_windows(
    image: c.Buffer,
    shape: ConvolutionGeometry,
    strides: Sequence[Dim],
    first: c.Expression,
    count: c.Expression,
    writer: RowWriter,
) -> c.For:
    """Return the loop over the windows of neighbouring pixels; a line of a window is one run where it can be.

    Args:
        image: all images.
        shape: the sizes of the convolution.
        strides: those of the images.
        first: the first pixel of the result.
        count: how many pixels.
        writer: writes the windows: line by line, pixel by pixel; of images whose channels do not lie side by side, each
            line channel by channel.
    """
    batch, channel, down, right = shape.image_steps(strides)
    sizes, channels, across = (shape.batch, shape.height, shape.width), shape.channels, shape.filter_width
    apart = collapsed_step(sizes, sizes, (batch, down, right))
    if shape.is_pointwise and shape.strides == (1, 1) and apart is not None:
        return gather_rows(image[first * apart], apart, channels, count, writer)
    row, m, y, x, plane = map(c.Variable, ("row", "m", "y", "x", "plane"))
    tap_down, tap_right, top, col = map(c.Variable, ("tap_down", "tap_right", "top", "col"))
    picture, line = c.Buffer("picture", image.dtype), c.Buffer("line", image.dtype)
    planes, pixel = (1, channels) if channel == 1 else (channels, 1)
    at = (tap_down * planes + plane) * (across * pixel)

    def inside(place: c.Expression, reach: int, size: Dim) -> c.Expression:
        if not shape.is_padded:
            return c.Literal(True, c.BOOL)
        return c.Binary("&&", place.compare(">=", 0), place.compare("<=", c.Size(size) - reach))

    tap = at + tap_right * pixel
    one, none = writer.move(row, tap, line[col * right], pixel), writer.fill(row, tap, pixel)
    pixels = (c.Let(col, x + tap_right * shape.dilation[1]), c.If(inside(col, 1, shape.width), one, none))
    taps: c.Block = (c.For(tap_right, c.Size(0), c.Size(across), pixels),)
    if right == pixel and shape.dilation[1] == 1 and across > 1:
        taps = (c.If(inside(x, across, shape.width), writer.move(row, at, line[x * right], across * pixel), taps),)
    lines = (
        c.Let(top, y + tap_down * shape.dilation[0]),
        c.If(
            inside(top, 1, shape.height),
            (c.Alias(line, picture, plane * channel + top * down), *taps),
            writer.fill(row, at, across * pixel),
        ),
    )
    of_planes = c.For(plane, c.Size(0), c.Size(planes), lines)
    height, width = shape.out_height, shape.out_width
    body = (
        c.Let(m, first + row),
        c.Let(y, m // width % height * shape.strides[0] - shape.padding[0]),
        c.Let(x, m % width * shape.strides[1] - shape.padding[1]),
        c.Alias(picture, image, m // (height * width) * batch),
        c.For(tap_down, c.Size(0), c.Size(shape.filter_height), (of_planes,)),
        *writer.end(row),
    )
    return c.For(row, c.Size(0), count, body)
