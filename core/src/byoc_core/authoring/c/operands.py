"""Operands of expressions, and expressions with other operands."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

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

__all__ = ["operands_of", "rebuilt"]

_FOLDED: Mapping[str, Callable[[Expression, Expression], Expression]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


def operands_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the expressions that an expression computes with, in the order in which the text has them."""
    match expression:
        case Load() | Address():
            return (expression.index,)
        case Unary() | Cast() | Broadcast():
            return (expression.operand,)
        case Binary() | Shuffle():
            return (expression.left, expression.right)
        case Select():
            return (expression.condition, expression.then, expression.otherwise)
        case Lane():
            return (expression.operand, expression.index)
        case Element():
            return expression.operands
        case Call():
            return expression.arguments
        case Raw():
            return expression.reads
    return ()


def rebuilt(expression: Expression, operands: tuple[Expression, ...]) -> Expression:
    """Return an expression with other operands, folded as Python's operators fold."""
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
