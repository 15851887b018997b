"""What combines elements: the reductions' neutral elements and operations, and C functions that combine a row.

Sums of long rows are made of pieces, see :data:`~byoc_ccompiler.kernels.row_functions.PIECE`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.csource import c_literal, c_suffix, c_type, scalar_expression, without_parentheses
from byoc_core.dtypes import to_numpy

from byoc_ccompiler.kernels.row_functions import extreme_function, total_function
from byoc_ccompiler.steps import Step, shape_of
from byoc_ccompiler.vector_unit import VectorUnit

__all__ = ["ADD_PIECE", "REDUCTIONS", "WHOLE_SUM", "combined", "reduced_axes", "row_function", "start"]

_ELEMENT_OPS = {"sum": "add", "mean": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
_ELEMENT_OPS |= {"any": "logical_or", "all": "logical_and"}
"""The elementwise ops that combine two elements; numpy has them under the same names."""

REDUCTIONS = frozenset(_ELEMENT_OPS)
"""The reductions that row kernels compute."""

_DOUBLE = c.CType("float64")


def reduced_axes(step: Step) -> tuple[int, ...]:
    """Return the axes that a reduction reduces, ascending."""
    rank, axes = len(shape_of(step.operands[0])), step.binding.attrs["axis"]
    if not isinstance(axes, tuple):
        return tuple(range(rank))
    return tuple(sorted(int(str(axis)) % rank for axis in axes))


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
        definition = extreme_function(unit, name, dtype, op)
    else:
        definition = total_function(unit, name, dtype, "+" if op == "sum" else "*", c_literal(none, dtype))
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


def _add_piece() -> c.Function:
    """Return the function that adds to a sum of two parts: rounded, and what is lost (Neumaier's form of Kahan's)."""
    total, piece = c.Buffer("total", "float64", c.MemoryAccess.WRITE, 2), c.Variable("piece", _DOUBLE)
    before, whole = c.Variable("before", _DOUBLE), c.Variable("whole", _DOUBLE)
    sizes = (c.Element("abs", (one,), _DOUBLE) for one in (before, piece))
    lost = c.Select(c.Binary(">=", *sizes), (before - whole) + piece, (piece - whole) + before)
    sums = (c.Store(total, c.Size(1), total[1] + lost), c.Store(total, c.Size(0), whole))
    return c.Function("add_piece", (total, piece), (c.Let(before, total[0]), c.Let(whole, before + piece), *sums))


def _whole_sum() -> c.Function:
    """Return the function that adds up the two parts; infinities and NaN leave no sense in what was lost."""
    total, is_finite = c.Buffer("total", "float64", size=2), c.Callee("isfinite", np.isfinite)
    whole = c.Select(c.Call(is_finite, (total[1],), c.BOOL), total[0] + total[1], total[0])
    return c.Function("whole_sum", (total,), (c.Return(whole),), _DOUBLE)


ADD_PIECE, WHOLE_SUM = _add_piece(), _whole_sum()
"""Functions ``(double *total, double piece)`` and ``(const double *total)`` on a sum of two parts."""
