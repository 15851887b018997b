"""Tiles of products by weights of 4 or 8 bits with scales: with numbers unpacked in registers, or into a panel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from byoc_core.authoring import c

from byoc_ccompiler.kernels.copies import fetch_line
from byoc_ccompiler.kernels.number_words import WORD, BlockFormat, number_in
from byoc_ccompiler.kernels.tiles import DEPTH_CHUNK, in_lanes
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["ZEROS_IN_WORD", "direct_tile", "unpack_function"]

ZEROS_IN_WORD = 4
"""Zero points of successive blocks in a word."""

_FLOAT, _ZERO = c.CType("float32"), c.Size(0)

_LINE_WORDS, _WORDS_AHEAD = 16, 1024
"""Words of a cache line; words from the words in use to the prefetched words."""


class _Columns:
    """The columns of a panel: a few vectors, each with separate variables; or, without vectors, a loop."""

    def __init__(self, unit: VectorUnit, width: int) -> None:
        self.lanes, self.width, self.has_vectors = unit.lanes(_FLOAT.dtype), width, unit.has_vectors
        self._n = c.Variable("n")
        vectors = [c.Size(n) for n in range(0, width, self.lanes)]
        self._firsts: Sequence[c.Expression] = vectors if unit.has_vectors else [self._n]

    def each(self, body: Callable[[c.Expression, int], c.Block], kind: c.LoopKind = c.LoopKind.SERIAL) -> c.Block:
        """Return the statements for all columns; ``body`` gets the first column and the number of a vector."""
        block = tuple(item for number, first in enumerate(self._firsts) for item in body(first, number))
        return block if self.has_vectors else (c.For(self._n, _ZERO, c.Size(self.width), block, kind=kind),)

    def variables(self, name: str, type_: c.CType) -> list[c.Variable]:
        """Return a variable for each vector."""
        return [c.Variable(name, type_.with_lanes(self.lanes)) for _ in self._firsts]


class _Panel:
    """The C parameters with the weights of a panel, and the expressions reading the weights.

    Attributes:
        parameters: the buffers of words, scales, and zero points, if any.
    """

    def __init__(self, unit: VectorUnit, form: BlockFormat, width: int) -> None:
        self.form, self.width, self.columns = form, width, _Columns(unit, width)
        self.words, self.scales = c.Buffer("words", WORD.dtype), c.Buffer("scales", _FLOAT.dtype)
        self.zeros = c.Buffer("zeros", WORD.dtype)
        self.parameters = (self.words, self.scales, *((self.zeros,) if form.has_zeros else ()))

    def scale(self, block: c.Expression, n: c.Expression) -> c.Load:
        """Return the scales of a vector of columns in a block."""
        return c.Load(self.scales, block * self.width + n, self.columns.lanes)

    def zero(self, block: c.Expression, n: c.Expression) -> c.Expression:
        """Return the zero points of a vector of columns in a block."""
        word = c.Load(self.zeros, block // ZEROS_IN_WORD * self.width + n, self.columns.lanes)
        return number_in(word, block % ZEROS_IN_WORD, 32 // ZEROS_IN_WORD)

    def fetches(self, words: c.Buffer, word: c.Expression) -> c.Block:
        """Return the statements prefetching the words some way behind the words of all columns at an index."""
        firsts = range(0, self.width, _LINE_WORDS) if self.columns.has_vectors else ()
        return tuple(fetch_line(words, word * self.width + n + _WORDS_AHEAD) for n in firsts)


class _DirectTile:
    """The writer of :func:`direct_tile`."""

    def __init__(self, unit: VectorUnit, form: BlockFormat, rows: int, width: int) -> None:
        self.form, self.rows, self.width = form, rows, width
        self.panel = _Panel(unit, form, width)
        self.columns, self.lanes = self.panel.columns, self.panel.columns.lanes
        self.x, self.line = c.Buffer("x", _FLOAT.dtype), c.Buffer("line", WORD.dtype)
        self.x_step, self.b, self.k0, self.r, self.j = c.variables("x_step b k0 r j")
        self.acc = c.Buffer("acc", _FLOAT.dtype, c.MemoryAccess.WRITE, rows * width)
        self.totals = c.Buffer("totals", _FLOAT.dtype, c.MemoryAccess.WRITE, rows * width)
        # The zero points of a block: variables, or an array without vectors.
        self.centre_array = c.Buffer("centres", _FLOAT.dtype, c.MemoryAccess.WRITE, width)
        self.centres = self.columns.variables("centre", _FLOAT)

    def function(self) -> c.Function:
        """Return the function."""
        sums = c.Buffer("sums", _FLOAT.dtype, c.MemoryAccess.WRITE)
        depth, pitch = c.variables("depth pitch")
        body = (
            *(c.LocalArray(array, lanes=self.lanes) for array in (self.acc, self.totals)),
            *((c.LocalArray(self.centre_array),) if self._has_centre_array else ()),
            self._each_sum(self.totals, c.Size(self.width), lambda *_: self._nothing),
            c.For(self.b, _ZERO, (depth + (self.form.block_size - 1)) // self.form.block_size, self._block(depth)),
            self._each_sum(sums, pitch, lambda at, _: c.Load(self.totals, at, self.lanes)),
        )
        operands = (self.x, self.x_step, *self.panel.parameters, depth, sums, pitch)
        zeros = "_zeros" if self.form.has_zeros else ""
        name = f"direct_{self.form.num_bits}{zeros}_{self.form.block_size}_{self.rows}x{self.width}"
        return c.Function(name, operands, body, is_contracted=True)

    @property
    def _has_centre_array(self) -> bool:
        return self.form.has_zeros and not self.columns.has_vectors

    @property
    def _nothing(self) -> c.Expression:
        return in_lanes(c.Literal(0, _FLOAT), self.lanes)

    def _each_sum(
        self, to: c.Buffer, apart: c.Expression, value: Callable[[c.Expression, c.Expression], c.Expression]
    ) -> c.For:
        """Return the loops over rows and columns setting all sums, by index among the sums and by column."""
        body = self.columns.each(lambda n, _: (c.Store(to, self.r * apart + n, value(self.r * self.width + n, n)),))
        return c.For(self.r, _ZERO, c.Size(self.rows), body, kind=c.LoopKind.UNROLLED)

    def _block(self, depth: c.Expression) -> c.Block:
        """Return the statements of a block: the products, in parts if long, times the scales."""
        form, chunk = self.form, DEPTH_CHUNK // self.form.per_word
        steps, num_words, rest, first, end = c.variables("steps num_words rest first end")

        def scaled(at: c.Expression, n: c.Expression) -> c.Expression:
            return c.Load(self.totals, at, self.lanes) + c.Load(self.acc, at, self.lanes) * self.panel.scale(self.b, n)

        def centre(n: c.Expression, number: int) -> c.Block:
            value = self.panel.zero(self.b, n)
            is_array = self._has_centre_array
            return (c.Store(self.centre_array, n, value) if is_array else c.Let(self.centres[number], value),)

        clear = self._each_sum(self.acc, c.Size(self.width), lambda *_: self._nothing)
        add = self._each_sum(self.totals, c.Size(self.width), scaled)
        last = (c.Let(rest, steps % form.per_word), c.If(rest.compare(">", 0), self._steps(num_words, rest)))
        products: c.Block = (clear, self._words(_ZERO, num_words), *last, add)
        if form.block_words > chunk:  # A sum of sums is nearer to the exact sum.
            part = (c.Let(end, c.index_min(num_words, first + chunk)), clear, self._words(first, end), add)
            products = (c.For(first, _ZERO, num_words, part, step=chunk), clear, *last, add)
        return (
            c.Let(self.k0, self.b * form.block_size),
            c.Let(steps, c.index_min(c.Size(form.block_size), depth - self.k0)),
            c.Let(num_words, steps // form.per_word),
            c.Alias(self.line, self.panel.words, self.b * (form.block_words * self.width)),
            *(self.columns.each(centre) if form.has_zeros else ()),
            *products,
        )

    def _words(self, begin: c.Expression, end: c.Expression) -> c.For:
        """Return the loop over whole words."""
        word = c.Variable("word")
        fetches = self.panel.fetches(self.line, word)
        return c.For(word, begin, end, (*fetches, *self._steps(word, c.Size(self.form.per_word))))

    def _steps(self, word: c.Expression, count: c.Expression) -> c.Block:
        """Return the statements of the steps in the words at an index of the block: of all, or of the first steps."""
        is_whole = count == c.Size(self.form.per_word)
        if self.columns.has_vectors:
            return self._steps_by_vector(word, count, is_whole=is_whole)
        # All steps of a word meet a column at a time; the steps of the last word come singly.
        if is_whole:
            return self._steps_by_column(word, [c.Size(step) for step in range(self.form.per_word)])
        return (c.For(self.j, _ZERO, count, self._steps_by_column(word, [self.j])),)

    def _steps_by_vector(self, word: c.Expression, count: c.Expression, *, is_whole: bool) -> c.Block:
        packed, values = self.columns.variables("packed", WORD), self.columns.variables("value", _FLOAT)
        row, factor = c.Buffer("row", _FLOAT.dtype), c.Variable("factor", _FLOAT)

        def weight(n: c.Expression, number: int) -> c.Block:
            value = number_in(packed[number], self.j, self.form.num_bits)
            return (c.Let(values[number], value - self.centres[number] if self.form.has_zeros else value),)

        def product(n: c.Expression, number: int) -> c.Block:
            at = self.r * self.width + n
            total = c.Load(self.acc, at, self.lanes) + in_lanes(factor, self.lanes) * values[number]
            return (c.Store(self.acc, at, total),)

        of_row = (
            c.Alias(row, self.x, self.r * self.x_step),
            c.Let(factor, row[self.k0 + word * self.form.per_word + self.j]),
            *self.columns.each(product),
        )
        rows = c.For(self.r, _ZERO, c.Size(self.rows), of_row, kind=c.LoopKind.UNROLLED)
        kind = c.LoopKind.UNROLLED if is_whole else c.LoopKind.SERIAL
        return (
            *self.columns.each(
                lambda n, number: (c.Let(packed[number], c.Load(self.line, word * self.width + n, self.lanes)),)
            ),
            c.For(self.j, _ZERO, count, (*self.columns.each(weight), rows), kind=kind),
        )

    def _steps_by_column(self, word: c.Expression, steps: Sequence[c.Expression]) -> c.Block:
        factors = [[c.Variable("factor", _FLOAT) for _ in steps] for _ in range(self.rows)]
        packed, values = c.Variable("packed", WORD), [c.Variable("value", _FLOAT) for _ in steps]
        lets: list[c.Statement] = []
        for number, of_row in enumerate(factors):
            row = c.Buffer("row", _FLOAT.dtype)
            lets.append(c.Alias(row, self.x, self.x_step * number))
            at = self.k0 + word * self.form.per_word
            lets += (c.Let(factor, row[at + step]) for factor, step in zip(of_row, steps, strict=True))

        def column(n: c.Expression, _: int) -> c.Block:
            block: list[c.Statement] = [c.Let(packed, self.line[word * self.width + n])]
            for value, step in zip(values, steps, strict=True):
                weight = number_in(packed, step, self.form.num_bits)
                block.append(c.Let(value, weight - self.centre_array[n] if self.form.has_zeros else weight))
            for number, of_row in enumerate(factors):
                total: c.Expression = self.acc[n + number * self.width]
                for factor, value in zip(of_row, values, strict=True):
                    total += factor * value
                block.append(c.Store(self.acc, n + number * self.width, total))
            return tuple(block)

        return (*lets, *self.columns.each(column, c.LoopKind.ROLLED))


@cache
def direct_tile(unit: VectorUnit, form: BlockFormat, rows: int, width: int) -> c.Function:
    """Return a function multiplying rows by a panel of ``width`` columns, with the numbers unpacked in registers.

    C signature: ``(x, x_step, words, scales, [zeros,] depth, sums, pitch)``. Row ``j`` starts at ``x + j * x_step``;
    rows of sums lie ``pitch`` elements apart. The products of a block are summed first, then multiplied by the scale.
    Meanwhile the function prefetches the words behind the words in use, also behind the panel.
    """
    return _DirectTile(unit, form, rows, width).function()


@cache
def unpack_function(unit: VectorUnit, form: BlockFormat, width: int) -> c.Function:
    """Return a function writing the weights of some words of a block in float32, step by step.

    C signature: ``(words, scales, [zeros,] block, num_words, panel)``: words of the block, from the first to unpack on;
    scales and zero points of all blocks of the panel.
    """
    # The function does not depend on the size of blocks.
    source = _Panel(unit, replace(form, block_size=1), width)
    columns, panel = source.columns, c.Buffer("panel", _FLOAT.dtype, c.MemoryAccess.WRITE)
    block, num_words, word, j = c.variables("block num_words word j")
    zeros, scales, packed = (
        columns.variables(name, type_) for name, type_ in (("zero", _FLOAT), ("scale", _FLOAT), ("packed", WORD))
    )

    def parameters(n: c.Expression, number: int) -> c.Block:
        zero = (c.Let(zeros[number], source.zero(block, n)),) if form.has_zeros else ()
        return (c.Let(scales[number], source.scale(block, n)), *zero)

    def load(n: c.Expression, number: int) -> c.Block:
        return (c.Let(packed[number], c.Load(source.words, word * width + n, columns.lanes)),)

    def store(n: c.Expression, number: int) -> c.Block:
        value = number_in(packed[number], j, form.num_bits)
        value = value - zeros[number] if form.has_zeros else value
        return (c.Store(panel, (word * form.per_word + j) * width + n, value * scales[number]),)

    def all_steps(body: c.Block, kind: c.LoopKind) -> c.For:
        return c.For(j, _ZERO, c.Size(form.per_word), body, kind=kind)

    if unit.has_vectors:
        steps = all_steps(columns.each(store), c.LoopKind.UNROLLED)
        of_word = (*source.fetches(source.words, word), *columns.each(load), steps)
        begin = columns.each(parameters)
    else:
        single = columns.each(lambda n, number: (*parameters(n, number), *load(n, number), *store(n, number)))
        of_word, begin = (all_steps(single, c.LoopKind.SERIAL),), ()
    operands = (*source.parameters, block, num_words, panel)
    name = f"unpack_{form.num_bits}{'_zeros' if form.has_zeros else ''}_{width}"
    return c.Function(name, operands, (*begin, c.For(word, _ZERO, num_words, of_word)))
