"""What combines elements: the reductions' neutral elements and operations, and C functions that combine a row.

A row of floats is combined in several registers at once, lane by lane, then the lanes by halves: an order that only the
row's length decides. Sums of long rows are made of pieces, see :data:`PIECE`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_literal, c_suffix, c_type, scalar_expression, without_parentheses
from byoc_core.dtypes import dtype_info, to_numpy

from byoc_ccompiler.kernels.row_extremes import extreme_function
from byoc_ccompiler.steps import Step, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["ADD_PIECE", "PIECE", "REDUCTIONS", "WHOLE_SUM", "combined", "reduced_axes", "row_function", "start"]

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


_ELEMENT_OPS = {
    "sum": "add",
    "mean": "add",
    "prod": "multiply",
    "any": "logical_or",
    "all": "logical_and",
    "max": "maximum",
    "min": "minimum",
}
"""The elementwise ops that combine two elements; numpy has them under the same names."""


def start(op: str, dtype: str) -> c.Literal:
    """Return the neutral element of a reduction."""
    value: float = int(op in ("prod", "all", "min"))
    if op in ("max", "min") and dtype != "bool":
        if dtype.startswith("float"):
            value = float("-inf" if op == "max" else "inf")
        else:
            limits = np.iinfo(dtype)
            value = int(limits.min if op == "max" else limits.max)
    return c.Literal(value, c.CType(dtype))


def combined(op: str, left: c.Expression, right: c.Expression) -> c.Expression:
    """Return two elements, literals or variables, combined by a reduction."""
    return c.Element(_ELEMENT_OPS[op], (left, right), left.type)


def row_function(unit: VectorUnit, op: str, dtype: str) -> c.Callee:
    """Return the C function ``(const T *x, int64_t count)`` that combines elements side by side."""
    op = "sum" if op == "mean" else op
    define = _float_function if dtype in ("float32", "float64") else _plain_function
    first, combine = to_numpy(dtype).type(start(op, dtype).value), getattr(np, _ELEMENT_OPS[op])

    def evaluate(x: Any, count: int) -> Any:
        return combine.reduce(x[:count], dtype=x.dtype, initial=first)

    return c.Callee(_name(op, dtype), evaluate, definition=define(unit, op, dtype))


def _name(op: str, dtype: str) -> str:
    return f"vec_row_{op}_{'b8' if dtype == 'bool' else c_suffix(dtype)}"


def _start(op: str, dtype: str) -> str:
    return c_literal(start(op, dtype).value, dtype)


def _combine(op: str, dtype: str, left: str, right: str) -> str:
    """Return the C expression that combines two elements, or two vectors of floats."""
    text = scalar_expression(_ELEMENT_OPS[op], [left, right], [dtype, dtype], dtype, {})
    assert text is not None
    return without_parentheses(text)


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


def _add_piece(total: Any, piece: Any) -> None:
    whole = total[0] + piece
    large, small = (total[0], piece) if abs(total[0]) >= abs(piece) else (piece, total[0])
    total[1] += (large - whole) + small
    total[0] = whole


def _whole_sum(total: Any) -> Any:
    return total[0] + total[1] if np.isfinite(total[1]) else total[0]


ADD_PIECE = c.Callee("vec_add_piece", _add_piece, writes=(0,), definition=_LONG_SUM, flops=6)
"""The C function ``(double *total, double piece)`` that adds to a sum of two parts."""

WHOLE_SUM = c.Callee("vec_whole_sum", _whole_sum, definition=_LONG_SUM, flops=1)
"""The C function ``(const double *total)`` that adds up the two parts."""


def _plain_function(_unit: VectorUnit, op: str, dtype: str) -> str:
    """Gives a loop that the compiler vectorises by itself: the order of integers does not matter."""
    ctype = c_type(dtype)
    return f"""
static inline {ctype} {_name(op, dtype)}(const {ctype} *x, int64_t count) {{
  {ctype} total = {_start(op, dtype)};
  for (int64_t k = 0; k < count; ++k) total = {_combine(op, dtype, "total", "x[k]")};
  return total;
}}
"""


def _float_function(unit: VectorUnit, op: str, dtype: str) -> str:
    """Gives the function for floats, and the one it calls for rows that fill less than a register."""
    ctype, lanes, name = c_type(dtype), unit.lanes(dtype), _name(op, dtype)
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
    for (int v = 0; v < 4; ++v) acc[v] = ({whole.vector}){{0}} + {_start(op, dtype)};
{_walk(unit, whole)}
    for (; k + {lanes} <= count; k += {lanes}) acc[0] = {whole.both("acc[0]", whole.load("x + k"))};
    if (k < count) acc[1] = {whole.both("acc[1]", whole.last("x", "count", "k"))};
    acc[0] = {whole.both("acc[0]", "acc[1]")};
    acc[2] = {whole.both("acc[2]", "acc[3]")};
    acc[0] = {whole.both("acc[0]", "acc[2]")};
    return {whole.fold("acc[0]")};
  }}{calls}
  {ctype} total = {_start(op, dtype)};
  for (int64_t k = 0; k < count; ++k) total = {_combine(op, dtype, "total", "x[k]")};
  return total;
}}
"""


def _walk(unit: VectorUnit, register: _Register) -> str:
    """Gives the loop over four registers at a time."""
    lanes, vector = register.lanes, register.vector
    wide = 4 * lanes
    each, fetch = "BYOC_UNROLL\n      for (int v = 0; v < 4; ++v)", _fetch(unit)
    element = register.load(f"x + k + v * {lanes}")
    if register.op == "sum" and wide * _ROUNDS < PIECE:
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
    ctype, name = c_type(register.dtype), f"{_name(register.op, register.dtype)}_{register.lanes}"
    vector, neutral = register.vector, _start(register.op, register.dtype)
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
        self._name = f"{_name(op, dtype)}_of_{lanes}"
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
  const {vector} neutral = ({vector}){{0}} + {_start(self.op, self.dtype)};
  return ({vector})((fresh & ({mask})x) | (~fresh & ({mask})neutral));
}}
"""
        lines = []
        width = self.lanes // 2
        while width:
            order = ", ".join(str((lane + width) % self.lanes) for lane in range(self.lanes))
            lines.append(f"  x = {self.both('x', f'BYOC_SHUFFLE(x, x, {order})')};")
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
        return _combine(self.op, self.dtype, left, right)

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
