"""Type rules of expressions, and rules for placeholders in raw texts: parts of the verifier."""

from __future__ import annotations

import string
from collections.abc import Iterator

from byoc_core.authoring.c.expression_printer import has_c_form
from byoc_core.authoring.c.expressions import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    LOGIC,
    Address,
    Binary,
    Cast,
    Element,
    Expression,
    Literal,
    Raw,
    Select,
    Size,
    Unary,
    Variable,
)
from byoc_core.authoring.c.statements import RawStatement
from byoc_core.authoring.c.types import BOOL, INDEX, CType
from byoc_core.authoring.c.vectors import Broadcast, Lane, Shuffle
from byoc_core.authoring.csource_types import C_TYPES, HALF_DTYPES

__all__ = [
    "address_of",
    "c_type_problems",
    "differing_types",
    "is_mask",
    "known_number",
    "placeholder_problems",
    "type_problems",
]


def type_problems(expression: Expression) -> Iterator[str]:
    """Yield the type errors of an expression's operands."""
    match expression:
        case Literal(value, type_):
            yield from c_type_problems(type_)
            if isinstance(value, tuple) and len(value) != type_.lanes:
                yield f"{len(value)} numbers in {type_}"
        case Cast(operand, type_):
            yield from c_type_problems(type_)
            if type_.lanes != operand.type.lanes or not HALF_DTYPES.isdisjoint((type_.dtype, operand.type.dtype)):
                yield f"a cast of {operand.type} to {type_}"
        case Unary(operator, operand):
            yield from _unary(operator, operand.type)
        case Binary():
            yield from _binary(expression)
        case Select(condition, then, otherwise):
            if then.type.lanes > 1:
                yield from _choice_of_lanes(condition, then.type)
            elif condition.type != BOOL:
                yield f"a choice by {condition.type}"
            yield from differing_types(then.type, otherwise.type, "a choice")
            if (address_of(then) is None) != (address_of(otherwise) is None):
                yield "a choice of an address or a value"
        case Broadcast() | Lane() | Shuffle():
            yield from _vector(expression)
        case Element():
            yield from _element(expression)


def is_mask(expression: Expression) -> bool:
    """Return whether an expression is a comparison of vectors; C has no type for the result."""
    return isinstance(expression, Binary) and expression.operator in COMPARISONS and expression.left.type.lanes > 1


def _choice_of_lanes(condition: Expression, type_: CType) -> Iterator[str]:
    """Yield a problem unless a condition compares vectors with as many lanes and as many bytes as the chosen vector."""
    if not isinstance(condition, Binary) or not is_mask(condition):
        yield f"a choice of {type_} by {condition.type}"
    elif (condition.left.type.lanes, condition.left.type.nbytes) != (type_.lanes, type_.nbytes):
        yield f"a choice of {type_} by a comparison of {condition.left.type}"


def _vector(expression: Expression) -> Iterator[str]:
    """Yield the problems of an expression with a vector as result or operand."""
    match expression:
        case Broadcast(operand, lanes):
            if operand.type.lanes != 1 or lanes < 2:
                yield f"{operand.type} in {lanes} lanes"
            else:
                yield from c_type_problems(expression.type)
        case Lane(operand, index):
            number = known_number(index)
            if operand.type.lanes == 1 or index.type != INDEX:
                yield f"lane {index.type} of {operand.type}"
            elif number is not None and not 0 <= number < operand.type.lanes:
                yield f"lane {number} of {operand.type}"
        case Shuffle(left, right, order):
            yield from differing_types(left.type, right.type, "a shuffle")
            if len(order) != left.type.lanes or not all(0 <= lane < 2 * left.type.lanes for lane in order):
                yield f"a shuffle of {left.type} by {order}"


def _unary(operator: str, type_: CType) -> Iterator[str]:
    fits = {"-": type_.is_float or type_.is_integer, "!": type_ == BOOL}
    if not fits.get(operator, type_.is_integer):
        yield f"`{operator}` of {type_}"


def _binary(expression: Binary) -> Iterator[str]:
    operator, left, right = expression.operator, expression.left.type, expression.right.type
    yield from differing_types(left, right, f"`{operator}`")
    if operator in LOGIC:
        is_right = left == BOOL
    elif operator in BITWISE:
        is_right = left.is_integer or left.dtype == "bool"
    elif operator in COMPARISONS:
        is_right = left.dtype not in HALF_DTYPES  # A half is a structure.
    else:
        is_right = operator in ARITHMETIC and (left.is_integer or (left.is_float and operator != "%"))
    if not is_right:
        yield f"`{operator}` of {left}"


def _element(expression: Element) -> Iterator[str]:
    if not all(isinstance(item, Literal | Variable) for item in expression.operands):
        yield f"an operand of `{expression.op}` is neither a literal nor a variable"
    if any(item.type.lanes > 1 for item in (expression, *expression.operands)):
        yield f"`{expression.op}` of vectors"
        return
    if not has_c_form(expression):
        dtypes = ", ".join(item.type.dtype for item in expression.operands)
        yield f"`{expression.op}` has no C expression for {dtypes}"


def placeholder_problems(text: str, raw: Raw | RawStatement) -> Iterator[str]:
    """Yield the problems of the placeholders for names and reads in a raw text."""
    try:
        found = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
    except ValueError:
        yield "raw text has an unmatched brace"
        return
    reads = {str(number) for number in range(len(raw.reads))}
    targets: set[str] = set()
    if isinstance(raw, RawStatement):
        targets |= {f"w{number}" for number in range(len(raw.writes))}
        targets |= {f"d{number}" for number in range(len(raw.declares))}
    for name in sorted(found - reads - targets):
        yield f"raw text has the unknown placeholder {{{name}}}"
    for name in sorted(reads - found):
        yield f"raw text does not use the declared read {{{name}}}"


def c_type_problems(type_: CType) -> Iterator[str]:
    """Yield the problems of a type: C has none for the dtype, or no vector with this number of elements."""
    if type_.dtype not in C_TYPES:
        yield f"C has no type for {type_.dtype}"
    elif type_.lanes != 1 and (
        type_.dtype in ("bool", *HALF_DTYPES) or type_.lanes < 2 or type_.lanes & (type_.lanes - 1)
    ):
        yield f"C has no vector of {type_.lanes} elements of {type_.dtype}"


def differing_types(expected: CType, actual: CType, subject: str) -> Iterator[str]:
    """Yield a problem if two types differ but must be equal."""
    if expected != actual:
        yield f"{subject}: {expected} and {actual}"


def known_number(expression: Expression) -> int | None:
    """Return the value of a constant index, else ``None``."""
    return expression.dim if isinstance(expression, Size) and isinstance(expression.dim, int) else None


def address_of(expression: Expression) -> Address | None:
    """Return an expression as an address, or the first address in a choice of addresses, else ``None``."""
    match expression:
        case Address():
            return expression
        case Select(_, then, otherwise):
            return address_of(then) or address_of(otherwise)
    return None
