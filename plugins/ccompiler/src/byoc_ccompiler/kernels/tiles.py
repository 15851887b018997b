"""Register tiles: the innermost loops of convolutions and matrix products, on the compiler's vector types.

A tile holds ``rows`` times ``vectors`` sums in registers. Its loops are written so that a C compiler needs no more
than unrolling: no reassociation, no ``-ffast-math``. Only here are products and sums contracted (fused multiply-add).
"""

from __future__ import annotations

from byoc_core.authoring.csource_types import c_suffix, c_type

from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["dot_tile", "outer_tile"]


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
