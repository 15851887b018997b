"""The elementwise ops as C expressions, with the meaning of the reference kernels.

One table: op name to a function from (operand expressions, operand dtypes, result dtype, attributes) to an
expression, or ``None`` where C of these dtypes is not offered. Expressions use ``byoc_scalar.h``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from byoc_core.authoring.csource_types import C_TYPES, c_literal, c_suffix, c_type

__all__ = ["SCALAR_OPS", "scalar_expression", "without_parentheses"]

Attrs = Mapping[str, Any]
Expression = Callable[[Sequence[str], Sequence[str], str, Attrs], str | None]


def _is_float(dtype: str) -> bool:
    return dtype in ("float32", "float64")


def _operator(symbol: str, function: str, for_bool: str | None = None) -> Expression:
    """Gives an operator on floats, a wrapping function on integers, and a logical operator on bools."""

    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        if dtypes[0] == "bool":
            return f"({values[0]} {for_bool} {values[1]})" if for_bool else None
        if _is_float(dtypes[0]):
            return f"({values[0]} {symbol} {values[1]})"
        return f"byoc_{function}_{c_suffix(dtypes[0])}({values[0]}, {values[1]})"

    return expression


def _extremum(function: str, for_bool: str) -> Expression:
    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        if dtypes[0] == "bool":
            return f"({values[0]} {for_bool} {values[1]})"
        return f"byoc_{function}_{c_suffix(dtypes[0])}({values[0]}, {values[1]})"

    return expression


def _comparison(symbol: str) -> Expression:
    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        return f"({values[0]} {symbol} {values[1]})"

    return expression


def _libm(function: str) -> Expression:
    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        if not _is_float(dtypes[0]):
            return None
        return f"{function}{'f' if dtypes[0] == 'float32' else ''}({', '.join(values)})"

    return expression


def _power(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if _is_float(dtypes[0]):
        return _libm("pow")(values, dtypes, result, attrs)
    return None if dtypes[0] == "bool" else f"byoc_power_{c_suffix(dtypes[0])}({values[0]}, {values[1]})"


def _negative(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if _is_float(dtypes[0]):
        return f"(-{values[0]})"
    return f"byoc_negative_{c_suffix(dtypes[0])}({values[0]})" if dtypes[0].startswith("int") else None


def _abs(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if _is_float(dtypes[0]):
        return _libm("fabs")(values, dtypes, result, attrs)
    return None if dtypes[0] == "bool" else f"byoc_abs_{c_suffix(dtypes[0])}({values[0]})"


def _float_function(function: str) -> Expression:
    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        return f"byoc_{function}_{c_suffix(dtypes[0])}({values[0]})" if _is_float(dtypes[0]) else None

    return expression


def _relu(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return None if dtypes[0] == "bool" else f"byoc_relu_{c_suffix(dtypes[0])}({values[0]})"


def _leaky_relu(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if not _is_float(dtypes[0]):
        return None
    return f"({values[0]} < 0 ? {values[0]} * {c_literal(attrs['alpha'], dtypes[0])} : {values[0]})"


def _gelu(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    name = "gelu" if attrs["approximate"] == "none" else "gelu_tanh"
    return _float_function(name)(values, dtypes, result, attrs)


def _clip(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if dtypes[0] == "bool":
        return None
    text, suffix = values[0], c_suffix(dtypes[0])
    if attrs["min"] is not None:
        text = f"byoc_maximum_{suffix}({text}, {c_literal(attrs['min'], dtypes[0])})"
    if attrs["max"] is not None:
        text = f"byoc_minimum_{suffix}({text}, {c_literal(attrs['max'], dtypes[0])})"
    return text


def _cast(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return f"({values[0]} != 0)" if result == "bool" else f"({c_type(result)}){values[0]}"


def _where(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return f"({values[0]} ? {values[1]} : {values[2]})"


def _not(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return f"(!{values[0]})"


SCALAR_OPS: Mapping[str, Expression] = {
    "add": _operator("+", "add", "|"),
    "subtract": _operator("-", "subtract"),
    "multiply": _operator("*", "multiply", "&"),
    "divide": _operator("/", "divide"),
    "maximum": _extremum("maximum", "|"),
    "minimum": _extremum("minimum", "&"),
    "power": _power,
    "equal": _comparison("=="),
    "less": _comparison("<"),
    "less_equal": _comparison("<="),
    "greater": _comparison(">"),
    "greater_equal": _comparison(">="),
    "logical_and": _comparison("&"),
    "logical_or": _comparison("|"),
    "logical_not": _not,
    "negative": _negative,
    "abs": _abs,
    "exp": _float_function("exp"),
    "log": _libm("log"),
    "sqrt": _libm("sqrt"),
    "tanh": _float_function("tanh"),
    "erf": _libm("erf"),
    "sigmoid": _float_function("sigmoid"),
    "clip": _clip,
    "cast": _cast,
    "where": _where,
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky_relu,
    "nn.gelu": _gelu,
}
"""The elementwise ops that generated C knows."""


def scalar_expression(op: str, values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    """Gives the C expression of one element, or ``None`` where the op or a dtype has none.

    Args:
        op: the op's name.
        values: operand expressions: names or literals, evaluated more than once perhaps.
        dtypes: operand dtypes.
        result: the result's dtype.
        attrs: the op's attributes.
    """
    expression = SCALAR_OPS.get(op)
    if expression is None or result not in C_TYPES or any(dtype not in C_TYPES for dtype in dtypes):
        return None
    return expression(values, dtypes, result, attrs)


def without_parentheses(expression: str) -> str:
    """Gives an expression without the pair of parentheses that encloses all of it, where there is one."""
    if not (expression.startswith("(") and expression.endswith(")")):
        return expression
    depth = 0
    for position, character in enumerate(expression):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(expression) - 1:
            return expression
    return expression[1:-1]
