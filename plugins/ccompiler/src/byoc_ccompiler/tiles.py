"""Register tiles: the innermost loops of convolutions and matrix products, on the compiler's vector types.

A tile holds ``rows`` times ``vectors`` sums in registers. Its loops are written so that a C compiler needs no more
than unrolling: no reassociation, no ``-ffast-math``. Only here are products and sums contracted (fused multiply-add).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from byoc_core.authoring.csource_types import c_suffix, c_type
from byoc_core.dtypes import dtype_info

__all__ = ["VectorUnit", "dot_tile", "multiply_add_ps", "outer_tile", "vector_preamble"]


@dataclass(frozen=True, slots=True)
class VectorUnit:
    """What the machine's vector registers offer.

    Attributes:
        nbytes: bytes of a register.
        registers: how many there are.
    """

    nbytes: int
    registers: int

    @classmethod
    def of_features(cls, machine: str, features: Iterable[str]) -> VectorUnit:
        """Gives the unit of a machine with these instruction sets."""
        names = set(features)
        if "avx512f" in names:
            return cls(64, 32)
        if "avx" in names:
            return cls(32, 16)
        return cls(16, 16 if machine in ("x86_64", "AMD64", "i686") else 32)

    def lanes(self, dtype: str) -> int:
        """Gives how many elements a register holds."""
        return self.nbytes // dtype_info(dtype).itemsize

    def rows_for(self, vectors: int) -> int:
        """Gives how many rows of so many vectors fit into the registers, beside what feeds them."""
        return max(1, (self.registers - vectors - 2) // vectors)

    def outer_shape(self, num_rows: int | None, width: int | None, dtype: str) -> tuple[int, int]:
        """Gives (rows, vectors) of the tile that wastes least on a result of this size (``None``: not known)."""
        lanes = self.lanes(dtype)
        best, best_cost = (min(self.rows_for(3), num_rows or 8, 8), 3), math.inf
        if width is None:
            return best
        for vectors in (3, 2, 1, 4, 6) if num_rows is not None and num_rows <= 4 else (3, 2, 1):
            rows = min(self.rows_for(vectors), num_rows or 8, 14)
            columns = math.ceil(max(width, 1) / (vectors * lanes)) * vectors
            blocks = math.ceil((num_rows or 8) / rows)
            # Per step a tile loads its vectors and broadcasts its rows; products run two at a time, four deep.
            step = max(rows * vectors / 2, (rows + vectors) / 2, 4)
            cost = columns / vectors * blocks * step
            if cost < best_cost * 0.999:
                best, best_cost = (rows, vectors), cost
        return best


def multiply_add_ps(unit: VectorUnit, dtype: str) -> int:
    """Gives the estimated picoseconds of one product and sum in a tile: a register of them takes 0.4 nanoseconds."""
    return 400 // unit.lanes(dtype)


def vector_preamble(unit: VectorUnit, text: str) -> str:
    """Gives the vector types, and sums over their lanes, that a text uses."""
    parts = []
    for dtype in ("float32", "float64"):
        suffix, ctype, lanes = c_suffix(dtype), c_type(dtype), unit.lanes(dtype)
        itemsize = dtype_info(dtype).itemsize
        if f"vec_{suffix}" not in text:
            continue
        parts.append(
            f"""
/* {lanes} x {dtype}; the second may lie at any address. */
typedef {ctype} vec_{suffix} __attribute__((vector_size({unit.nbytes})));
typedef {ctype} vec_{suffix}u __attribute__((vector_size({unit.nbytes}), aligned({itemsize}), may_alias));
"""
        )
        if f"vec_sum_{suffix}(" in text:
            parts.append(
                f"""
/* The sum of the lanes, which it overwrites. */
static inline {ctype} vec_sum_{suffix}({ctype} *lanes) {{
  for (int width = {lanes // 2}; width > 0; width /= 2) {{
    for (int lane = 0; lane < width; ++lane) {{
      lanes[lane] += lanes[lane + width];
    }}
  }}
  return lanes[0];
}}
"""
            )
    return "".join(parts)


def outer_tile(
    name: str, unit: VectorUnit, dtype: str, shape: tuple[int, int], *, depth_step: int = 1, tap_step: int | None = None
) -> str:
    """Gives a function that adds up outer products: ``sums[j][v] = sum over c, t of factor[j] * vector[v]``.

    C signature: ``(from, from_step, taps, num_taps, factors, row_step, depth, sums)``; vector ``v`` of step ``(c, t)``
    starts at ``from + c * from_step + taps[t] + v * lanes``, factor ``j`` lies at
    ``factors + c * depth_step + t * tap_step + j * row_step``.

    Args:
        name: the C function's name.
        unit: the vector registers.
        dtype: ``float32`` or ``float64``.
        shape: rows of the tile, and vectors in a row.
        depth_step: the factors' distance from ``c`` to ``c``.
        tap_step: their distance from tap to tap; ``None``: no loop over taps, ``taps`` and ``num_taps`` are left out.
    """
    suffix, ctype, lanes = c_suffix(dtype), c_type(dtype), unit.lanes(dtype)
    rows, vectors = shape
    taps = tap_step is not None
    tap_parameters = "const int64_t *taps, int64_t num_taps, " if taps else ""
    tap_loop = "    for (int64_t t = 0; t < num_taps; ++t) {" if taps else "    {"
    source = "from + c * from_step + taps[t]" if taps else "from + c * from_step"
    factor = f"factors + c * {depth_step}" + (f" + t * {tap_step}" if taps else "")
    return f"""\
static BYOC_CONTRACTED void {name}(const {ctype} *from, int64_t from_step, {tap_parameters}const {ctype} *factors,
    int64_t row_step, int64_t depth, {ctype} *restrict sums) {{
  BYOC_CONTRACT
  vec_{suffix} acc[{rows}][{vectors}];
  BYOC_UNROLL
  for (int j = 0; j < {rows}; ++j) {{
    BYOC_UNROLL
    for (int v = 0; v < {vectors}; ++v) acc[j][v] = (vec_{suffix}){{0}};
  }}
  for (int64_t c = 0; c < depth; ++c) {{
{tap_loop}
      const {ctype} *restrict vector = {source};
      const {ctype} *restrict factor = {factor};
      vec_{suffix} part[{vectors}];
      BYOC_UNROLL
      for (int v = 0; v < {vectors}; ++v) part[v] = *(const vec_{suffix}u *)(vector + v * {lanes});
      BYOC_UNROLL
      for (int j = 0; j < {rows}; ++j) {{
        const {ctype} scale = factor[j * row_step];
        BYOC_UNROLL
        for (int v = 0; v < {vectors}; ++v) acc[j][v] += scale * part[v];
      }}
    }}
  }}
  BYOC_UNROLL
  for (int j = 0; j < {rows}; ++j) {{
    BYOC_UNROLL
    for (int v = 0; v < {vectors}; ++v) *(vec_{suffix}u *)(sums + (j * {vectors} + v) * {lanes}) = acc[j][v];
  }}
}}
"""


def dot_tile(name: str, unit: VectorUnit, dtype: str, rows: int, columns: int) -> str:
    """Gives a function that computes ``rows`` times ``columns`` dot products of rows of ``depth`` elements.

    C signature: ``(x, w, depth, sums)``; the rows of both follow one another.
    """
    suffix, ctype, lanes = c_suffix(dtype), c_type(dtype), unit.lanes(dtype)
    return f"""\
static BYOC_CONTRACTED void {name}(const {ctype} *x, const {ctype} *w, int64_t depth, {ctype} *restrict sums) {{
  BYOC_CONTRACT
  vec_{suffix} acc[{rows}][{columns}];
  int64_t k = 0;
  BYOC_UNROLL
  for (int i = 0; i < {rows}; ++i) {{
    BYOC_UNROLL
    for (int j = 0; j < {columns}; ++j) acc[i][j] = (vec_{suffix}){{0}};
  }}
  for (; k + {lanes} <= depth; k += {lanes}) {{
    vec_{suffix} left[{rows}];
    BYOC_UNROLL
    for (int i = 0; i < {rows}; ++i) left[i] = *(const vec_{suffix}u *)(x + i * depth + k);
    BYOC_UNROLL
    for (int j = 0; j < {columns}; ++j) {{
      const vec_{suffix} right = *(const vec_{suffix}u *)(w + j * depth + k);
      BYOC_UNROLL
      for (int i = 0; i < {rows}; ++i) acc[i][j] += left[i] * right;
    }}
  }}
  {ctype} lanes[{rows}][{columns}][{lanes}];
  BYOC_UNROLL
  for (int i = 0; i < {rows}; ++i) {{
    BYOC_UNROLL
    for (int j = 0; j < {columns}; ++j) *(vec_{suffix}u *)lanes[i][j] = acc[i][j];
  }}
  for (int i = 0; i < {rows}; ++i) {{
    for (int j = 0; j < {columns}; ++j) {{
      {ctype} sum = vec_sum_{suffix}(lanes[i][j]);
      const {ctype} *left = x + i * depth + k, *right = w + j * depth + k;
      for (int64_t rest = 0; rest < depth % {lanes}; ++rest) sum += left[rest] * right[rest];
      sums[i * {columns} + j] = sum;
    }}
  }}
}}
"""
