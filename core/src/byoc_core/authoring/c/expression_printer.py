"""Expressions as C text, with the parentheses required by precedence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from byoc_core.authoring.c.expressions import (
    BITWISE,
    COMPARISONS,
    LOGIC,
    Address,
    Binary,
    Buffer,
    Call,
    Cast,
    Element,
    Expression,
    Literal,
    Load,
    Raw,
    Select,
    Size,
    Unary,
    Variable,
)
from byoc_core.authoring.c.naming import Names
from byoc_core.authoring.c.targets import Target
from byoc_core.authoring.c.types import CType
from byoc_core.authoring.c.vectors import Broadcast, Lane, Shuffle
from byoc_core.authoring.csource_scalars import scalar_expression, without_parentheses
from byoc_core.authoring.csource_types import c_literal, c_suffix, c_type
from byoc_core.errors import InternalError
from byoc_core.native.c_text import c_dim

__all__ = ["ExpressionPrinter", "has_c_form", "quotient", "type_name"]

_ATOM, _UNARY, _LEAST = 16, 15, 0
_PRECEDENCE = {
    **dict.fromkeys(("*", "/", "%"), 13),
    **dict.fromkeys(("+", "-"), 12),
    **dict.fromkeys(("<<", ">>"), 11),
    **dict.fromkeys(("<", "<=", ">", ">="), 10),
    **dict.fromkeys(("==", "!="), 9),
    "&": 8,
    "^": 7,
    "|": 6,
    "&&": 5,
    "||": 4,
}
_SELECT = 3
_BITWISE = ("&", "|", "^")
_PARENTHESISED_OPERATORS = {*BITWISE, *LOGIC}
"""Operators of little-known precedence: compilers warn if another operator is an operand."""


def type_name(type_: CType) -> str:
    """Return the C type of a value."""
    return c_type(type_.dtype) if type_.lanes == 1 else f"vec_{c_suffix(type_.dtype)}x{type_.lanes}"


def quotient(index: Expression, divisor: int) -> Expression:
    """Return an offset divided by a divisor of the offset: exact if shown by its terms, else with C's division."""
    match index:
        case Size(int(number)) if number % divisor == 0:
            return Size(number // divisor)
        case Binary("*", left, Size(int(number))) if number % divisor == 0:
            return left * (number // divisor)
        case Binary("+", left, right):
            return quotient(left, divisor) + quotient(right, divisor)
    return index // divisor


class ExpressionPrinter:
    """A printer of expressions.

    Args:
        target: the dialect.
        names: the known names.
        vector_arrays: the lanes of local arrays of vectors.
    """

    def __init__(self, target: Target, names: Names, vector_arrays: dict[object, int]) -> None:
        self._target = target
        self._names = names
        self._vector_arrays = vector_arrays

    def text(self, expression: Expression, least: int = _LEAST) -> str:
        """Return the text of an expression.

        Args:
            expression: the expression.
            least: the lowest precedence without parentheses around the text.
        """
        text, precedence = self._print(expression)
        if least == _LEAST:
            return without_parentheses(text)
        return text if precedence >= least else f"({text})"

    def atom(self, expression: Expression) -> str:
        """Return the text of an expression as an operand of any operator."""
        return self.text(expression, _ATOM)

    def pointer(self, expression: Address) -> str:
        """Return the text of a pointer, for an argument or a sum."""
        return self.offset(expression.buffer, expression.index)

    def offset(self, buffer: Buffer, index: Expression) -> str:
        """Return the text of a pointer to an element of a buffer, as a sum."""
        name, (text, precedence) = self._names[buffer], self._print(index)
        if index == Size(0):
            return name
        return f"{name} + {without_parentheses(text) if precedence >= _PRECEDENCE['+'] else f'({text})'}"

    def element_text(self, buffer: object, index: Expression, type_: CType, *, is_store: bool) -> str:
        """Return the text of elements in memory."""
        name = self._names[buffer]  # type: ignore[index]
        lanes = self._vector_arrays.get(buffer)
        if lanes is not None:
            if type_.lanes != lanes:
                raise InternalError(f"array `{name}`", "holds vectors", got=str(type_), expected=f"{lanes} lanes")
            return f"{name}[{self.text(quotient(index, lanes))}]"
        if type_.lanes == 1:
            return f"{name}[{self.text(index)}]"
        pointer = f"{name}" if index == Size(0) else f"({name} + {self.text(index, 12)})"
        const = "" if is_store else "const "
        return f"*({const}{type_name(type_)}u *){pointer}"

    def _print(self, expression: Expression) -> tuple[str, int]:
        match expression:
            case Variable():
                return self._names[expression], _ATOM
            case Size(dim):
                return c_dim(dim), _ATOM
            case Literal(value, type_):
                return self._literal(value, type_), _ATOM
            case Load(buffer, index, _):
                text = self.element_text(buffer, index, expression.type, is_store=False)
                return text, _UNARY if text.startswith("*") else _ATOM
            case Address():
                text = self.pointer(expression)
                return text, _ATOM if text.isidentifier() else 12
            case Unary(operator, operand):
                inner = self.text(operand, _UNARY)
                return f"{operator}({inner})" if inner.startswith(operator) else f"{operator}{inner}", _UNARY
            case Cast():
                return self._cast(expression)
            case Binary():
                return self._binary(expression), _PRECEDENCE[expression.operator]
            case Select(condition, then, otherwise) if then.type.lanes > 1:
                texts = map(self._argument, (condition, then, otherwise))
                return f"BYOC_SELECT({type_name(then.type)}, {', '.join(texts)})", _ATOM
            case Select(condition, then, otherwise):
                parts = [self.text(item, _SELECT + 1) for item in (condition, then, otherwise)]
                if isinstance(condition, Binary) and condition.operator in _BITWISE:
                    parts[0] = self.atom(condition)  # clang warns without parentheses
                return "{} ? {} : {}".format(*parts), _SELECT
            case Element():
                return c_form(expression, [self.atom(item) for item in expression.operands]), _UNARY
            case _:
                return self._print_rest(expression)

    def _cast(self, cast: Cast) -> tuple[str, int]:
        operand, type_ = cast.operand, cast.type
        if type_.lanes > 1:
            # A cast between vectors reinterprets the bytes as the other type.
            return f"__builtin_convertvector({self.text(operand)}, {type_name(type_)})", _ATOM
        if type_.dtype == "bool" and operand.type.dtype != "bool":
            return f"{self.text(operand, _PRECEDENCE['!='] + 1)} != 0", _PRECEDENCE["!="]
        return f"({type_name(type_)}){self.text(operand, _UNARY)}", _UNARY

    def _print_rest(self, expression: Expression) -> tuple[str, int]:
        match expression:
            case Broadcast(operand, _):
                zeros = self._compound(expression.type, "0")
                if isinstance(operand, Literal) and operand.value == 0 and not np.signbit(operand.value):
                    return zeros, _ATOM
                # A number minus zero is itself, its sign and a NaN included; the sum with zero would lose -0.
                return f"{self.text(operand, 12)} - {zeros}", 12
            case Lane(operand, index):
                return f"{self.atom(operand)}[{self.text(index)}]", _ATOM
            case Shuffle(left, right, order):
                texts = (self._argument(left), self._argument(right), *map(str, order))
                return f"BYOC_SHUFFLE({', '.join(texts)})", _ATOM
            case Call(callee, arguments, _):
                return f"{callee.name}({', '.join(self.text(item) for item in arguments)})", _ATOM
            case Raw(text, _, reads, _):
                return text.format(*(self.atom(item) for item in reads)), _ATOM
        raise InternalError("printer", "unknown expression", got=repr(expression))

    def _argument(self, expression: Expression) -> str:
        """Return the text of a macro argument, without commas outside parentheses."""
        text = self.text(expression)
        return f"({text})" if "{" in text else text

    def _binary(self, expression: Binary) -> str:
        operator, own = expression.operator, _PRECEDENCE[expression.operator]
        texts = []
        for side, operand in enumerate((expression.left, expression.right)):
            # C's vector operators broadcast a scalar on one side into each lane.
            other = (expression.right, expression.left)[side]
            if isinstance(operand, Broadcast) and not isinstance(other, Broadcast):
                operand = operand.operand
            least = own + side
            if isinstance(operand, Binary) and operand.operator != operator and operator in _PARENTHESISED_OPERATORS:
                least = least if operator in LOGIC and operand.operator not in _PARENTHESISED_OPERATORS else _ATOM
            if operator in COMPARISONS and operand.type.dtype == "bool":
                least = _ATOM
            texts.append(self.text(operand, least))
        return f"{texts[0]} {operator} {texts[1]}"

    def _literal(self, value: object, type_: CType) -> str:
        values = value if isinstance(value, tuple) else (value,) * type_.lanes
        elements = [c_literal(item, type_.dtype, self._target.compound) for item in values]
        return elements[0] if type_.lanes == 1 else self._compound(type_, ", ".join(elements))

    def _compound(self, type_: CType, values: str) -> str:
        return self._target.compound.format(type=type_name(type_), values=values)


def c_form(element: Element, values: Sequence[str]) -> str:
    """Return the C text of an elementwise op on one element of each operand.

    Raises:
        InternalError: C has none for the op or the dtypes.
    """
    dtypes = [operand.type.dtype for operand in element.operands]
    text = scalar_expression(element.op, values, dtypes, element.type.dtype, element.attributes)
    if text is None:
        raise InternalError(f"op `{element.op}`", "has no C expression", got=", ".join(dtypes))
    return text


def has_c_form(element: Element) -> bool:
    """Return whether C has an expression for an elementwise op and the dtypes of its operands."""
    dtypes = [operand.type.dtype for operand in element.operands]
    values = [f"v{number}" for number in range(len(dtypes))]
    return scalar_expression(element.op, values, dtypes, element.type.dtype, element.attributes) is not None
