"""Register tiles of products of bytes: unsigned ones times signed ones, added up exactly in 32 bits.

Four products of neighbouring bytes go into one sum at a time, as the instructions do it that processors have for this
(``vpdpbusd``). Where there is none, pairs of 16-bit products are added up (``vpmaddwd``), or the products of bytes,
which fit into 16 bits, are widened: all are exact, so they all give the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["QUAD", "byte_tile"]

QUAD = 4
"""Bytes that are multiplied and added up at a time."""

_SHORT_VNNI = "defined(__AVX512VNNI__) && defined(__AVX512VL__)"


class _X86(NamedTuple):
    """The intrinsics for one size of registers.

    Attributes:
        register: the type that they take.
        quads: those that add four products of bytes, by the condition that there are such.
        pairs: those that add two products of 16-bit integers, likewise.
    """

    register: str
    quads: Mapping[str, str]
    pairs: Mapping[str, str]


_X86_OF_NBYTES = {
    64: _X86(
        "__m512i", {"defined(__AVX512VNNI__)": "_mm512_dpbusd_epi32"}, {"defined(__AVX512BW__)": "_mm512_madd_epi16"}
    ),
    32: _X86(
        "__m256i",
        {_SHORT_VNNI: "_mm256_dpbusd_epi32", "defined(__AVXVNNI__)": "_mm256_dpbusd_avx_epi32"},
        {"defined(__AVX2__)": "_mm256_madd_epi16"},
    ),
    16: _X86(
        "__m128i",
        {_SHORT_VNNI: "_mm_dpbusd_epi32", "defined(__AVXVNNI__)": "_mm_dpbusd_avx_epi32"},
        {"defined(__SSE2__)": "_mm_madd_epi16"},
    ),
}


def _quads_function(unit: VectorUnit) -> str:
    """Gives a function that adds four products of bytes to each 32-bit sum."""
    register, quads, pairs = _X86_OF_NBYTES[unit.nbytes]
    lines = [
        "#if defined(__SSE2__)",
        "#include <immintrin.h>",
        "#endif",
        "/* Adds to each lane the products of its four bytes: without a sign on the left, with one on the right. */",
        "static inline vec_i32 {name}(vec_i32 sums, vec_i32 left, vec_i32 right) {",
    ]
    for where, function in quads.items():
        lines += [
            f"#if {where}",
            f"  return (vec_i32){function}(({register})sums, ({register})left, ({register})right);",
            "#else",
        ]
    lines += [
        f"  typedef int16_t halves __attribute__((vector_size({unit.nbytes})));",
        f"  typedef uint16_t unsigned_halves __attribute__((vector_size({unit.nbytes})));",
        "  const halves left_even = (halves)((unsigned_halves)left & 255);",
        "  const halves left_odd = (halves)((unsigned_halves)left >> 8);",
        "  const halves right_even = (halves)((unsigned_halves)right << 8) >> 8, right_odd = (halves)right >> 8;",
    ]
    for where, function in pairs.items():
        lines += [
            f"#if {where}",
            f"  sums += (vec_i32){function}(({register})left_even, ({register})right_even);",
            f"  return sums + (vec_i32){function}(({register})left_odd, ({register})right_odd);",
            "#else",
        ]
    lines += [
        f"  typedef uint32_t unsigned_words __attribute__((vector_size({unit.nbytes})));",
        "  const halves even = left_even * right_even, odd = left_odd * right_odd;",
        "  sums += ((vec_i32)((unsigned_words)even << 16) >> 16) + ((vec_i32)even >> 16);",
        "  return sums + ((vec_i32)((unsigned_words)odd << 16) >> 16) + ((vec_i32)odd >> 16);",
        *["#endif"] * (len(quads) + len(pairs)),
        "}",
    ]
    return "\n".join(lines)


def byte_tile(kernel: Kernel, rows: int, vectors: int) -> str:
    """Gives the C name of a function that multiplies rows of bytes by a panel.

    ``sums[j][n] = start[j * start_step + n] + sum over k of a[j][k] * panel[n][k]``. A panel has ``vectors * lanes``
    columns; four neighbouring bytes of each lie side by side, and these quads follow one another.

    C signature: ``(a, a_row_step, panel, quads, start, start_step, sums)``. Sums are overwritten, and wrap around; they
    may start with themselves.

    Args:
        kernel: whose source the function is for.
        rows: rows of the tile.
        vectors: vectors of 32-bit sums in a row.
    """
    lanes = kernel.unit.lanes("int32")
    quads = kernel.helper("add_quads", _quads_function(kernel.unit))
    width = vectors * lanes
    text = f"""\
static void {{name}}(const uint8_t *a, int64_t a_row_step, const int8_t *panel, int64_t quads, const int32_t *start,
    int64_t start_step, int32_t *sums) {{
  vec_i32 acc[{rows}][{vectors}];
  BYOC_UNROLL
  for (int j = 0; j < {rows}; ++j) {{
    BYOC_UNROLL
    for (int v = 0; v < {vectors}; ++v) acc[j][v] = *(const vec_i32u *)(start + j * start_step + v * {lanes});
  }}
  for (int64_t q = 0; q < quads; ++q, a += {QUAD}, panel += {QUAD * width}) {{
    vec_i32 part[{vectors}];
    BYOC_UNROLL
    for (int v = 0; v < {vectors}; ++v) part[v] = *(const vec_i32u *)(panel + v * {QUAD * lanes});
    BYOC_UNROLL
    for (int j = 0; j < {rows}; ++j) {{
      int32_t quad;
      memcpy(&quad, a + j * a_row_step, sizeof(quad));
      const vec_i32 left = (vec_i32){{0}} + quad;
      BYOC_UNROLL
      for (int v = 0; v < {vectors}; ++v) acc[j][v] = {quads}(acc[j][v], left, part[v]);
    }}
  }}
  BYOC_UNROLL
  for (int j = 0; j < {rows}; ++j) {{
    BYOC_UNROLL
    for (int v = 0; v < {vectors}; ++v) *(vec_i32u *)(sums + j * {width} + v * {lanes}) = acc[j][v];
  }}
}}
"""
    return kernel.helper(f"byte_tile_{rows}x{width}", text)
