"""Register tiles of products of short numbers, of which a word of 32 bits holds several: four bytes, or two bfloat16.

A row of factors is a row of words. A panel holds some columns: the words of one step of the sums lie side by side, and
the steps follow one another. The products of a word and of a word of a column are added up at a time, as processors
have instructions for it; where there is none, C says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.vector_unit import VectorUnit

__all__ = [
    "BYTES",
    "PAIRS",
    "STEP_DEPTH",
    "STEP_PITCH",
    "STEP_ROWS",
    "STEP_WORDS",
    "WordFormat",
    "defined",
    "numbers_of",
    "pack_panels",
    "word_tile",
]

STEP_WORDS, STEP_DEPTH, STEP_ROWS = 16, 32, 32
"""Words, and bfloat16 numbers, of a row that lie side by side, and rows of such steps that do, where rows are cut."""

STEP_PITCH = (STEP_ROWS + 1) * STEP_WORDS
"""Words from a step of some rows to the next: a gap keeps the steps of a row from one set of lines of the cache."""

_REGISTERS = {
    64: ("_mm512", "__m512i", "__AVX512BW__"),
    32: ("_mm256", "__m256i", "__AVX2__"),
    16: ("_mm", "__m128i", "__SSE2__"),
}
"""By the bytes of a register: how its intrinsics begin, its type, and what tells of products of 16-bit integers."""

_BYTES = """\
#if defined(__SSE2__)
#include <immintrin.h>
#endif
/* Adds to each lane the products of its four bytes: without a sign on the left, with one on the right. */
static inline WORDS {name}(WORDS sums, WORDS left, WORDS right) {
#if defined(__AVX512VNNI__) && (NBYTES == 64 || defined(__AVX512VL__))
  return (WORDS)MM_dpbusd_epi32((REGISTER)sums, (REGISTER)left, (REGISTER)right);
#elif defined(__AVXVNNI__) && NBYTES < 64
  return (WORDS)MM_dpbusd_avx_epi32((REGISTER)sums, (REGISTER)left, (REGISTER)right);
#else
  typedef int16_t halves __attribute__((vector_size(NBYTES)));
  typedef uint16_t unsigned_halves __attribute__((vector_size(NBYTES)));
  const halves left_even = (halves)((unsigned_halves)left & 255), left_odd = (halves)((unsigned_halves)left >> 8);
  const halves right_even = (halves)((unsigned_halves)right << 8) >> 8, right_odd = (halves)right >> 8;
#if defined(HAS_PAIRS)
  sums += (WORDS)MM_madd_epi16((REGISTER)left_even, (REGISTER)right_even);
  return sums + (WORDS)MM_madd_epi16((REGISTER)left_odd, (REGISTER)right_odd);
#else
  typedef uint32_t unsigned_words __attribute__((vector_size(NBYTES)));
  const halves even = left_even * right_even, odd = left_odd * right_odd;
  sums += ((WORDS)((unsigned_words)even << 16) >> 16) + ((WORDS)even >> 16);
  return sums + ((WORDS)((unsigned_words)odd << 16) >> 16) + ((WORDS)odd >> 16);
#endif
#endif
}
"""

_PAIRS = """\
/* Adds to each lane the products of its two bfloat16 numbers; the instruction takes subnormal ones for zero. */
static inline SUMS {name}(SUMS sums, WORDS left, WORDS right) {
  BYOC_CONTRACT
#if defined(__AVX512BF16__) && (NBYTES == 64 || defined(__AVX512VL__))
  __asm__("vdpbf16ps %1, %2, %0" : "+v"(sums) : "v"(left), "v"(right));
  return sums;
#else
  sums += (SUMS)(left << 16) * (SUMS)(right << 16);
  return sums + (SUMS)(left & 0xffff0000u) * (SUMS)(right & 0xffff0000u);
#endif
}
"""


def _add_bytes(sums: NDArray, left: NDArray, right: NDArray) -> NDArray:
    products = left.view(np.uint8).astype(np.int32) * right.view(np.int8)
    whole: NDArray = sums + products.reshape(-1, 4).sum(axis=1, dtype=np.int32)
    return whole


def _add_pairs(sums: NDArray, left: NDArray, right: NDArray) -> NDArray:
    for one, other in zip(numbers_of(left).T, numbers_of(right).T, strict=True):
        sums = sums + one * other
    return sums


def numbers_of(words: NDArray) -> NDArray:
    """Return the two numbers of each word along one more axis."""
    return np.stack([words << np.uint32(16), words & np.uint32(0xFFFF0000)], axis=-1).view(np.float32)


@dataclass(frozen=True, slots=True)
class WordFormat:
    """Words of short numbers, and sums of their products.

    Attributes:
        name: of the numbers.
        dtype: of a word.
        sum_dtype: of the sums.
        definition: the C of a function that adds the products of the numbers of words to a vector of sums.
        evaluate: the same in numpy.
        is_cut: whether rows are cut into steps of :data:`STEP_WORDS`, of which :data:`STEP_ROWS` lie side by side.
    """

    name: str
    dtype: str
    sum_dtype: str
    definition: str
    evaluate: Callable[..., NDArray]
    is_cut: bool

    def add(self, lanes: int) -> c.Callee:
        """Return the function for vectors of so many words."""
        nbytes = 4 * lanes
        prefix, register, has_pairs = _REGISTERS[nbytes]
        meanings = {
            "WORDS": f"vec_{c_suffix(self.dtype)}x{lanes}",
            "SUMS": f"vec_{c_suffix(self.sum_dtype)}x{lanes}",
            "NBYTES": str(nbytes),
            "REGISTER": register,
            "HAS_PAIRS": has_pairs,
            "MM": prefix,
        }
        text = self.definition
        for word, meaning in meanings.items():
            text = text.replace(word, meaning)
        return c.Callee(f"vec_add_{self.name}_{lanes}", self.evaluate, definition=text)


BYTES = WordFormat("bytes", "int32", "int32", _BYTES, _add_bytes, is_cut=False)
"""Four bytes: unsigned ones on the left, signed ones on the right. Sums wrap around."""

PAIRS = WordFormat("pairs", "uint32", "float32", _PAIRS, _add_pairs, is_cut=True)
"""Two bfloat16 numbers."""


def pack_panels(matrix: NDArray, width: int, num_words: int, dtype: str) -> NDArray:
    """Return a matrix of short numbers as panels of words; zeros fill the words and the panels up.

    Args:
        matrix: depth x columns.
        width: columns of a panel.
        num_words: words of a column.
        dtype: of a word.

    Returns:
        Words: panels x words of a column x width.
    """
    depth, columns = matrix.shape
    count, panels = 4 // matrix.itemsize, -(-columns // width)
    padded = np.zeros((num_words * count, panels * width), matrix.dtype)
    padded[:depth, :columns] = matrix
    apart = padded.reshape(num_words, count, panels, width).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(apart).view(dtype)[..., 0]


def defined(function: c.Function) -> c.Callee:
    """Return a function as one that is called: its name tells all of it, and it is printed once."""
    are_written = [isinstance(item, c.Buffer) and item.is_writable for item in function.parameters]
    writes = tuple(number for number, is_written in enumerate(are_written) if is_written)
    return c.Callee(function.name, writes=writes, definition=c.print_function(function), function=function)


@cache
def word_tile(unit: VectorUnit, words: WordFormat, rows: int, vectors: int, width: int) -> c.Callee:
    """Return a C function that multiplies rows of words by some columns of a panel.

    ``sums[j * pitch + n] = start[j * start_step + n] + sum over k of left[j][k] * panel[k][n]``. The sums may start
    with themselves. Rows that are cut into steps start with 0, and have no arguments that say where.

    C signature: ``(left, panel, num_words, row_step, start, start_step, sums, pitch)``, or ``(left, panel, num_steps,
    sums, pitch)`` where rows are cut into steps.

    Args:
        unit: the vector registers.
        words: what a word holds.
        rows: rows of the tile.
        vectors: vectors of sums in a row.
        width: columns of the panel.
    """
    lanes = unit.lanes(words.sum_dtype)
    type_, word = c.CType(words.sum_dtype, lanes), c.CType(words.dtype, lanes)
    left, panel, line, part = (c.Buffer(name, words.dtype) for name in ("left", "panel", "line", "part"))
    start, own = c.Buffer("start", type_.dtype), vectors * lanes
    sums = c.Buffer("sums", type_.dtype, c.MemoryAccess.SHARED)
    acc = c.Buffer("acc", type_.dtype, c.MemoryAccess.WRITE, rows * own)
    count, row_step, start_step, pitch = map(c.Variable, ("count", "row_step", "start_step", "pitch"))
    j, k, w, factor = c.Variable("j"), c.Variable("k"), c.Variable("w"), c.Variable("factor", word)
    columns = {n: c.Variable("column", word) for n in range(0, own, lanes)}
    zero = c.Size(0)

    def each(value: Callable[[int], c.Expression], *before: c.Statement) -> c.For:
        """Return the loop over rows that sets each sum."""
        body = (*before, *(c.Store(acc, j * own + n, value(n)) for n in columns))
        return c.For(j, zero, c.Size(rows), body, kind=c.LoopKind.UNROLLED)

    def step_of(row: c.Buffer, steps: c.Buffer, number: c.Expression, step: c.Expression) -> c.For:
        """Return the loop over words."""
        lets = (c.Let(column, c.Load(steps, w * width + n, lanes)) for n, column in columns.items())
        held = c.Let(factor, c.Broadcast(row[j * step + w], lanes))
        add = words.add(lanes)
        body = each(lambda n: c.Call(add, (c.Load(acc, j * own + n, lanes), factor, columns[n]), type_), held)
        return c.For(w, zero, number, (*lets, body))

    begin = each(lambda n: c.Load(start, j * start_step + n, lanes))
    loop = step_of(left, panel, count, row_step)
    parameters: tuple[c.Buffer | c.Variable, ...] = (left, panel, count, row_step, start, start_step, sums, pitch)
    if words.is_cut:
        begin = each(lambda _: c.Broadcast(c.Literal(0, c.CType(type_.dtype)), lanes))
        steps = (
            c.Alias(line, left, k * STEP_PITCH),
            c.Alias(part, panel, k * (STEP_WORDS * width)),
            step_of(line, part, c.Size(STEP_WORDS), c.Size(STEP_WORDS)),
        )
        loop, parameters = c.For(k, zero, count, steps), (left, panel, count, sums, pitch)
    stores = tuple(c.Store(sums, j * pitch + n, c.Load(acc, j * own + n, lanes)) for n in columns)
    end = c.For(j, zero, c.Size(rows), stores, kind=c.LoopKind.UNROLLED)
    name = f"vec_tile_{words.name}_{rows}x{own}_of_{width}"
    body = (c.LocalArray(acc, lanes=lanes), begin, loop, end)
    return defined(c.Function(name, parameters, body, is_contracted=type_.is_float))
