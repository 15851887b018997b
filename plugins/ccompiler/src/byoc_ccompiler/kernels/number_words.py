"""Numbers of 4 or 8 bits in words of 32 bits: the format, the packing, and the reading in registers.

The words of a column hold the numbers of successive steps of the sums, the first step in the lowest bits. In a panel of
columns, the words of the same steps lie side by side. Each block of steps begins with a new word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_suffix
from byoc_core.runtime.module import NDArray

__all__ = ["WORD", "BlockFormat", "number_in", "pack_blocks"]

WORD = c.CType("uint32")
"""The type of words."""

_FLOAT, _INT = c.CType("float32"), c.CType("int32")

_NUMBER = """\
/* Return the number at an index in each word: a signed integer of BITS bits. */
static inline FLOATS {name}(WORDS words, int64_t index) {
#if BITS == 4 && NBYTES == 64 && defined(__AVX512F__)
  const FLOATS table = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
  const WORDS numbers = words >> (uint32_t)(BITS * index);
  FLOATS found; /* The instruction reads the lowest four bits of each lane. */
  __asm__("vpermps %1, %2, %0" : "=v"(found) : "v"(table), "v"(numbers));
  return found;
#else
  typedef int32_t integers __attribute__((vector_size(NBYTES)));
  const integers numbers = (integers)(words << (uint32_t)(32 - BITS - BITS * index)) >> (32 - BITS);
  return __builtin_convertvector(numbers, FLOATS);
#endif
}
"""


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """The form of weights in blocks.

    Attributes:
        num_bits: the bits of a number: 4 or 8.
        block_size: steps of a block.
        has_zeros: whether there are zero points.
    """

    num_bits: int
    block_size: int
    has_zeros: bool

    @property
    def per_word(self) -> int:
        """The numbers in a word."""
        return 32 // self.num_bits

    @property
    def block_words(self) -> int:
        """The words of a column in a block."""
        return -(-self.block_size // self.per_word)


def pack_blocks(numbers: NDArray, form: BlockFormat, width: int) -> NDArray:
    """Return numbers ``(depth, columns)`` of int8 as words in panels: ``(panels, words of a column, width)``.

    Numbers beyond the end are 0.
    """
    depth, columns = numbers.shape
    blocks, panels, size = -(-depth // form.block_size), -(-columns // width), form.block_words * form.per_word
    padded = np.zeros((blocks, size, panels * width), np.uint8)
    for block in range(blocks):
        part = numbers[block * form.block_size : (block + 1) * form.block_size]
        padded[block, : len(part), :columns] = part.view(np.uint8)
    apart = padded.reshape(blocks * form.block_words, form.per_word, panels, width)
    words = np.zeros((blocks * form.block_words, panels, width), np.uint32)
    for index in range(form.per_word):
        number = apart[:, index].astype(np.uint32) & np.uint32((1 << form.num_bits) - 1)
        words |= number << np.uint32(form.num_bits * index)
    return np.ascontiguousarray(words.transpose(1, 0, 2))


def number_in(word: c.Expression, index: c.Expression, num_bits: int) -> c.Expression:
    """Return the number at an index in a word, or in each lane of a vector of words, in float32."""
    lanes = word.type.lanes
    if lanes > 1:
        text = _NUMBER.replace("BITS", str(num_bits)).replace("NBYTES", str(4 * lanes))
        for name, dtype in (("WORDS", WORD.dtype), ("FLOATS", _FLOAT.dtype)):
            text = text.replace(name, f"vec_{c_suffix(dtype)}x{lanes}")
        callee = c.Callee(f"vec_number_of_{num_bits}_bits_{lanes}", _reader(num_bits), definition=text)
        return c.Call(callee, (word, index), _FLOAT.with_lanes(lanes))
    sign = 1 << (num_bits - 1)
    lowest = c.Binary(">>", word, c.Cast(index * num_bits, WORD))
    unsigned = c.Cast(c.Binary("&", lowest, c.Literal(2 * sign - 1, WORD)), _INT)
    signed = c.Binary("-", c.Binary("^", unsigned, c.Literal(sign, _INT)), c.Literal(sign, _INT))
    return c.Cast(signed, _FLOAT)


def _reader(num_bits: int) -> Callable[[NDArray, int], NDArray]:
    def read(words: NDArray, index: int) -> NDArray:
        shifted = words << np.uint32(32 - num_bits - num_bits * index)
        numbers: NDArray = (shifted.view(np.int32) >> np.int32(32 - num_bits)).astype(np.float32)
        return numbers

    return read
