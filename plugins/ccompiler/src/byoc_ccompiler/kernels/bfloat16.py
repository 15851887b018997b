"""Words of two bfloat16 numbers, in rows cut into steps of 32 numbers: the conversion of floats to words.

The sizes of a step are the sizes of the matrix tiles of x86 processors: 16 words are a row of a tile, 32 rows are two
tiles. The C text of :mod:`~byoc_ccompiler.kernels.matrix_tiles` and of this module relies on these numbers; only the
gap in :data:`STEP_PITCH` is free.
"""

from __future__ import annotations

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim, ceildiv
from byoc_core.dtypes import to_numpy
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernels.copies import loops_around
from byoc_ccompiler.kernels.words import RunWriter, WordFormat

__all__ = ["PAIRS", "STEP_DEPTH", "STEP_PITCH", "STEP_ROWS", "STEP_WORDS", "numbers_of", "rounded", "rounded_rows"]

STEP_WORDS, STEP_DEPTH, STEP_ROWS = 16, 32, 32
"""If rows are cut into steps: words, and bfloat16 numbers, of a step of a row; rows with contiguous steps."""

STEP_PITCH = (STEP_ROWS + 1) * STEP_WORDS
"""Words from a step of some rows to the next: a gap keeps the steps of a row from one set of cache lines."""

_ADD_PAIRS = """\
/* Add the products of two bfloat16 pairs to each lane; the instruction treats subnormal numbers as zero. */
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


def _add_pairs(sums: NDArray, left: NDArray, right: NDArray) -> NDArray:
    for left_factor, right_factor in zip(numbers_of(left).T, numbers_of(right).T, strict=True):
        sums = sums + left_factor * right_factor
    return sums


def numbers_of(words: NDArray) -> NDArray:
    """Return the two numbers of each word along a further axis."""
    return np.stack([words << np.uint32(16), words & np.uint32(0xFFFF0000)], axis=-1).view(np.float32)


PAIRS = WordFormat("pairs", "uint32", "float32", _ADD_PAIRS, _add_pairs, (STEP_WORDS, STEP_PITCH))
"""Two bfloat16 numbers."""

_ROUND = """\
/* Round up to 32 numbers to bfloat16, and pad with zeros to 32. */
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


_ROUND_STEP = c.Callee("vec_round_step", _round, writes=(2,), definition=_ROUND, flops=STEP_DEPTH)


def rounded_rows(target: c.Buffer, first: c.Expression, depth: Dim, run: Dim) -> RunWriter:
    """Return a writer of rows of floats, rounded to bfloat16, with the first word at an offset of the target.

    A row of a single run is rounded without a copy, and so are runs of whole steps; others are gathered first.
    """
    line = c.Buffer("line", "float32", c.MemoryAccess.WRITE, ceildiv(depth, STEP_DEPTH) * STEP_DEPTH)

    def write(row: c.Expression, at: c.Expression, source: c.Load | None, count: Dim) -> c.Block:
        k, first_word = c.Variable("k"), first + at // STEP_DEPTH * STEP_PITCH + row * STEP_WORDS
        num_steps, rest = count // STEP_DEPTH, count - count // STEP_DEPTH * STEP_DEPTH

        def step(number: c.Expression, num_numbers: Dim) -> c.Block:
            words = first_word + number * STEP_PITCH
            if source is None:
                return (c.Clear(target, words, c.Size(STEP_WORDS)),)
            numbers = c.Address(source.buffer, source.index + number * STEP_DEPTH)
            return (c.Evaluate(c.Call(_ROUND_STEP, (numbers, c.Size(num_numbers), c.Address(target, words)))),)

        last = c.If(c.Size(rest).compare(">", 0), step(c.Size(num_steps), rest))
        return (*loops_around(step(k, STEP_DEPTH), (k,), (num_steps,)), last)

    def collect(_: c.Expression, at: c.Expression, source: c.Load | None, count: Dim) -> c.Block:
        size = c.Size(count)
        return (c.Copy(line, at, source.buffer, source.index, size) if source else c.Clear(line, at, size),)

    if run == depth or (isinstance(run, int) and run % STEP_DEPTH == 0):
        return RunWriter(write)
    return RunWriter(collect, lambda row: write(row, c.Size(0), line[0], depth), (c.LocalArray(line),))
