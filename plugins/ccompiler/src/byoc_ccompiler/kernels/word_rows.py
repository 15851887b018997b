"""Rows of short numbers, gathered in words: those of a matrix, or the windows of an image, channels last.

A row comes in runs, each of which lies side by side. Bytes are copied. Floats are rounded to bfloat16, whole steps at a
time: where runs are none, a row is gathered first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv
from byoc_core.dtypes import to_numpy
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.epilogue import collapsed_step
from byoc_ccompiler.kernels.word_tiles import STEP_ROWS, STEP_WORDS

__all__ = ["STEP_DEPTH", "ByteRows", "RoundedRows", "RowWriter", "gather_rows", "gather_windows", "rounded"]

STEP_DEPTH = 2 * STEP_WORDS
"""Numbers of a step of a row of bfloat16."""

_ROUND = """\
/* Rounds 32 numbers to bfloat16. */
static inline void {name}(const float *from, uint32_t *restrict to) {
#if defined(__AVX512BF16__)
  typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
  typedef uint32_t words __attribute__((vector_size(64), aligned(4), may_alias));
  words both;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(both) : "v"(*(const floats *)from), "v"(*(const floats *)(from + 16)));
  *(words *)to = both;
#else
  typedef uint16_t half __attribute__((may_alias));
  for (int j = 0; j < 32; ++j) ((half *)to)[j] = byoc_f32_to_bf16(from[j]).bits;
#endif
}
"""


def rounded(numbers: NDArray) -> NDArray:
    """Return the bits of floats, rounded to bfloat16: ``uint16``."""
    with np.errstate(over="ignore"):
        return numbers.astype(to_numpy("bfloat16")).view(np.uint16)


def _round(source: NDArray, target: NDArray) -> None:
    target[:STEP_WORDS] = rounded(source[:STEP_DEPTH]).view(np.uint32)


_ROUND_STEP = c.Callee("vec_round_step", _round, writes=(1,), definition=_ROUND)
_BYTE, _WIDE = c.CType("uint8"), c.CType("int32")


class RowWriter(Protocol):
    """Writes rows run by run."""

    def move(self, row: c.Expression, at: c.Expression, source: c.Load, count: Dim, step: Dim = 1) -> c.Block:
        """Return the statements that write a run of a row.

        Args:
            row: the row.
            at: the place of the run's first number in the row.
            source: the first number.
            count: how many there are.
            step: elements from one to the next.
        """

    def fill(self, row: c.Expression, at: c.Expression, count: Dim) -> c.Block:
        """Return the statements that write a run of numbers beyond the borders of an image."""

    def end(self, row: c.Expression) -> c.Block:
        """Return the statements behind the last run of a row."""


@dataclass(frozen=True, slots=True)
class ByteRows:
    """Rows of bytes without a sign. Those with a sign are moved up by half of what there are.

    Attributes:
        target: the bytes.
        pitch: bytes from row to row.
        zero: what stands beyond the borders of an image.
    """

    target: c.Buffer
    pitch: int
    zero: c.Expression

    def move(self, row: c.Expression, at: c.Expression, source: c.Load, count: Dim, step: Dim = 1) -> c.Block:
        """Return the statements that write a run of a row."""
        place = row * self.pitch + at
        if source.buffer.dtype == "uint8":
            return (c.Copy(self.target, place, source.buffer, source.index, c.Size(count)),)
        k = c.Variable("k")
        moved = c.Cast(c.Cast(source.buffer[source.index + k], _WIDE) + 128, _BYTE)
        return (c.For(k, c.Size(0), c.Size(count), (c.Store(self.target, place + k, moved),)),)

    def fill(self, row: c.Expression, at: c.Expression, count: Dim) -> c.Block:
        """Return the statements that write a run of numbers beyond the borders of an image."""
        k = c.Variable("k")
        store = c.Store(self.target, row * self.pitch + at + k, self.zero)
        return (c.For(k, c.Size(0), c.Size(count), (store,)),)

    def end(self, row: c.Expression) -> c.Block:
        """Return no statement."""
        return ()


class RoundedRows:
    """Rows of floats, rounded to bfloat16, cut into steps.

    Args:
        target: the words.
        first: the offset of the first row.
        depth: the numbers of a row.
        run: the numbers of each run, or of a part of which each is a multiple.

    Attributes:
        arrays: what is declared before the rows.
    """

    def __init__(self, target: c.Buffer, first: c.Expression, depth: Dim, run: Dim) -> None:
        self._target, self._first, self._depth = target, first, depth
        # A row of one run is rounded where it lies but for the numbers behind the last whole step.
        self._is_direct = run == depth or (isinstance(run, int) and run % STEP_DEPTH == 0)
        size = STEP_DEPTH if self._is_direct else self.num_steps * STEP_DEPTH
        self._line = c.Buffer("line", "float32", c.MemoryAccess.WRITE, size)
        self.arrays = (c.LocalArray(self._line, is_zeroed=True),)

    @property
    def num_steps(self) -> Dim:
        """The steps of a row."""
        return ceildiv(self._depth, STEP_DEPTH)

    def _place(self, row: c.Expression, step: c.Expression) -> c.Expression:
        return self._first + step * (STEP_ROWS * STEP_WORDS) + row * STEP_WORDS

    def move(self, row: c.Expression, at: c.Expression, source: c.Load, count: Dim, step: Dim = 1) -> c.Block:
        """Return the statements that write a run of a row."""
        if self._is_direct:
            return self._rounded(row, at // STEP_DEPTH, source, count)
        if step == 1:
            return (c.Copy(self._line, at, source.buffer, source.index, c.Size(count)),)
        k = c.Variable("k")
        store = c.Store(self._line, at + k, source.buffer[source.index + k * step])
        return (c.For(k, c.Size(0), c.Size(count), (store,)),)

    def fill(self, row: c.Expression, at: c.Expression, count: Dim) -> c.Block:
        """Return the statements that write a run of zeros."""
        if not self._is_direct:
            return (c.Clear(self._line, at, c.Size(count)),)
        k = c.Variable("k")
        clear = c.Clear(self._target, self._place(row, at // STEP_DEPTH + k), c.Size(STEP_WORDS))
        return (c.For(k, c.Size(0), c.Size(ceildiv(count, STEP_DEPTH)), (clear,)),)

    def end(self, row: c.Expression) -> c.Block:
        """Return the statements that round what was gathered."""
        whole = self.num_steps * STEP_DEPTH
        return () if self._is_direct else self._rounded(row, c.Size(0), self._line[0], whole)

    def _rounded(self, row: c.Expression, first: c.Expression, source: c.Load, count: Dim) -> c.Block:
        whole, k, line = count // STEP_DEPTH, c.Variable("k"), self._line
        rest = count - whole * STEP_DEPTH

        def of_step(buffer: c.Buffer, index: c.Expression, step: c.Expression) -> c.Evaluate:
            place = c.Address(self._target, self._place(row, first + step))
            return c.Evaluate(c.Call(_ROUND_STEP, (c.Address(buffer, index), place)))

        steps = c.For(k, c.Size(0), c.Size(whole), (of_step(source.buffer, source.index + k * STEP_DEPTH, k),))
        last: c.Block = (
            c.Copy(line, c.Size(0), source.buffer, source.index + whole * STEP_DEPTH, c.Size(rest)),
            of_step(line, c.Size(0), c.Size(whole)),
        )
        return (steps, c.If(c.Size(rest).compare(">", 0), last))


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
    steps: tuple[Dim, Dim, Dim, Dim],
    first: c.Expression,
    count: c.Expression,
    writer: RowWriter,
) -> c.For:
    """Return the loop over the windows of neighbouring pixels; a line of a window is one run where it can be.

    Args:
        image: all images.
        shape: the sizes of the convolution.
        steps: the distances from one image, channel, row and pixel to the next.
        first: the first pixel of the result.
        count: how many pixels.
        writer: writes the windows: line by line, pixel by pixel.
    """
    batch, channel, down, right = steps
    sizes, channels, across = (shape.batch, shape.height, shape.width), shape.channels, shape.filter_width
    apart = collapsed_step(sizes, sizes, (batch, down, right))
    if shape.is_pointwise and shape.strides == (1, 1) and apart is not None:
        return gather_rows(image[first * apart], apart, channels, count, writer)
    row, m, y, x = map(c.Variable, ("row", "m", "y", "x"))
    tap_down, tap_right, top, col = map(c.Variable, ("tap_down", "tap_right", "top", "col"))
    picture, line = c.Buffer("picture", image.dtype), c.Buffer("line", image.dtype)

    def inside(place: c.Expression, number: int, size: Dim) -> c.Expression:
        if not shape.is_padded:
            return c.Literal(True, c.BOOL)
        return c.Binary("&&", place.compare(">=", 0), place.compare("<=", c.Size(size) - number))

    at = tap_down * (across * channels)
    tap = at + tap_right * channels
    one = (
        c.Let(col, x + tap_right * shape.dilation[1]),
        c.If(
            inside(col, 1, shape.width),
            writer.move(row, tap, line[col * right], channels, channel),
            writer.fill(row, tap, channels),
        ),
    )
    taps: c.Block = (c.For(tap_right, c.Size(0), c.Size(across), one),)
    if (channel, right) == (1, channels) and shape.dilation[1] == 1 and across > 1:
        whole = writer.move(row, at, line[x * right], across * channels)
        taps = (c.If(inside(x, across, shape.width), whole, taps),)
    lines = (
        c.Let(top, y + tap_down * shape.dilation[0]),
        c.If(
            inside(top, 1, shape.height),
            (c.Alias(line, picture, top * down), *taps),
            writer.fill(row, at, across * channels),
        ),
    )
    height, width = shape.out_height, shape.out_width
    body = (
        c.Let(m, first + row),
        c.Let(y, m // width % height * shape.strides[0] - shape.padding[0]),
        c.Let(x, m % width * shape.strides[1] - shape.padding[1]),
        c.Alias(picture, image, m // (height * width) * batch),
        c.For(tap_down, c.Size(0), c.Size(shape.filter_height), lines),
        *writer.end(row),
    )
    return c.For(row, c.Size(0), count, body)
