"""What combines elements: the reductions' neutral elements and operations, and C functions that combine a row.

A row of floats is combined in several registers at once, lane by lane, then the lanes by halves: an order that only the
row's length decides. Sums of long rows are made of pieces, see :data:`PIECE`.
"""

from __future__ import annotations

import re

from byoc_core.authoring.csource import c_literal, c_suffix, c_type
from byoc_core.dtypes import dtype_info

from byoc_ccompiler.kernels.row_extremes import extreme_function
from byoc_ccompiler.steps import Step, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["PIECE", "REDUCTIONS", "combine", "reduced_axes", "reducer_definitions", "row_function", "start"]

REDUCTIONS = frozenset({"sum", "mean", "max", "min", "prod", "any", "all"})
"""The reductions that row kernels compute."""

PIECE = 1024
"""Elements of a row that one call combines.

The sums of pieces are added up in float64 (with a second number for what is lost, where the pieces are of float64
themselves), so that the error does not grow with the number of pieces.
"""


_ROUNDS = 16
"""Registers that are added up one after the other, before their sum is added to that of the others."""

_FETCH_NBYTES = 2048
"""How far ahead a row is fetched, which the processor itself does within a page only."""

_LINE_NBYTES = 64

_LEAST_NBYTES = 16
"""Bytes of the narrowest register."""


def reduced_axes(step: Step) -> tuple[int, ...]:
    """Gives the axes that a reduction reduces, ascending."""
    rank, axes = len(shape_of(step.operands[0])), step.binding.attrs["axis"]
    if not isinstance(axes, tuple):
        return tuple(range(rank))
    return tuple(sorted(int(str(axis)) % rank for axis in axes))


def _kind(op: str) -> str:
    return "sum" if op == "mean" else op


def start(op: str, dtype: str) -> str:
    """Gives the neutral element of a reduction, as a C literal."""
    kind = _kind(op)
    if kind in ("max", "min"):
        if dtype.startswith("float"):
            return c_literal(float("-inf" if kind == "max" else "inf"), dtype)
        if dtype != "bool":
            bits, signed = int(dtype.lstrip("uint")), not dtype.startswith("uint")
            lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
            return c_literal(lowest if kind == "max" else highest, dtype)
    return c_literal(1 if kind in ("prod", "all", "min") else 0, dtype)


def combine(op: str, dtype: str, left: str, right: str) -> str:
    """Gives the C expression that combines two elements."""
    kind = _kind(op)
    if dtype == "bool":
        return f"{left} {'|' if kind in ('any', 'max') else '&'} {right}"
    if kind in ("max", "min"):
        return f"byoc_{kind}imum_{c_suffix(dtype)}({left}, {right})"
    if dtype.startswith("float"):
        return f"{left} {'+' if kind == 'sum' else '*'} {right}"
    return f"byoc_{'add' if kind == 'sum' else 'multiply'}_{c_suffix(dtype)}({left}, {right})"


def row_function(op: str, dtype: str) -> str:
    """Gives the name of the C function ``(const T *x, int64_t count)`` that combines elements side by side."""
    return f"vec_row_{_kind(op)}_{'b8' if dtype == 'bool' else c_suffix(dtype)}"


_DTYPES = {c_suffix(dtype): dtype for dtype in ("float32", "float64")}
_DTYPES |= {c_suffix(f"{sign}int{bits}"): f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_DTYPES["b8"] = "bool"


def reducer_definitions(unit: VectorUnit, text: str) -> str:
    """Gives the C definitions of the functions of :func:`row_function`, and of long sums, that a text calls."""
    found = sorted(set(re.findall(r"\bvec_row_([a-z]+)_([a-z][0-9]+)\(", text)))
    parts = [_LONG_SUM] if "vec_add_piece(" in text else []
    for op, suffix in found:
        dtype = _DTYPES[suffix]
        if dtype in ("float32", "float64"):
            parts.append(_float_function(unit, op, dtype))
        else:
            parts.append(_plain_function(op, dtype))
    return "".join(parts)


_LONG_SUM = """
/* Adds to a sum of two parts: the rounded sum, and what rounding has lost (Neumaier's form of Kahan's sum). */
static inline void vec_add_piece(double *total, double piece) {
  const double sum = total[0] + piece;
  total[1] += fabs(total[0]) >= fabs(piece) ? (total[0] - sum) + piece : (piece - sum) + total[0];
  total[0] = sum;
}

/* The sum; infinities and NaN leave no sense in what was lost. */
static inline double vec_whole_sum(const double *total) {
  return isfinite(total[1]) ? total[0] + total[1] : total[0];
}
"""


def _plain_function(op: str, dtype: str) -> str:
    """Gives a loop that the compiler vectorises by itself: the order of integers does not matter."""
    ctype = c_type(dtype)
    return f"""
static inline {ctype} {row_function(op, dtype)}(const {ctype} *x, int64_t count) {{
  {ctype} total = {start(op, dtype)};
  for (int64_t k = 0; k < count; ++k) total = {combine(op, dtype, "total", "x[k]")};
  return total;
}}
"""


def _float_function(unit: VectorUnit, op: str, dtype: str) -> str:
    """Gives the function for floats, and the one it calls for rows that fill less than a register."""
    ctype, lanes, name = c_type(dtype), unit.lanes(dtype), row_function(op, dtype)
    widths = [lanes]
    while widths[-1] * dtype_info(dtype).itemsize > _LEAST_NBYTES:
        widths.append(widths[-1] // 2)
    if op in ("max", "min"):
        return extreme_function(name, op, dtype, widths, _fetch(unit))
    whole = _Register(op, dtype, lanes)
    shorter = "".join(_short_row(_Register(op, dtype, width)) for width in widths[1:])
    calls = "".join(f"\n  if (count >= {width}) return {name}_{width}(x, count);" for width in widths[1:])
    return f"""{shorter}{whole.definitions()}
static inline {ctype} {name}(const {ctype} *x, int64_t count) {{
  if (count >= {lanes}) {{
    {whole.vector} acc[4];
    int64_t k = 0;
    BYOC_UNROLL
    for (int v = 0; v < 4; ++v) acc[v] = ({whole.vector}){{0}} + {start(op, dtype)};
{_walk(unit, whole)}
    for (; k + {lanes} <= count; k += {lanes}) acc[0] = {whole.both("acc[0]", whole.load("x + k"))};
    if (k < count) acc[1] = {whole.both("acc[1]", whole.last("x", "count", "k"))};
    acc[0] = {whole.both("acc[0]", "acc[1]")};
    acc[2] = {whole.both("acc[2]", "acc[3]")};
    acc[0] = {whole.both("acc[0]", "acc[2]")};
    return {whole.fold("acc[0]")};
  }}{calls}
  {ctype} total = {start(op, dtype)};
  for (int64_t k = 0; k < count; ++k) total = {combine(op, dtype, "total", "x[k]")};
  return total;
}}
"""


def _walk(unit: VectorUnit, register: _Register) -> str:
    """Gives the loop over four registers at a time."""
    lanes, vector = register.lanes, register.vector
    wide = 4 * lanes
    each, fetch = "BYOC_UNROLL\n      for (int v = 0; v < 4; ++v)", _fetch(unit)
    element = register.load(f"x + k + v * {lanes}")
    if _kind(register.op) == "sum" and wide * _ROUNDS < PIECE:
        return f"""\
    while (k + {wide} <= count) {{
      const int64_t end = byoc_min(count, k + {wide * _ROUNDS});
      {vector} part[4];
      {each} part[v] = ({vector}){{0}};
      for (; k + {wide} <= end; k += {wide}) {{
      {fetch}
        {each} part[v] += {element};
      }}
      {each} acc[v] += part[v];
    }}"""
    return f"""\
    for (; k + {wide} <= count; k += {wide}) {{
      {fetch}
      {each} acc[v] = {register.both("acc[v]", element)};
    }}"""


def _fetch(unit: VectorUnit) -> str:
    """Gives the loop that fetches what lies ahead of ``x + k``, as much as four registers."""
    return f"""for (int v = 0; v < {max(1, 4 * unit.nbytes // _LINE_NBYTES)}; ++v) {{
        __builtin_prefetch((const char *)((uintptr_t)(x + k) + {_FETCH_NBYTES} + {_LINE_NBYTES} * v));
      }}"""


def _short_row(register: _Register) -> str:
    """Gives the function for rows that fill this register, but no two of them."""
    ctype, name = c_type(register.dtype), f"{row_function(register.op, register.dtype)}_{register.lanes}"
    vector, neutral = register.vector, start(register.op, register.dtype)
    return f"""{register.definitions()}
static inline {ctype} {name}(const {ctype} *x, int64_t count) {{
  {vector} acc = ({vector}){{0}} + {neutral};
  acc = {register.both("acc", register.load("x"))};
  if (count > {register.lanes}) acc = {register.both("acc", register.last("x", "count", str(register.lanes)))};
  return {register.fold("acc")};
}}
"""


class _Register:
    """A vector of floats of any width, and C expressions of what one reduction does with it."""

    def __init__(self, op: str, dtype: str, lanes: int) -> None:
        self.op, self.dtype, self.lanes = op, dtype, lanes
        self._name = f"{row_function(op, dtype)}_of_{lanes}"
        self.vector, self._mask = f"{self._name}_t", f"{self._name}_mask"

    def definitions(self) -> str:
        """Gives the types, and the functions that the expressions call."""
        ctype, bits = c_type(self.dtype), dtype_info(self.dtype).bits
        nbytes = self.lanes * bits // 8
        vector, mask = self.vector, self._mask
        text = f"""
typedef {ctype} {vector} __attribute__((vector_size({nbytes})));
typedef {ctype} {vector}u __attribute__((vector_size({nbytes}), aligned({bits // 8}), may_alias));
typedef int{bits}_t {mask} __attribute__((vector_size({nbytes})));

/* The last lanes of a row, of which the first `known` are left out. */
static inline {vector} {self._name}_last({vector} x, int{bits}_t known) {{
  const {mask} fresh = ({mask}){{{", ".join(map(str, range(self.lanes)))}}} >= known;
  const {vector} neutral = ({vector}){{0}} + {start(self.op, self.dtype)};
  return ({vector})((fresh & ({mask})x) | (~fresh & ({mask})neutral));
}}
"""
        lines = []
        width = self.lanes // 2
        while width:
            order = ", ".join(str((lane + width) % self.lanes) for lane in range(self.lanes))
            lines.append(f"  x = {self.both('x', f'VEC_SHUFFLE({mask}, x, x, {order})')};")
            width //= 2
        folds = "\n".join(lines)
        return f"""{text}
static inline {ctype} {self._name}_lanes({vector} x) {{
{folds}
  return x[0];
}}
"""

    def both(self, left: str, right: str) -> str:
        """Gives two vectors combined."""
        return combine(self.op, self.dtype, left, right)

    def load(self, pointer: str) -> str:
        """Gives the elements at a pointer."""
        return f"*(const {self.vector}u *)({pointer})"

    def last(self, pointer: str, count: str, known: str) -> str:
        """Gives the last elements of a row of which so many are combined already, these left out."""
        loaded, bits = self.load(f"{pointer} + {count} - {self.lanes}"), dtype_info(self.dtype).bits
        return f"{self._name}_last({loaded}, (int{bits}_t)({known} + {self.lanes} - {count}))"

    def fold(self, vector: str) -> str:
        """Gives the lanes combined, those of the halves with each other first."""
        return f"{self._name}_lanes({vector})"
