"""Operands of expressions, and expressions with other operands.

Both functions name every class of expressions with operands. A class missing here counts as an expression without
operands: traversals and passes then overlook the reads inside, without an error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from byoc_core.authoring.c.expressions import (
    Address,
    Binary,
    Call,
    Cast,
    Element,
    Expression,
    Load,
    Raw,
    Select,
    Unary,
)
from byoc_core.authoring.c.vectors import Broadcast, Lane, Shuffle

__all__ = ["COMPARE", "operands_of", "rebuilt"]

COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
"""The comparisons of C as Python functions."""

_FOLDED: Mapping[str, Callable[[Expression, Expression], Expression]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


# A table by type, because traversals of all expressions of a source call this most often.
_OPERANDS: Mapping[type[Expression], Callable[[Any], tuple[Expression, ...]]] = {
    **dict.fromkeys((Load, Address), lambda item: (item.index,)),
    **dict.fromkeys((Unary, Cast, Broadcast), lambda item: (item.operand,)),
    **dict.fromkeys((Binary, Shuffle), operator.attrgetter("left", "right")),
    Select: operator.attrgetter("condition", "then", "otherwise"),
    Lane: operator.attrgetter("operand", "index"),
    Element: operator.attrgetter("operands"),
    Call: operator.attrgetter("arguments"),
    Raw: operator.attrgetter("reads"),
}


def operands_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the operands of an expression, in the order of the printed text."""
    found = _OPERANDS.get(type(expression))
    return () if found is None else found(expression)


def rebuilt(expression: Expression, operands: tuple[Expression, ...]) -> Expression:
    """Return an expression with other operands, folded like Python's operators."""
    match expression:
        case Load(buffer, _, lanes):
            return Load(buffer, operands[0], lanes)
        case Address(buffer, _):
            return Address(buffer, operands[0])
        case Unary(symbol, _):
            return Unary(symbol, operands[0])
        case Cast(_, type_):
            return Cast(operands[0], type_)
        case Broadcast(_, lanes):
            return Broadcast(operands[0], lanes)
        case Binary(symbol, _, _):
            return _FOLDED[symbol](*operands) if symbol in _FOLDED else Binary(symbol, *operands)
        case Select():
            return Select(*operands)
        case Lane():
            return Lane(*operands)
        case Shuffle(_, _, order):
            return Shuffle(operands[0], operands[1], order)
        case Element(op, _, type_, attributes):
            return Element(op, operands, type_, attributes)
        case Call(callee, _, result):
            return Call(callee, operands, result)
        case Raw(text, type_, _, evaluate):
            return Raw(text, type_, operands, evaluate)
    return expression
