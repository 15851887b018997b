"""The elementwise ops as C expressions, with the meaning of the reference kernels.

The table maps an op name to a function from (operand expressions, operand dtypes, result dtype, attributes) to an
expression, or to ``None`` if these dtypes have no C form. Expressions use ``byoc_scalar.h``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from byoc_core.authoring.csource_types import C_TYPES, HALF_DTYPES, c_literal, c_suffix, c_type

__all__ = ["SCALAR_OPS", "scalar_expression", "without_parentheses"]

Attrs = Mapping[str, Any]
Expression = Callable[[Sequence[str], Sequence[str], str, Attrs], str | None]

_FLOATS = ("float32", "float64")


def _operator(symbol: str, function: str, for_bool: str | None = None) -> Expression:
    """Return an operator on floats, a wrapping function on integers, and a logical operator on bools."""

    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        if dtypes[0] == "bool":
            return f"({values[0]} {for_bool} {values[1]})" if for_bool else None
        if dtypes[0] in _FLOATS:
            return f"({values[0]} {symbol} {values[1]})"
        return f"byoc_{function}_{c_suffix(dtypes[0])}({values[0]}, {values[1]})"

    return expression


def _function(name: str, *, floats: bool = True, integers: bool = False) -> Expression:
    """Return a function of ``byoc_scalar.h``, available for floats, for integers, or for both."""

    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        if dtypes[0] == "bool" or not (floats if dtypes[0] in _FLOATS else integers):
            return None
        return f"byoc_{name}_{c_suffix(dtypes[0])}({', '.join(values)})"

    return expression


def _infix(symbol: str) -> Expression:
    """Return an operator available in C for every dtype: comparisons, the logic of bools, bitwise logic."""

    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        return f"({values[0]} {symbol} {values[1]})"

    return expression


def _bitwise(symbol: str) -> Expression:
    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        return None if dtypes[0] in (*_FLOATS, "bool") else f"(({c_type(result)})({values[0]} {symbol} {values[1]}))"

    return expression


def _bitwise_not(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return None if dtypes[0] in (*_FLOATS, "bool") else f"(({c_type(result)})~{values[0]})"


def _extremum(function: str, for_bool: str) -> Expression:
    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        if dtypes[0] == "bool":
            return f"({values[0]} {for_bool} {values[1]})"
        return f"byoc_{function}_{c_suffix(dtypes[0])}({values[0]}, {values[1]})"

    return expression


def _libm(function: str) -> Expression:
    """Return a function of the C library, for floats."""

    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        if dtypes[0] not in _FLOATS:
            return None
        return f"{function}{'f' if dtypes[0] == 'float32' else ''}({', '.join(values)})"

    return expression


def _trigonometric(function: str) -> Expression:
    """Return a function of ``byoc_trigonometry_f32.h`` for float32, of the C library for float64."""

    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        name = {"float32": f"byoc_{function}_f32", "float64": function}.get(dtypes[0])
        return name and f"{name}({', '.join(values)})"

    return expression


def _negative(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if dtypes[0] in _FLOATS:
        return f"(-{values[0]})"
    return f"byoc_negative_{c_suffix(dtypes[0])}({values[0]})" if dtypes[0].startswith("int") else None


def _mod(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return _function("fmod" if attrs["fmod"] else "mod", integers=True)(values, dtypes, result, attrs)


def _isnan(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return f"({values[0]} != {values[0]})" if dtypes[0] in _FLOATS else None


def _isinf(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if dtypes[0] not in _FLOATS:
        return None
    tests = [
        *([f"({values[0]} == -INFINITY)"] if attrs["detect_negative"] else []),
        *([f"({values[0]} == INFINITY)"] if attrs["detect_positive"] else []),
    ]
    # If neither sign counts, read the operand all the same: generated code has no unused parameters.
    return f"({' | '.join(tests) or f'({values[0]} == 0) & 0'})"


def _leaky_relu(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return _function("prelu")([values[0], c_literal(attrs["alpha"], dtypes[0])], dtypes, result, attrs)


def _gelu(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    name = "gelu" if attrs["approximate"] == "none" else "gelu_tanh"
    return _function(name)(values, dtypes, result, attrs)


def _scaled(name: str, *attributes: str) -> Expression:
    """Return an activation with attributes as last arguments, rounded to the dtype of the operand."""

    def expression(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
        literals = [c_literal(attrs[attribute], dtypes[0]) for attribute in attributes]
        return _function(name)([*values, *literals], dtypes, result, attrs)

    return expression


def _selu(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    scales = [c_literal(scale, dtypes[0]) for scale in (attrs["gamma"], attrs["gamma"] * attrs["alpha"])]
    return _function("selu")([*values, *scales], dtypes, result, attrs)


def _hard_sigmoid(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    line = [c_literal(attrs[name], "float64") for name in ("alpha", "beta")]
    return _function("hard_sigmoid")([*values, *line], dtypes, result, attrs)


def _threshold(value: float, dtype: str) -> str:
    """Return the largest number of a dtype not above a value: the same numbers lie above both."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(value, np.float64).astype(dtype)
        is_above = float(rounded) > value
        return c_literal(np.nextafter(rounded, -np.inf, dtype=dtype) if is_above else rounded, dtype)


def _thresholded_relu(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if dtypes[0] not in _FLOATS:
        return None
    return f"({values[0]} <= {_threshold(attrs['alpha'], dtypes[0])} ? 0 : {values[0]})"


def _shrink(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if dtypes[0] not in _FLOATS:
        return None
    limits = [_threshold(attrs["lambd"], dtypes[0]), c_literal(attrs["bias"], "float64")]
    return _function("shrink")([*values, *limits], dtypes, result, attrs)


def _clip(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if dtypes[0] == "bool":
        return None
    text, suffix = values[0], c_suffix(dtypes[0])
    for name, any_limit, number in (("min", "maximum", "at_least"), ("max", "minimum", "at_most")):
        limit = attrs[name]
        if limit is not None:
            is_number = dtypes[0] in _FLOATS and not math.isnan(limit)
            text = f"byoc_{number if is_number else any_limit}_{suffix}({text}, {c_literal(limit, dtypes[0])})"
    return text


def _cast(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    (text,), (source,) = values, dtypes
    if source == result:
        return text
    if source in HALF_DTYPES:
        text, source = f"byoc_{c_suffix(source)}_to_f32({text})", "float32"
    if result in HALF_DTYPES:
        return f"byoc_{_HALF_SOURCES.get(source, 'f32')}_to_{c_suffix(result)}({text})"
    if source == result:
        return text
    return f"({text} != 0)" if result == "bool" else f"({c_type(result)}){text}"


_HALF_SOURCES = {
    **dict.fromkeys(["float64", "int32", "uint32"], "f64"),
    "int64": "i64",
    "uint64": "u64",
}
"""The source type for rounding a dtype to a half, if float32 does not hold all numbers of the dtype."""


def _where(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    if result in HALF_DTYPES:
        return f"byoc_where_{c_suffix(result)}({', '.join(values)})"
    return f"({values[0]} ? {values[1]} : {values[2]})"


def _not(values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    return f"(!{values[0]})"


_HALF_OPS = frozenset({"cast", "where"})

SCALAR_OPS: Mapping[str, Expression] = {
    "add": _operator("+", "add", "|"),
    "subtract": _operator("-", "subtract"),
    "multiply": _operator("*", "multiply", "&"),
    "divide": _operator("/", "divide"),
    "maximum": _extremum("maximum", "|"),
    "minimum": _extremum("minimum", "&"),
    "power": _function("power", integers=True),
    "mod": _mod,
    "equal": _infix("=="),
    "not_equal": _infix("!="),
    "less": _infix("<"),
    "less_equal": _infix("<="),
    "greater": _infix(">"),
    "greater_equal": _infix(">="),
    "logical_and": _infix("&"),
    "logical_or": _infix("|"),
    "logical_xor": _infix("^"),
    "logical_not": _not,
    "bitwise_and": _bitwise("&"),
    "bitwise_or": _bitwise("|"),
    "bitwise_xor": _bitwise("^"),
    "bitwise_not": _bitwise_not,
    "left_shift": _function("left_shift", floats=False, integers=True),
    "right_shift": _function("right_shift", floats=False, integers=True),
    "isnan": _isnan,
    "isinf": _isinf,
    "negative": _negative,
    "abs": _function("abs", integers=True),
    "sign": _function("sign", integers=True),
    "reciprocal": _function("reciprocal"),
    "floor": _libm("floor"),
    "ceil": _libm("ceil"),
    "round": _libm("rint"),
    "sqrt": _libm("sqrt"),
    "exp": _function("exp"),
    "log": _function("log"),
    "tanh": _function("tanh"),
    "erf": _function("erf"),
    "sigmoid": _function("sigmoid"),
    "clip": _clip,
    "cast": _cast,
    "where": _where,
    **{name: _trigonometric(name) for name in ("sin", "cos", "tan", "asin", "acos", "atan")},
    **{name: _trigonometric(name) for name in ("sinh", "cosh", "asinh", "acosh", "atanh")},
    "nn.relu": _function("relu", integers=True),
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _function("prelu", integers=True),
    "nn.thresholded_relu": _thresholded_relu,
    "nn.shrink": _shrink,
    "nn.gelu": _gelu,
    "nn.softplus": _function("softplus"),
    "nn.softsign": _function("softsign"),
    "nn.mish": _function("mish"),
    "nn.hard_swish": _function("hard_swish"),
    "nn.hard_sigmoid": _hard_sigmoid,
    "nn.swish": _scaled("swish", "alpha"),
    "nn.elu": _scaled("elu", "alpha"),
    "nn.celu": _scaled("celu", "alpha"),
    "nn.selu": _selu,
}
"""The elementwise ops supported by generated C: all of the core's."""


def scalar_expression(op: str, values: Sequence[str], dtypes: Sequence[str], result: str, attrs: Attrs) -> str | None:
    """Return the C expression of an element, or ``None`` if the op or a dtype has none.

    Halves are only cast, and selected by ``where``.

    Args:
        op: the op's name.
        values: operand expressions: names or literals, possibly evaluated more than once.
        dtypes: operand dtypes.
        result: the result's dtype.
        attrs: the op's attributes.
    """
    expression = SCALAR_OPS.get(op)
    if expression is None or any(dtype not in C_TYPES for dtype in (*dtypes, result)):
        return None
    if op not in _HALF_OPS and any(dtype in HALF_DTYPES for dtype in (*dtypes, result)):
        return None
    return expression(values, dtypes, result, attrs)


def without_parentheses(expression: str) -> str:
    """Return an expression without the pair of parentheses around the whole expression, if any."""
    if not (expression.startswith("(") and expression.endswith(")")):
        return expression
    depth = 0
    for position, character in enumerate(expression):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(expression) - 1:
            return expression
    return expression[1:-1]
