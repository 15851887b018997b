"""Blocks of rows times a panel of columns: C functions that all products of a source share.

A panel holds the columns that a register tile computes at a time: those of one step of the sums lie side by side, and
the steps follow one another. So a tile reads it front to back, whatever the matrix it was made of.
"""

from __future__ import annotations

from collections.abc import Collection

from byoc_core.authoring.csource import c_suffix, c_type

from byoc_ccompiler.kernel import Kernel
from byoc_ccompiler.kernels.tiles import DEPTH_CHUNK
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["block_function", "pack_function"]

_UNROLLED = 4


def block_function(kernel: Kernel, dtype: str, vectors: int, num_rows: Collection[int], *, strided: bool) -> str:
    """Gives the name of a function that multiplies rows by a panel of ``vectors * lanes`` columns.

    C signature: ``(a, a_row_step, panel, [panel_step,] depth, num_rows, sums, pitch, adds, ahead, ahead_rows)``. It
    sets ``sums[j * pitch + n]``, or adds to it where ``adds`` is not 0. Meanwhile it fetches the memory behind
    ``ahead`` into the cache, as much as the panel takes over ``ahead_rows`` rows; 0: none.

    Args:
        kernel: whose source the function is for.
        dtype: ``float32`` or ``float64``.
        vectors: vectors in a row of the panel.
        num_rows: how many rows it is called with; none: with any number.
        strided: whether the panel's steps lie ``panel_step`` elements apart, and not side by side.
    """
    ctype, width = c_type(dtype), vectors * kernel.unit.lanes(dtype)
    rows = kernel.unit.panel_rows(vectors)
    counts = {count for number in num_rows for count in (number % rows, rows if number >= rows else 0)} - {0}
    kind = "strided_" if strided else ""
    names = {
        count: kernel.helper(
            f"tile_{kind}{c_suffix(dtype)}_{count}x{width}",
            _tile(kernel.unit, dtype, count, vectors, strided=strided),
        )
        for count in sorted(counts or range(1, rows + 1), reverse=True)
    }
    step = ", int64_t panel_step" if strided else ""
    panel = f"panel + begin * {'panel_step, panel_step' if strided else width}"
    arguments = f"a + row * a_row_step + begin, a_row_step, {panel}, end - begin"
    tail = f"sums + row * pitch, pitch, adds || begin, fetched + begin / {_UNROLLED} * stride, stride"

    def calls(count: int, indent: str) -> list[str]:
        return [
            f"{indent}const {ctype} *fetched = ahead + row * share;",
            f"{indent}const int64_t stride = ahead_rows ? {count * _UNROLLED * width} / ahead_rows + 1 : 0;",
            f"{indent}int64_t begin = 0;",
            f"{indent}do {{",
            f"{indent}  const int64_t end = depth - begin > {DEPTH_CHUNK} ? begin + {DEPTH_CHUNK} : depth;",
            f"{indent}  {names[count]}({arguments},",
            f"{indent}      {tail});",
            f"{indent}  begin = end;",
            f"{indent}}} while (begin < depth);",
        ]

    lines = [
        # Inline, so that no compiler minds where a kernel turns out not to call it: empty axes leave no rows.
        f"static inline void {{name}}(const {ctype} *a, int64_t a_row_step, const {ctype} *panel{step}, int64_t depth,",
        f"    int64_t num_rows, {ctype} *restrict sums, int64_t pitch, int adds, const {ctype} *ahead,",
        "    int64_t ahead_rows) {",
        f"  const int64_t share = ahead_rows ? depth * {width} / ahead_rows : 0;",
        "  int64_t row = 0;",
    ]
    for count in names:
        head = (
            f"for (; row + {rows} <= num_rows; row += {rows})" if count == rows else f"if (num_rows - row == {count})"
        )
        lines += [f"  {head} {{", *calls(count, "    "), "  }"]
    return kernel.helper(f"rows_{kind}{c_suffix(dtype)}_{width}", "\n".join([*lines, "}"]))


def _tile(unit: VectorUnit, dtype: str, rows: int, vectors: int, *, strided: bool) -> str:
    suffix, ctype, lanes = c_suffix(dtype), c_type(dtype), unit.lanes(dtype)
    width = vectors * lanes
    step = "panel_step" if strided else str(width)

    def each(statement: str, indent: str) -> list[str]:
        return [
            f"{indent}BYOC_UNROLL",
            f"{indent}for (int j = 0; j < {rows}; ++j) {{",
            f"{indent}  BYOC_UNROLL",
            f"{indent}  for (int v = 0; v < {vectors}; ++v) {statement}",
            f"{indent}}}",
        ]

    def product_lines(u: str, indent: str) -> list[str]:
        return [
            f"{indent}vec_{suffix} part[{vectors}];",
            f"{indent}BYOC_UNROLL",
            f"{indent}for (int v = 0; v < {vectors}; ++v) {{",
            f"{indent}  part[v] = *(const vec_{suffix}u *)(panel + {u} * {step} + v * {lanes});",
            f"{indent}}}",
            f"{indent}BYOC_UNROLL",
            f"{indent}for (int j = 0; j < {rows}; ++j) {{",
            f"{indent}  const {ctype} scale = a[j * a_row_step + k + {u}];",
            f"{indent}  BYOC_UNROLL",
            f"{indent}  for (int v = 0; v < {vectors}; ++v) acc[j][v] += scale * part[v];",
            f"{indent}}}",
        ]

    place = f"*(vec_{suffix}u *)(sums + j * pitch + v * {lanes})"
    lines = [
        f"static BYOC_CONTRACTED void {{name}}(const {ctype} *a, int64_t a_row_step, const {ctype} *panel,",
        f"    {'int64_t panel_step, ' if strided else ''}int64_t depth, {ctype} *restrict sums, int64_t pitch,",
        f"    int adds, const {ctype} *ahead, int64_t stride) {{",
        "  BYOC_CONTRACT",
        f"  vec_{suffix} acc[{rows}][{vectors}];",
        "  int64_t k = 0;",
        *each(f"acc[j][v] = (vec_{suffix}){{0}};", "  "),
        f"  for (; k + {_UNROLLED} <= depth; k += {_UNROLLED}, panel += {_UNROLLED} * {step}) {{",
        "    __builtin_prefetch(ahead, 0, 2);",
        "    ahead += stride;",
        "    BYOC_UNROLL",
        f"    for (int u = 0; u < {_UNROLLED}; ++u) {{",
        *product_lines("u", "      "),
        "    }",
        "  }",
        f"  for (; k < depth; ++k, panel += {step}) {{",
        *product_lines("0", "    "),
        "  }",
        "  if (adds) {",
        *each(f"{place} += acc[j][v];", "    "),
        "  } else {",
        *each(f"{place} = acc[j][v];", "    "),
        "  }",
        "}",
    ]
    return "\n".join(lines)


def pack_function(kernel: Kernel, dtype: str, width: int) -> str:
    """Gives the name of a function that copies columns of a matrix into a panel of ``width``, zeros behind them.

    C signature: ``(from, row_step, column_step, depth, num_columns, panel)``.
    """
    ctype, lanes = c_type(dtype), kernel.unit.lanes(dtype)
    turn = kernel.helper(f"turn_{c_suffix(dtype)}", _turn(dtype, lanes))
    lines = [
        f"static void {{name}}(const {ctype} *from, int64_t row_step, int64_t column_step, int64_t depth,",
        f"    int64_t num_columns, {ctype} *restrict panel) {{",
        f"  if (column_step == 1 && num_columns == {width}) {{",
        f"    for (int64_t k = 0; k < depth; ++k) memcpy(panel + k * {width}, from + k * row_step,",
        f"        {width} * sizeof(*panel));",
        "    return;",
        "  }",
        f"  for (int64_t n = 0; n < {width}; n += {lanes}) {{",
        f"    const int64_t turned = row_step == 1 && n + {lanes} <= num_columns ? depth / {lanes} * {lanes} : 0;",
        f"    for (int64_t k = 0; k < turned; k += {lanes}) {{",
        f"      {turn}(from + n * column_step + k, column_step, panel + k * {width} + n, {width});",
        "    }",
        "    for (int64_t k = turned; k < depth; ++k) {",
        f"      for (int64_t j = n; j < n + {lanes}; ++j) {{",
        f"        panel[k * {width} + j] = j < num_columns ? from[k * row_step + j * column_step] : 0;",
        "      }",
        "    }",
        "  }",
        "}",
    ]
    return kernel.helper(f"pack_{c_suffix(dtype)}_{width}", "\n".join(lines))


def _turn(dtype: str, lanes: int) -> str:
    """Gives a function that transposes a square of as many rows as a vector has lanes.

    Squares of half the size are exchanged across the diagonal, then those within each of the four, and so on.
    """
    suffix, ctype = c_suffix(dtype), c_type(dtype)
    lines = [
        f"static void {{name}}(const {ctype} *from, int64_t from_step, {ctype} *restrict to, int64_t to_step) {{",
        f"  vec_{suffix} {', '.join(f'r{row}' for row in range(lanes))}, upper;",
        *(f"  r{row} = *(const vec_{suffix}u *)(from + {row} * from_step);" for row in range(lanes)),
    ]
    half = lanes // 2
    while half:
        low = [lane if not lane & half else lanes + lane - half for lane in range(lanes)]
        high = [lane + half if not lane & half else lanes + lane for lane in range(lanes)]
        for row in (row for row in range(lanes) if not row & half):
            pair = f"r{row}, r{row + half}"
            lines += [
                f"  upper = BYOC_SHUFFLE_{suffix}({pair}, {', '.join(map(str, low))});",
                f"  r{row + half} = BYOC_SHUFFLE_{suffix}({pair}, {', '.join(map(str, high))});",
                f"  r{row} = upper;",
            ]
        half //= 2
    lines += [f"  *(vec_{suffix}u *)(to + {row} * to_step) = r{row};" for row in range(lanes)]
    return "\n".join([*lines, "}"])
