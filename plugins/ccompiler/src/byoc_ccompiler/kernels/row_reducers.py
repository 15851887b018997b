"""What combines elements: the reductions' neutral elements and operations, and C functions that combine a row.

The functions ``(const T *x, int64_t count)`` combine floats side by side. A row goes through four registers at once,
lane by lane, then the lanes by halves: an order that only the row's length decides. Rows that fill less than a register
go through a narrower one. Sums of long rows are made of pieces, see :data:`PIECE`.

Maxima and minima: a NaN wins over every number. Registers of what is best so far, in which a NaN may get lost, stand
beside sums, in which it does not: where a sum is NaN, the best is taken to be infinite, and where the result is, every
element is looked at again. So neither the loop nor what combines the lanes need look for NaN.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_literal, c_suffix, c_type, scalar_expression, without_parentheses
from byoc_core.dtypes import dtype_info, to_numpy

from byoc_ccompiler.steps import Step, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["ADD_PIECE", "DOUBLE", "PIECE", "REDUCTIONS", "SUM_UP", "combined", "reduced_axes", "row_function", "start"]

_ELEMENT_OPS = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_ELEMENT_OPS |= {"any": "logical_or", "all": "logical_and"}
"""The elementwise ops that combine two elements; numpy has them under the same names."""

REDUCTIONS = frozenset(_ELEMENT_OPS)
"""The reductions that row kernels compute."""

DOUBLE = c.CType("float64")

_ROUNDS, PIECE = 16, 1024
"""Registers that are added up before their sum is added to that of others; elements of a row that one call combines.

The sums of pieces are added up in float64 (with a second number for what is lost, where the pieces are of float64
themselves), so that the error does not grow with the number of pieces.
"""

_FETCH_NBYTES, _LINE_NBYTES, _LEAST_NBYTES = 2048, 64, 16
"""Bytes: how far ahead a row is fetched (processors do so within a page only), of a line, of the narrowest register."""


def reduced_axes(step: Step) -> tuple[int, ...]:
    """Return the axes that a reduction reduces, ascending."""
    rank, axes = len(shape_of(step.operands[0])), step.binding.attrs["axis"]
    if not isinstance(axes, tuple):
        return tuple(range(rank))
    return tuple(sorted(int(str(axis)) % rank for axis in axes))


def start(op: str, dtype: str) -> c.Literal:
    """Return the neutral element of a reduction."""
    value: float = int(op in ("prod", "all", "min"))
    if op in ("max", "min") and dtype.startswith("float"):
        value = float("-inf" if op == "max" else "inf")
    elif op in ("max", "min") and dtype != "bool":
        value = int(np.iinfo(dtype).min if op == "max" else np.iinfo(dtype).max)
    return c.Literal(value, c.CType(dtype))


def combined(op: str, left: c.Expression, right: c.Expression) -> c.Expression:
    """Return two elements, literals or variables, combined by a reduction."""
    return c.Element(_ELEMENT_OPS[op], (left, right), left.type)


@cache
def row_function(unit: VectorUnit, op: str, dtype: str) -> c.Callee:
    """Return the C function ``(const T *x, int64_t count)`` that combines elements side by side."""
    op = "sum" if op == "mean" else op
    none, combine = to_numpy(dtype).type(start(op, dtype).value), getattr(np, _ELEMENT_OPS[op])

    def evaluate(x: Any, count: int) -> Any:
        return combine.reduce(x[:count], dtype=x.dtype, initial=none)

    name = f"vec_row_{op}_{'b8' if dtype == 'bool' else c_suffix(dtype)}"
    if dtype not in ("float32", "float64"):
        definition = _plain_function(name, op, dtype)
    elif op in ("max", "min"):
        definition = _extreme_function(unit, name, dtype, op)
    else:
        definition = _total_function(unit, name, dtype, "+" if op == "sum" else "*", c_literal(none, dtype))
    return c.Callee(name, evaluate, definition=definition)


def _plain_function(name: str, op: str, dtype: str) -> str:
    """Return a loop that the compiler vectorises by itself: the order of integers does not matter."""
    ctype, both = c_type(dtype), scalar_expression(_ELEMENT_OPS[op], ["total", "x[k]"], [dtype, dtype], dtype, {})
    assert both is not None
    return f"""
static inline {ctype} {name}(const {ctype} *x, int64_t count) {{
  {ctype} total = {c_literal(start(op, dtype).value, dtype)};
  for (int64_t k = 0; k < count; ++k) total = {without_parentheses(both)};
  return total;
}}
"""


def _total_function(unit: VectorUnit, name: str, dtype: str, sign: str, none: str) -> str:
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


def _extreme_function(unit: VectorUnit, name: str, dtype: str, op: str) -> str:
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


def _add_piece() -> c.Function:
    """Return the function that adds to a sum of two parts: rounded, and what is lost (Neumaier's form of Kahan's)."""
    total, piece = c.Buffer("total", "float64", c.MemoryAccess.WRITE, 2), c.Variable("piece", DOUBLE)
    before, whole = c.Variable("before", DOUBLE), c.Variable("whole", DOUBLE)
    sizes = (c.Element("abs", (one,), DOUBLE) for one in (before, piece))
    lost = c.Select(c.Binary(">=", *sizes), (before - whole) + piece, (piece - whole) + before)
    sums = (c.Store(total, c.Size(1), total[1] + lost), c.Store(total, c.Size(0), whole))
    return c.Function("add_piece", (total, piece), (c.Let(before, total[0]), c.Let(whole, before + piece), *sums))


def _whole_sum() -> c.Function:
    """Return the function that adds up the two parts; infinities and NaN leave no sense in what was lost."""
    total, is_finite = c.Buffer("total", "float64", size=2), c.Callee("isfinite", np.isfinite)
    whole = c.Select(c.Call(is_finite, (total[1],), c.BOOL), total[0] + total[1], total[0])
    return c.Function("whole_sum", (total,), (c.Return(whole),), DOUBLE)


ADD_PIECE, SUM_UP = _add_piece(), _whole_sum()
"""Functions ``(double *total, double piece)`` and ``(const double *total)`` on a sum of two parts."""
