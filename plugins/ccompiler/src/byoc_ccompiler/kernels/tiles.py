"""Register tiles: the innermost loops of convolutions and matrix products, on the compiler's vector types.

A tile holds ``rows`` times ``vectors`` sums in registers. Its loops are written so that a C compiler needs no more
than unrolling: no reassociation, no ``-ffast-math``. Products and sums are contracted (fused multiply-add).
"""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.authoring.csource import c_suffix, c_type

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["DEPTH_CHUNK", "chunk_function", "dot_tile", "panel_function", "panel_tile"]

DEPTH_CHUNK = 512
"""Products that are added up one after another in a register; longer sums are sums of such sums."""


def dot_tile(name: str, unit: VectorUnit, dtype: str, rows: int, columns: int) -> str:
    """Gives a function that computes ``rows`` times ``columns`` dot products of ``depth`` neighbouring elements.

    C signature: ``(x, x_step, w, w_step, depth, sums, pitch, adds)``; the sums of one row lie side by side, ``pitch``
    elements behind those of the row before, and are added to where ``adds`` is not 0.
    """
    suffix, ctype, lanes = c_suffix(dtype), c_type(dtype), unit.lanes(dtype)
    return f"""\
static BYOC_CONTRACTED void {name}(const {ctype} *x, int64_t x_step, const {ctype} *w, int64_t w_step,
    int64_t depth, {ctype} *restrict sums, int64_t pitch, int adds) {{
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
    for (int i = 0; i < {rows}; ++i) left[i] = *(const vec_{suffix}u *)(x + i * x_step + k);
    BYOC_UNROLL
    for (int j = 0; j < {columns}; ++j) {{
      const vec_{suffix} right = *(const vec_{suffix}u *)(w + j * w_step + k);
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
      {ctype} sum = vec_sum_{suffix}(lanes[i][j]), *place = sums + i * pitch + j;
      const {ctype} *left = x + i * x_step, *right = w + j * w_step;
      for (int64_t rest = k; rest < depth; ++rest) sum += left[rest] * right[rest];
      *place = adds ? *place + sum : sum;
    }}
  }}
}}
"""


def panel_tile(
    name: str,
    unit: VectorUnit,
    dtype: str,
    rows: int,
    vectors: int,
    *,
    indirect: bool = False,
    fetches: bool = False,
) -> str:
    """Gives a function that multiplies rows by a panel: ``sums[j][n] = sum over k of a[j][k] * panel[k][n]``.

    A panel has ``vectors * lanes`` columns; those of one ``k`` lie side by side, and so do the sums of one row. The
    factors of a row lie side by side too. Sums are overwritten; they may lie at any address, like the panel.

    C signature: ``(a, a_row_step, panel, depth, sums)``; row ``j`` starts at ``a + j * a_row_step`` and has ``depth``
    factors. Indirect: ``(rows, num_taps, depth, panel, sums)``; row ``j`` is ``num_taps`` runs of ``depth`` factors,
    run ``t`` at ``rows[t * ROWS + j]``, and the panel has ``num_taps * depth`` steps. Where it fetches, ``ahead`` and
    ``ahead_step`` stand before ``sums``: memory wanted soon, and how many of its elements to fetch in each step.

    Args:
        name: the C function's name.
        unit: the vector registers.
        dtype: ``float32`` or ``float64``.
        rows: rows of the tile.
        vectors: vectors in a row.
        indirect: whether rows are found through pointers.
        fetches: whether other memory is brought into the second-level cache meanwhile.
    """
    suffix, ctype = c_suffix(dtype), c_type(dtype)
    tile = _PanelTile(suffix, unit.lanes(dtype), rows, vectors, fetches)
    if indirect:
        parameters = f"const {ctype} *const *rows, int64_t num_taps, int64_t depth, const {ctype} *panel"
        lines = tile.indirect_lines(ctype)
    else:
        parameters = f"const {ctype} *a, int64_t a_row_step, const {ctype} *panel, int64_t depth"
        lines = tile.direct_lines(ctype)
    if fetches:
        parameters += f",\n    const {ctype} *ahead, int64_t ahead_step"
    head = f"static BYOC_CONTRACTED void {name}({parameters}, {ctype} *restrict sums) {{"
    return "\n".join([head, "  BYOC_CONTRACT", f"  vec_{suffix} acc[{rows}][{vectors}];", *lines, "}", ""])


def panel_function(
    kernel: Kernel, dtype: str, rows: int, vectors: int, *, indirect: bool = False, fetches: bool = False
) -> str:
    """Gives the C name of a :func:`panel_tile` that all kernels of the source share."""
    form = ("rows" if indirect else "tile") + ("_fetching" if fetches else "")
    text = panel_tile("{name}", kernel.unit, dtype, rows, vectors, indirect=indirect, fetches=fetches)
    return kernel.helper(f"{form}_{c_suffix(dtype)}_{rows}x{vectors}", text)


def chunk_function(kernel: Kernel, dtype: str, rows: int, vectors: int) -> str:
    """Gives the C name of a function that multiplies a chunk of rows by a chunk of a panel, fetching meanwhile.

    C signature: ``(rows, begin, depth, panel, ahead, ahead_step, sums, adds)``; row ``j`` has its factors at
    ``rows[j] + begin``, ``depth`` of them, at most :data:`DEPTH_CHUNK`. Sums are added to where ``adds`` is not 0. The
    rest is as in :func:`panel_tile`.
    """
    suffix, ctype = c_suffix(dtype), c_type(dtype)
    tile = _PanelTile(suffix, kernel.unit.lanes(dtype), rows, vectors, fetches=True)
    lines = [
        f"static BYOC_CONTRACTED void {{name}}(const {ctype} *const *rows, int64_t begin, int64_t depth,",
        f"    const {ctype} *panel, const {ctype} *ahead, int64_t ahead_step, {ctype} *restrict sums, int adds) {{",
        "  BYOC_CONTRACT",
        f"  vec_{suffix} acc[{rows}][{vectors}];",
        "  const int64_t end = begin + depth;",
        *tile.clear("  "),
        *tile.steps(ctype, "rows[j][k]", "  "),
        "  if (adds) {",
        *tile.store("+=", "    "),
        "  } else {",
        *tile.store("=", "    "),
        "  }",
        "}",
        "",
    ]
    return kernel.helper(f"chunk_{suffix}_{rows}x{vectors}", "\n".join(lines))


@dataclass(frozen=True, slots=True)
class _PanelTile:
    """The pieces of :func:`panel_tile`: loops over the registers of a tile, and over the steps of a sum."""

    suffix: str
    lanes: int
    rows: int
    vectors: int
    fetches: bool

    def each(self, statement: str, indent: str) -> list[str]:
        """Gives the loops over all registers ``acc[j][v]``."""
        return [
            f"{indent}BYOC_UNROLL",
            f"{indent}for (int j = 0; j < {self.rows}; ++j) {{",
            f"{indent}  BYOC_UNROLL",
            f"{indent}  for (int v = 0; v < {self.vectors}; ++v) {statement}",
            f"{indent}}}",
        ]

    def clear(self, indent: str) -> list[str]:
        return self.each(f"acc[j][v] = (vec_{self.suffix}){{0}};", indent)

    def store(self, operator: str, indent: str) -> list[str]:
        place = f"*(vec_{self.suffix}u *)(sums + (j * {self.vectors} + v) * {self.lanes})"
        return self.each(f"{place} {operator} acc[j][v];", indent)

    def steps(self, ctype: str, factor: str, indent: str) -> list[str]:
        """Gives the loop over the steps ``k`` from ``begin`` to ``end``, which moves ``panel`` on."""
        step = f"++k, panel += {self.vectors * self.lanes}" + (", ahead += ahead_step" if self.fetches else "")
        lines = [
            f"for (int64_t k = begin; k < end; {step}) {{",
            *(["  __builtin_prefetch(ahead, 0, 2);"] if self.fetches else []),
            f"  vec_{self.suffix} part[{self.vectors}];",
            "  BYOC_UNROLL",
            f"  for (int v = 0; v < {self.vectors}; ++v) {{",
            f"    part[v] = *(const vec_{self.suffix}u *)(panel + v * {self.lanes});",
            "  }",
            "  BYOC_UNROLL",
            f"  for (int j = 0; j < {self.rows}; ++j) {{",
            f"    const {ctype} scale = {factor};",
            "    BYOC_UNROLL",
            f"    for (int v = 0; v < {self.vectors}; ++v) acc[j][v] += scale * part[v];",
            "  }",
            "}",
        ]
        return [indent + line for line in lines]

    def direct_lines(self, ctype: str) -> list[str]:
        return [
            "  for (int64_t begin = 0, end;; begin = end) {",
            f"    end = depth - begin > {DEPTH_CHUNK} ? begin + {DEPTH_CHUNK} : depth;",
            *self.clear("    "),
            *self.steps(ctype, "a[j * a_row_step + k]", "    "),
            "    if (begin) {",
            *self.store("+=", "      "),
            "    } else {",
            *self.store("=", "      "),
            "    }",
            "    if (end == depth) return;",
            "  }",
        ]

    def indirect_lines(self, ctype: str) -> list[str]:
        return [
            f"  int64_t room = {DEPTH_CHUNK};",
            "  int is_first = 1;",
            *self.clear("  "),
            f"  for (int64_t t = 0; t < num_taps; ++t, rows += {self.rows}) {{",
            "    for (int64_t begin = 0, end; begin < depth; begin = end) {",
            "      end = depth - begin > room ? begin + room : depth;",
            "      room -= end - begin;",
            *self.steps(ctype, "rows[j][k]", "      "),
            "      if (room) continue;",
            "      if (is_first) {",
            *self.store("=", "        "),
            "      } else {",
            *self.store("+=", "        "),
            "      }",
            *self.clear("      "),
            f"      room = {DEPTH_CHUNK};",
            "      is_first = 0;",
            "    }",
            "  }",
            "  if (is_first) {",
            *self.store("=", "    "),
            "  } else {",
            *self.store("+=", "    "),
            "  }",
        ]
