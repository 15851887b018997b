"""C text of functions that combine floats side by side: ``(const T *x, int64_t count)``.

A row goes through four registers at once, lane by lane, then the lanes by halves: an order that only the row's length
decides. Rows that fill less than a register go through a narrower one.

Maxima and minima: a NaN wins over every number. Registers of what is best so far, in which a NaN may get lost, stand
beside sums, in which it does not: where a sum is NaN, the best is taken to be infinite, and where the result is, every
element is looked at again. So neither the loop nor what combines the lanes need look for NaN.
"""

from __future__ import annotations

from byoc_core.authoring.csource import c_literal, c_suffix, c_type
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["PIECE", "extreme_function", "total_function"]

_ROUNDS = 16
"""Registers that are added up one after the other, before their sum is added to that of the others."""

PIECE = 1024
"""Elements of a row that one call combines.

The sums of pieces are added up in float64 (with a second number for what is lost, where the pieces are of float64
themselves), so that the error does not grow with the number of pieces.
"""

_FETCH_NBYTES = 2048
"""How far ahead a row is fetched, which the processor itself does within a page only."""

_LINE_NBYTES = 64

_LEAST_NBYTES = 16
"""Bytes of the narrowest register."""


def total_function(unit: VectorUnit, name: str, dtype: str, sign: str, none: str) -> str:
    """Return the function of a sum or product, whose sign and neutral element are given, and those that it calls."""
    lanes, *narrow = _widths(unit, dtype)
    ctype, vector, wide = c_type(dtype), f"{name}_{lanes}", 4 * lanes
    parts = [_total_register(f"{name}_{width}", dtype, width, sign, none) for width in (*narrow, lanes)]
    short = "".join(f"\n  if (count >= {width}) return {name}_{width}_row(x, count);" for width in narrow)
    each, is_in_rounds = "BYOC_UNROLL\n      for (int v = 0; v < 4; ++v)", sign == "+" and wide * _ROUNDS < PIECE
    to, end = ("part", "end") if is_in_rounds else ("acc", "count")
    walk = f"""\
    for (; k + {wide} <= {end}; k += {wide}) {{
      {_fetch(unit)}
      {each} {to}[v] = {to}[v] {sign} *(const {vector}u *)(x + k + v * {lanes});
    }}"""
    if is_in_rounds:
        walk = f"""\
    while (k + {wide} <= count) {{
      const int64_t end = byoc_min(count, k + {wide * _ROUNDS});
      {vector} part[4];
      {each} part[v] = ({vector}){{0}};
{walk}
      {each} acc[v] += part[v];
    }}"""
    return f"""{"".join(parts)}
static inline {ctype} {name}(const {ctype} *x, int64_t count) {{
  if (count >= {lanes}) {{
    {vector} acc[4];
    int64_t k = 0;
    BYOC_UNROLL
    for (int v = 0; v < 4; ++v) acc[v] = ({vector}){{0}} + {none};
{walk}
    for (; k + {lanes} <= count; k += {lanes}) acc[0] = acc[0] {sign} *(const {vector}u *)(x + k);
    if (k < count) acc[1] = acc[1] {sign} {vector}_last(x, k, count);
    acc[0] = acc[0] {sign} acc[1];
    acc[2] = acc[2] {sign} acc[3];
    acc[0] = acc[0] {sign} acc[2];
    return {vector}_lanes(acc[0]);
  }}{short}
  {ctype} total = {none};
  for (int64_t k = 0; k < count; ++k) total = total {sign} x[k];
  return total;
}}
"""


def _total_register(vector: str, dtype: str, lanes: int, sign: str, none: str) -> str:
    """Return a type of vectors, and functions: the last lanes of a row, lanes combined, and a row that fills one."""
    ctype, bits = c_type(dtype), dtype_info(dtype).bits
    return f"""{_types(vector, dtype, lanes)}
/* The last lanes of a row, without those of its first `known` elements. */
static inline {vector} {vector}_last(const {ctype} *x, int64_t known, int64_t count) {{
  const {vector}_mask places = {{{", ".join(map(str, range(lanes)))}}};
  const {vector}_mask fresh = places >= (int{bits}_t)(known + {lanes} - count);
  const {vector} last = *(const {vector}u *)(x + count - {lanes}), neutral = ({vector}){{0}} + {none};
  return ({vector})((fresh & ({vector}_mask)last) | (~fresh & ({vector}_mask)neutral));
}}

static inline {ctype} {vector}_lanes({vector} x) {{
{_folds("x", lanes, f"{{0}} {sign} {{1}}")}
  return x[0];
}}

static inline {ctype} {vector}_row(const {ctype} *x, int64_t count) {{
  {vector} acc = ({vector}){{0}} + {none};
  acc = acc {sign} *(const {vector}u *)x;
  if (count > {lanes}) acc = acc {sign} {vector}_last(x, {lanes}, count);
  return {vector}_lanes(acc);
}}
"""


def extreme_function(unit: VectorUnit, name: str, dtype: str, op: str) -> str:
    """Return the function of a maximum or minimum, and those that it calls."""
    lanes, *narrow = _widths(unit, dtype)
    ctype, vector, wide = c_type(dtype), f"{name}_{lanes}", 4 * lanes
    none, limit = (c_literal(float(f"{sign}inf"), dtype) for sign in (("-", "") if op == "max" else ("", "-")))
    parts = [_extreme_register(f"{name}_{width}", dtype, width, op, limit) for width in (lanes, *narrow)]
    short = "".join(
        f" else if (count >= {width}) {{\n    best = {name}_{width}_row(x, count);\n  }}" for width in (lanes, *narrow)
    )
    return f"""{"".join(parts)}
static __attribute__((noinline)) {ctype} {name}_exact(const {ctype} *x, int64_t count) {{
  {ctype} best = {none};
  for (int64_t k = 0; k < count; ++k) best = byoc_{op}imum_{c_suffix(dtype)}(best, x[k]);
  return best;
}}

static inline {ctype} {name}(const {ctype} *x, int64_t count) {{
  {ctype} best;
  if (count >= {wide}) {{
    {vector} bests[4], sums[4];
    int64_t k = 0;
    BYOC_UNROLL
    for (int v = 0; v < 4; ++v) {{
      bests[v] = ({vector}){{0}} + {none};
      sums[v] = ({vector}){{0}};
    }}
    for (; k + {wide} <= count; k += {wide}) {{
      {_fetch(unit)}
      BYOC_UNROLL
      for (int v = 0; v < 4; ++v) {{
        const {vector} x_v = *(const {vector}u *)(x + k + v * {lanes});
        bests[v] = {vector}_better(bests[v], x_v);
        sums[v] += x_v;
      }}
    }}
    bests[0] = {vector}_better({vector}_better(bests[0], bests[1]), {vector}_better(bests[2], bests[3]));
    sums[0] += sums[1] + (sums[2] + sums[3]);
    best = {vector}_rest(bests[0], sums[0], x, k, count);
  }}{short} else {{
    return {name}_exact(x, count);
  }}
  return best == {limit} ? {name}_exact(x, count) : best;
}}
"""


def _extreme_register(vector: str, dtype: str, lanes: int, op: str, limit: str) -> str:
    """Return a type of vectors, and functions for rows that fill one."""
    ctype = c_type(dtype)
    return f"""{_types(vector, dtype, lanes)}
static inline {vector} {vector}_better({vector} a, {vector} b) {{
  const {vector}_mask keep = a {">" if op == "max" else "<"} b;
  return ({vector})((keep & ({vector}_mask)a) | (~keep & ({vector}_mask)b));
}}

/* The best of two registers and of what is left of a row: its last elements, some of them again. */
static inline {ctype} {vector}_rest({vector} best, {vector} sum, const {ctype} *x, int64_t k, int64_t count) {{
  for (; k + {lanes} <= count; k += {lanes}) {{
    best = {vector}_better(best, *(const {vector}u *)(x + k));
    sum += *(const {vector}u *)(x + k);
  }}
  if (k < count) {{
    best = {vector}_better(best, *(const {vector}u *)(x + count - {lanes}));
    sum += *(const {vector}u *)(x + count - {lanes});
  }}
  const {vector}_mask odd = sum != sum;
  best = ({vector})((odd & ({vector}_mask)(({vector}){{0}} + {limit})) | (~odd & ({vector}_mask)best));
{_folds("best", lanes, f"{vector}_better({{0}}, {{1}})")}
  return best[0];
}}

static inline {ctype} {vector}_row(const {ctype} *x, int64_t count) {{
  const {vector} first = *(const {vector}u *)x;
  return {vector}_rest(first, first, x, {lanes}, count);
}}
"""


def _widths(unit: VectorUnit, dtype: str) -> list[int]:
    """Return the lanes of the registers, the widest first."""
    widths = [unit.lanes(dtype)]
    while widths[-1] * dtype_info(dtype).itemsize > _LEAST_NBYTES:
        widths.append(widths[-1] // 2)
    return widths


def _types(vector: str, dtype: str, lanes: int) -> str:
    """Return the types of a register, of one at any address, and of a mask of its lanes."""
    ctype, bits = c_type(dtype), dtype_info(dtype).bits
    nbytes = lanes * bits // 8
    return f"""
typedef {ctype} {vector} __attribute__((vector_size({nbytes})));
typedef {ctype} {vector}u __attribute__((vector_size({nbytes}), aligned({bits // 8}), may_alias));
typedef int{bits}_t {vector}_mask __attribute__((vector_size({nbytes})));
"""


def _fetch(unit: VectorUnit) -> str:
    """Return the loop that fetches what lies ahead of ``x + k``, as much as four registers."""
    return f"""for (int v = 0; v < {max(1, 4 * unit.nbytes // _LINE_NBYTES)}; ++v) {{
        __builtin_prefetch((const char *)((uintptr_t)(x + k) + {_FETCH_NBYTES} + {_LINE_NBYTES} * v));
      }}"""


def _folds(vector: str, lanes: int, both: str) -> str:
    """Return the lines that combine lanes, those of the halves with each other first."""
    lines, width = [], lanes // 2
    while width:
        order = ", ".join(str((lane + width) % lanes) for lane in range(lanes))
        lines.append(f"  {vector} = {both.format(vector, f'BYOC_SHUFFLE({vector}, {vector}, {order})')};")
        width //= 2
    return "\n".join(lines)
