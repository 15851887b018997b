"""Products of short numbers, several in a word of 32 bits: four bytes, or two bfloat16.

Rows of factors are rows of a matrix, or windows of an image; the factors are gathered in words, from contiguous runs.
In a panel of columns, the words of one step of the sums lie side by side, step after step. The products of two words
are accumulated at a time, by an instruction, or else by equivalent C.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import END_ITEM, FIRST_ITEM, c_suffix
from byoc_core.dims import Dim, ceildiv
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernels.convolution_geometry import ConvolutionGeometry
from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.epilogue import SumsTile, collapsed_step
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["Blocks", "RunWriter", "WordFormat", "pack_panels", "word_tile"]

_PAIR_MACROS = {64: "__AVX512BW__", 32: "__AVX2__", 16: "__SSE2__"}
"""By the bytes of a register: the macro of processors with products of pairs of 16-bit integers."""


@dataclass(frozen=True, slots=True)
class WordFormat:
    """Words of short numbers, sums of their products, and the addition of products to sums.

    ``definition`` is the addition in C, ``evaluate`` the same in numpy, for the interpreter of C statements. Rows may
    be cut into steps: then ``step`` has the words of a step, and the words from a step to the next step of the row.
    """

    name: str
    dtype: str
    sum_dtype: str
    definition: str
    evaluate: Callable[..., NDArray]
    step: tuple[int, int] | None = None

    def add(self, lanes: int) -> c.Callee:
        """Return the function for vectors of ``lanes`` words."""
        names = ("HAS_PAIRS", "NBYTES", "WORDS", "SUMS")
        types = (f"vec_{c_suffix(dtype)}x{lanes}" for dtype in (self.dtype, self.sum_dtype))
        text = self.definition
        for name, meaning in zip(names, (_PAIR_MACROS[4 * lanes], str(4 * lanes), *types), strict=True):
            text = text.replace(name, meaning)
        return c.Callee(f"vec_add_{self.name}_{lanes}", self.evaluate, definition=text)


def pack_panels(matrix: NDArray, width: int, num_words: int, dtype: str) -> NDArray:
    """Return a matrix (depth x columns) as zero-padded panels: panels x words of a column x columns of a panel.

    If ``dtype`` is the dtype of the matrix, a word is a single number.
    """
    depth, columns = matrix.shape
    count, panels = np.dtype(dtype).itemsize // matrix.itemsize, -(-columns // width)
    padded = np.zeros((num_words * count, panels * width), matrix.dtype)
    padded[:depth, :columns] = matrix
    apart = padded.reshape(num_words, count, panels, width).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(apart).view(dtype)[..., 0]


@cache
def word_tile(unit: VectorUnit, words: WordFormat, rows: int, vectors: int, width: int) -> c.Function:
    """Return a C function multiplying rows of words by some vectors of columns of a panel of a width.

    ``sums[j * pitch + n] = start[j * start_step + n] + sum over k of left[j][k] * panel[k][n]``. ``start`` may be
    ``sums`` itself. Parameters in C: ``left, panel, num_words, row_step, start, start_step, sums, pitch``; if rows are
    cut into steps, the sums start with 0: ``left, panel, num_steps, sums, pitch``.
    """
    lanes, zero = unit.lanes(words.sum_dtype), c.Size(0)
    type_, word, own = c.CType(words.sum_dtype, lanes), c.CType(words.dtype, lanes), vectors * lanes
    left, panel, line, part = (c.Buffer(name, words.dtype) for name in ("left", "panel", "line", "part"))
    start, sums = c.Buffer("start", type_.dtype), c.Buffer("sums", type_.dtype, c.MemoryAccess.SHARED)
    acc = c.Buffer("acc", type_.dtype, c.MemoryAccess.WRITE, rows * own)
    count, row_step, start_step, pitch, j, k, w = c.variables("count row_step start_step pitch j k w")
    factor, columns = c.Variable("factor", word), {n: c.Variable("column", word) for n in range(0, own, lanes)}
    accumulated, add = {n: c.Load(acc, j * own + n, lanes) for n in columns}, words.add(lanes)

    def each(to: c.Buffer, apart: Dim | c.Expression, value: Callable[[int], c.Expression], *before: c.Let) -> c.For:
        """Return the loop over rows setting each vector of sums."""
        body = (*before, *(c.Store(to, j * apart + n, value(n)) for n in columns))
        return c.For(j, zero, c.Size(rows), body, kind=c.LoopKind.UNROLLED)

    def products(row: c.Buffer, steps: c.Buffer, number: c.Expression, step: c.Expression) -> c.For:
        """Return the loop over words."""
        lets = (c.Let(column, c.Load(steps, w * width + n, lanes)) for n, column in columns.items())
        scale = c.Let(factor, c.Broadcast(row[j * step + w], lanes))
        add_up = each(acc, own, lambda n: c.Call(add, (accumulated[n], factor, columns[n]), type_), scale)
        return c.For(w, zero, number, (*lets, add_up))

    begins: tuple[c.Buffer | c.Variable, ...] = ()
    if words.step is None:
        begin = each(acc, own, lambda n: c.Load(start, j * start_step + n, lanes))
        loop, begins = products(left, panel, count, row_step), (row_step, start, start_step)
    else:
        size, apart = words.step
        begin = each(acc, own, lambda _: c.Broadcast(c.Literal(0, c.CType(type_.dtype)), lanes))
        aliases = (c.Alias(line, left, k * apart), c.Alias(part, panel, k * (size * width)))
        loop = c.For(k, zero, count, (*aliases, products(line, part, c.Size(size), c.Size(size))))
    body = (c.LocalArray(acc, lanes=lanes), begin, loop, each(sums, pitch, lambda n: accumulated[n]))
    name = f"vec_tile_{words.name}_{rows}x{own}_of_{width}"
    return c.Function(name, (left, panel, count, *begins, sums, pitch), body, is_contracted=type_.is_float)


@dataclass(frozen=True, slots=True)
class RunWriter:
    """A writer of rows, run by run, each by the statements of ``move``: numbers from an offset in a row on.

    A run without a source lies beyond the borders of an image. ``end`` returns the statements after the last run of a
    row, ``arrays`` are declared before the rows.
    """

    move: Callable[[c.Expression, c.Expression, c.Load | None, Dim], c.Block]
    end: Callable[[c.Expression], c.Block] = lambda _: ()
    arrays: c.Block = ()


class Blocks:
    """Blocks of ``rows``, from ``m0`` on, times panels of ``width`` columns, from ``n0`` on; the last has fewer."""

    def __init__(self, num_rows: Dim, num_columns: Dim, rows: int, width: int) -> None:
        self.num_rows, self.num_columns, self.rows, self.width = num_rows, num_columns, rows, width
        self.count, self.panels = ceildiv(num_rows, rows), ceildiv(num_columns, width)
        self.m0, self.m_count, self.n0, self.n_count, self.panel = c.variables("m0 m_count n0 n_count panel")

    def lets(self, first: c.Expression, panel: c.Expression) -> c.Block:
        """Return the statements placing a block with a first row, and a panel with a number."""
        return (
            c.Let(self.m0, first),
            c.Let(self.m_count, c.index_min(c.Size(self.num_rows) - self.m0, self.rows)),
            c.Let(self.n0, panel * self.width),
            c.Let(self.n_count, c.index_min(c.Size(self.num_columns) - self.n0, self.width)),
        )

    def tile(self, sums: c.Buffer, leading: tuple[c.Expression, ...] = ()) -> SumsTile:
        """Return the sums of a block and a panel."""
        num_columns = c.Size(self.width) if self.num_columns % self.width == 0 else self.n_count
        fewer = self.num_columns % self.width if isinstance(self.num_columns, int) else None
        region = (self.m0, self.m_count, self.n0, num_columns, self.width, fewer)
        return SumsTile(sums, self.width, *region, leading)

    def loop(self, gather: c.For, product: c.Block, before: c.Block, *after: c.Statement) -> c.Dispatch:
        """Return the loop over blocks times panels, panel by panel of each block.

        ``gather`` prepares a block once for all panels. ``before`` and ``after`` stand around the loop of each thread.
        """
        item, block, at_hand = c.variables("item block at_hand")
        body = (
            c.Let(block, item // self.panels),
            c.Let(self.panel, item % self.panels),
            *self.lets(block * self.rows, self.panel),
            c.If(at_hand.compare("!=", block), (c.Assign(at_hand, block), gather)),
            *product,
        )
        start = c.Declare(at_hand, c.Size(-1))
        return self.shared_loop(item, self.count * self.panels, body, (*before, start), *after)

    def gather_rows(self, source: c.Buffer, step: Dim, depth: Dim, writer: RunWriter) -> c.For:
        """Return the loop over the rows of a block, with ``depth`` numbers each, a step apart."""
        row = c.Variable("row")
        move = writer.move(row, c.Size(0), source[self.m0 * step + row * step], depth)
        return c.For(row, c.Size(0), self.m_count, (*move, *writer.end(row)))

    def gather_windows(
        self, image: c.Buffer, shape: ConvolutionGeometry, strides: Sequence[Dim], writer: RunWriter
    ) -> c.For:
        """Return the loop over the windows of the pixels of a block; a line of a window is a single run if possible.

        Windows are written line by line, pixel by pixel; without channels side by side, each line channel by channel.
        """
        batch, channel, down, right = shape.image_steps(strides)
        sizes, channels, across = (shape.batch, shape.height, shape.width), shape.channels, shape.filter_width
        apart = collapsed_step(sizes, sizes, (batch, down, right))
        if shape.is_pointwise and shape.strides == (1, 1) and apart is not None:
            return self.gather_rows(image, apart, channels, writer)
        row, m, y, x, plane = c.variables("row m y x plane")
        tap_down, tap_right, top, col = c.variables("tap_down tap_right top col")
        picture, line = c.Buffer("picture", image.dtype), c.Buffer("line", image.dtype)
        move, (planes, pixel) = writer.move, (1, channels) if channel == 1 else (channels, 1)
        at = (tap_down * planes + plane) * (across * pixel)

        def inside(index: c.Expression, reach: int, size: Dim) -> c.Expression:
            is_inside = c.Binary("&&", index.compare(">=", 0), index.compare("<=", c.Size(size) - reach))
            return is_inside if shape.is_padded else c.Literal(True, c.BOOL)

        tap = at + tap_right * pixel
        found = c.If(inside(col, 1, shape.width), move(row, tap, line[col * right], pixel), move(row, tap, None, pixel))
        pixels = (c.Let(col, x + tap_right * shape.dilation[1]), found)
        taps = loops_around(pixels, (tap_right,), (across,))
        if right == pixel and shape.dilation[1] == 1 and across > 1:
            taps = (c.If(inside(x, across, shape.width), move(row, at, line[x * right], across * pixel), taps),)
        taps = (c.Alias(line, picture, plane * channel + top * down), *taps)
        lines = c.If(inside(top, 1, shape.height), taps, move(row, at, None, across * pixel))
        of_planes = (c.Let(top, y + tap_down * shape.dilation[0]), lines)
        height, width = shape.out_height, shape.out_width
        lets = (
            c.Let(m, self.m0 + row),
            c.Let(y, m // width % height * shape.strides[0] - shape.padding[0]),
            c.Let(x, m % width * shape.strides[1] - shape.padding[1]),
            c.Alias(picture, image, m // (height * width) * batch),
        )
        windows = loops_around(of_planes, (tap_down, plane), (shape.filter_height, planes))
        return c.For(row, c.Size(0), self.m_count, (*lets, *windows, *writer.end(row)))

    @staticmethod
    def shared_loop(index: c.Variable, count: Dim, body: c.Block, before: c.Block, *after: c.Statement) -> c.Dispatch:
        """Return a loop shared by threads, with statements before and after each thread's part of the rounds."""
        first, end = c.variables(f"{FIRST_ITEM} {END_ITEM}")
        return c.Dispatch(first, end, (*before, c.For(index, first, end, body), *after), count)
