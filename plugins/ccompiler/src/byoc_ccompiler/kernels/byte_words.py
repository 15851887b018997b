"""Rows and panels of bytes, in words: the formats, the addition of products to sums, and the gathering of rows.

Unsigned bytes lie four in a word where an instruction multiplies four; signed bytes on the left are shifted by half the
range. Other x86 processors multiply pairs of 16-bit integers: the bytes are extended once while gathered, instead of in
each tile. Without vectors a word is a byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.dims import Dim
from byoc_core.runtime.module import NDArray

from byoc_ccompiler.kernels.words import RunWriter, WordFormat
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["PAIRS_MODULO", "ByteWords", "choose_words", "starting_sums"]

_MOST_EXTENDED = 1 << 15
"""Numbers of a row of 16-bit integers fitting the stack."""

_BYTE, _WIDE = c.CType("uint8"), c.CType("int32")

# Instructions are in assembly language: parsing the compiler's header of intrinsics takes 0.3 s.
_MULTIPLY_PAIRS = """\
#if defined(__AVX__)
  __asm__("vpmaddwd %2, %1, %0" : "=v"(PRODUCTS) : "v"(LEFT), "v"(RIGHT));
#else
  PRODUCTS = (SUMS)LEFT;
  __asm__("pmaddwd %1, %0" : "+x"(PRODUCTS) : "x"(RIGHT));
#endif
"""


def _multiply_pairs(products: str, left: str, right: str) -> str:
    """Return C for the sums of two products of 16-bit integers in each lane."""
    return _MULTIPLY_PAIRS.replace("PRODUCTS", products).replace("LEFT", left).replace("RIGHT", right)


_ADD_FOURS = """\
/* Add the products of four bytes to each lane: unsigned bytes on the left, signed bytes on the right. */
static inline WORDS {name}(WORDS sums, WORDS left, WORDS right) {
#if defined(__AVX512VNNI__) && (NBYTES == 64 || defined(__AVX512VL__))
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(left), "v"(right));
  return sums;
#elif defined(__AVXVNNI__) && NBYTES < 64
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(left), "x"(right));
  return sums;
#else
  typedef int16_t halves __attribute__((vector_size(NBYTES)));
  typedef uint16_t unsigned_halves __attribute__((vector_size(NBYTES)));
  const halves left_even = (halves)((unsigned_halves)left & 255), left_odd = (halves)((unsigned_halves)left >> 8);
  const halves right_even = (halves)((unsigned_halves)right << 8) >> 8, right_odd = (halves)right >> 8;
#if defined(HAS_PAIRS)
  SUMS even, odd;
MULTIPLY_EVEN\
MULTIPLY_ODD\
  return sums + even + odd;
#else
  typedef uint32_t unsigned_words __attribute__((vector_size(NBYTES)));
  const halves even = left_even * right_even, odd = left_odd * right_odd;
  sums += ((WORDS)((unsigned_words)even << 16) >> 16) + ((WORDS)even >> 16);
  return sums + ((WORDS)((unsigned_words)odd << 16) >> 16) + ((WORDS)odd >> 16);
#endif
#endif
}
"""
_ADD_FOURS = _ADD_FOURS.replace("MULTIPLY_EVEN", _multiply_pairs("even", "left_even", "right_even"))
_ADD_FOURS = _ADD_FOURS.replace("MULTIPLY_ODD", _multiply_pairs("odd", "left_odd", "right_odd"))

_ADD_PAIRS = """\
/* Add the products of two 16-bit integers to each lane. */
static inline SUMS {name}(SUMS sums, WORDS left, WORDS right) {
#if defined(HAS_PAIRS)
  SUMS products;
MULTIPLY\
  return sums + products;
#else
  typedef int32_t words __attribute__((vector_size(NBYTES)));
  typedef uint32_t unsigned_words __attribute__((vector_size(NBYTES)));
  const words even = ((words)((unsigned_words)left << 16) >> 16) * ((words)((unsigned_words)right << 16) >> 16);
  const words odd = ((words)left >> 16) * ((words)right >> 16);
  return sums + (SUMS)even + (SUMS)odd;
#endif
}
""".replace("MULTIPLY", _multiply_pairs("products", "left", "right"))

_EXTEND = """\
/* Extend bytes to 16-bit integers, from an offset in a row of words on. */
static inline void {name}(const BYTE *from, int64_t count, int32_t *restrict to, int64_t offset) {
  typedef int16_t half __attribute__((may_alias));
  for (int64_t k = 0; k < count; ++k) ((half *)to)[offset + k] = from[k];
}
"""

_FILL = """\
/* Repeat a 16-bit integer, from an offset in a row of words on. */
static inline void {name}(int32_t value, int64_t count, int32_t *restrict to, int64_t offset) {
  typedef int16_t half __attribute__((may_alias));
  for (int64_t k = 0; k < count; ++k) ((half *)to)[offset + k] = (int16_t)value;
}
"""


def _add_modulo(sums: NDArray, left: NDArray, right: NDArray) -> NDArray:
    products = left.view(np.int16).astype(np.int32) * right.view(np.int16)
    total: NDArray = sums + products.view(np.uint32).reshape(len(sums), -1).sum(axis=1, dtype=np.uint32)
    return total


def _adder(left_dtype: str, right_dtype: str) -> Callable[[NDArray, NDArray, NDArray], NDArray]:
    def add(sums: NDArray, left: NDArray, right: NDArray) -> NDArray:
        products = left.view(left_dtype).astype(np.int32) * right.view(right_dtype)
        total: NDArray = sums + products.reshape(len(sums), -1).sum(axis=1, dtype=np.int32)
        return total

    return add


def _extend(source: NDArray, count: int, target: NDArray, offset: int) -> None:
    target.view(np.int16)[offset : offset + count] = source[:count]


def _fill(value: int, count: int, target: NDArray, offset: int) -> None:
    target.view(np.int16)[offset : offset + count] = value


_EXTENSIONS = {
    dtype: c.Callee(f"vec_extend_{name}", _extend, writes=(2,), definition=_EXTEND.replace("BYTE", f"{dtype}_t"))
    for dtype, name in (("uint8", "unsigned"), ("int8", "signed"))
}
_FILLING = c.Callee("vec_fill_halves", _fill, writes=(2,), definition=_FILL)


@dataclass(frozen=True, slots=True)
class ByteWords:
    """The words of rows and panels.

    Attributes:
        count: bytes of a row, or of a column of weights, in a word.
        dtype: the dtype of the words of rows.
        panel_dtype: the dtype of the words of panels.
        number: the dtype of the weights in words.
        shift: the shift of signed bytes on the left.
        format: the addition of products; ``None`` for words of single bytes.
    """

    count: int
    dtype: str
    panel_dtype: str
    number: str
    shift: int
    format: WordFormat | None

    def in_row(self, depth: int) -> int:
        """Return the number of words of a row of ``depth`` bytes."""
        return -(-depth // self.count)

    @property
    def nbytes(self) -> int:
        """The bytes of a word."""
        return np.dtype(self.dtype).itemsize

    def outside(self, value: int, shift: c.Expression | None) -> c.Expression:
        """Return the number for places beyond the borders of an image: a value, plus a shift at run time."""
        type_ = _WIDE if self is _PAIRS else _BYTE
        return c.Literal(value, type_) if shift is None else c.Cast(shift + value, type_)

    def writer(self, rows: c.Buffer, words: int, beyond: c.Expression) -> RunWriter:
        """Return a writer of rows of ``words`` words, with the number for places beyond the borders."""
        pitch = words * self.count
        return _extending_writer(rows, pitch, beyond) if self is _PAIRS else _byte_writer(rows, pitch, beyond)


_FOURS = ByteWords(
    4, "int32", "int32", "int8", 128, WordFormat("bytes", "int32", "int32", _ADD_FOURS, _adder("uint8", "int8"))
)
_PAIRS = ByteWords(
    2,
    "int32",
    "int32",
    "int16",
    0,
    WordFormat("bytes_in_halves", "int32", "int32", _ADD_PAIRS, _adder("int16", "int16")),
)
PAIRS_MODULO = WordFormat("pairs_modulo", "uint32", "uint32", _ADD_PAIRS, _add_modulo)
"""Pairs of 16-bit integers, and sums of their products modulo 2^32."""
_SINGLE = ByteWords(1, "uint8", "int8", "int8", 128, None)


def choose_words(unit: VectorUnit, depth: int) -> ByteWords:
    """Return the words for rows of ``depth`` bytes."""
    if not unit.has_vectors:
        return _SINGLE
    return _PAIRS if unit.has_byte_pairs and depth <= _MOST_EXTENDED else _FOURS


def starting_sums(matrix: NDArray, zero: int, width: int) -> NDArray:
    """Return the start of the sums of each column, int32, for whole panels: the negative share of the zero point.

    Sums wrap around.

    Args:
        matrix: the weights of each column, row by row.
        zero: the zero point.
        width: the columns of a panel.
    """
    shares = np.zeros(-(-len(matrix) // width) * width, np.int64)
    shares[: len(matrix)] = matrix.sum(axis=1, dtype=np.int64) * -zero
    return shares.astype(np.int32)


def _byte_writer(rows: c.Buffer, pitch: int, beyond: c.Expression) -> RunWriter:
    """Return a writer of unsigned bytes; signed bytes are shifted by half the range."""
    target = c.Buffer("bytes", "uint8", c.MemoryAccess.WRITE)

    def move(row: c.Expression, at: c.Expression, source: c.Load | None, count: Dim) -> c.Block:
        k, offset = c.Variable("k"), row * pitch + at
        if source is not None and source.buffer.dtype == "uint8":
            return (c.Copy(target, offset, source.buffer, source.index, c.Size(count)),)
        value = beyond if source is None else c.Cast(c.Cast(source.buffer[source.index + k], _WIDE) + 128, _BYTE)
        return (c.For(k, c.Size(0), c.Size(count), (c.Store(target, offset + k, value),)),)

    return RunWriter(move, arrays=(c.Alias(target, rows, c.Size(0)),))


def _extending_writer(rows: c.Buffer, pitch: int, beyond: c.Expression) -> RunWriter:
    """Return a writer of bytes extended to 16 bits."""

    def move(row: c.Expression, at: c.Expression, source: c.Load | None, count: Dim) -> c.Block:
        target = (c.Size(count), c.Address(rows, c.Size(0)), row * pitch + at)
        if source is None:
            return (c.Evaluate(c.Call(_FILLING, (beyond, *target))),)
        address = c.Address(source.buffer, source.index)
        return (c.Evaluate(c.Call(_EXTENSIONS[source.buffer.dtype], (address, *target))),)

    return RunWriter(move)
