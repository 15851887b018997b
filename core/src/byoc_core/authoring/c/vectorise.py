"""Vectorisation by lanes: rounds of a loop side by side in vector registers."""

from __future__ import annotations

from dataclasses import replace

from byoc_core.authoring.c.expressions import (
    ARITHMETIC,
    BITWISE,
    Binary,
    Cast,
    Element,
    Expression,
    Literal,
    Load,
    Select,
    Size,
    Unary,
    Variable,
)
from byoc_core.authoring.c.loops import peeled
from byoc_core.authoring.c.operands import operands_of
from byoc_core.authoring.c.statements import Assign, Block, Declare, For, Let, LoopKind, Statement, Store
from byoc_core.authoring.c.strides import stride_of
from byoc_core.authoring.c.traversal import variables_in
from byoc_core.authoring.c.types import INDEX
from byoc_core.authoring.c.vectors import Broadcast
from byoc_core.authoring.csource_types import COMPUTED_DTYPES
from byoc_core.errors import InternalError

__all__ = ["vectorised"]

_VECTOR_DTYPES = tuple(dtype for dtype in COMPUTED_DTYPES if dtype != "bool")
"""The dtypes with vectors in C: a bool is a byte with value 0 or 1, a half a structure."""

_OPERATORS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
"""Elementwise ops equivalent to operators on floats."""


def vectorised(loop: For, lanes: int) -> Block:
    """Return a loop running several rounds at a time, and a loop over the remaining rounds.

    Each lane computes the values of its round, so the results have the same bits. Loads and stores with offsets growing
    by 1 from round to round become loads and stores of vectors; values equal in all rounds are broadcast.

    Args:
        loop: has independent rounds; goes from 0 in steps of 1.
        lanes: elements of a vector, 2 or more.

    Raises:
        InternalError: a part of the body has no vector form.
    """
    if lanes < 2:
        raise InternalError(f"loop over `{loop.index.name}`", "has too few lanes for vectors", got=str(lanes))
    main, *rest = peeled(loop, lanes)
    assert isinstance(main, For)
    body = _Vectoriser(main.index, lanes).block(main.body)
    return (replace(main, body=body, step=lanes, kind=LoopKind.SERIAL), *rest)


class _Vectoriser:
    """A translator of the body of a loop into a body for several rounds."""

    def __init__(self, index: Variable, lanes: int) -> None:
        self._index = index
        self._lanes = lanes
        self._vectors: dict[Variable, Variable] = {}

    def block(self, block: Block) -> Block:
        """Return the block running several rounds."""
        return tuple(self._statement(statement) for statement in block)

    def _statement(self, statement: Statement) -> Statement:
        match statement:
            case Let(variable, value) | Declare(variable, value):
                if self._is_same(value) and isinstance(statement, Let):
                    return statement
                vector = Variable(variable.name, variable.type.with_lanes(self._lanes))
                self._vectors[variable] = vector
                return type(statement)(vector, self._vector(value))
            case Assign(variable, value) if variable in self._vectors:
                return Assign(self._vectors[variable], self._vector(value))
            case Store(buffer, index, value):
                if not self._is_contiguous(index):
                    raise self._error("a store to non-contiguous elements")
                return Store(buffer, index, self._vector(value))
            case For() if self._is_same(statement.start) and self._is_same(statement.stop):
                return replace(statement, body=self.block(statement.body))
        raise self._error(type(statement).__name__)

    def _is_same(self, expression: Expression) -> bool:
        """Return whether an expression has the same value in all rounds."""
        if expression is self._index or (isinstance(expression, Variable) and expression in self._vectors):
            return False
        return all(self._is_same(operand) for operand in operands_of(expression))

    def _is_contiguous(self, index: Expression) -> bool:
        """Return whether an offset grows by 1 from round to round."""
        is_known = not any(item in self._vectors for item in variables_in(index))
        return is_known and stride_of(index, self._index) == 1

    def _vector(self, expression: Expression) -> Expression:
        """Return the values of an expression in the rounds, a round in each lane."""
        if self._is_same(expression) and expression.type.dtype in _VECTOR_DTYPES:
            if isinstance(expression, Literal):
                return Literal(expression.value, expression.type.with_lanes(self._lanes))
            return Broadcast(expression, self._lanes)
        match expression:
            case Variable() if expression in self._vectors:
                return self._vectors[expression]
            case Load(buffer, index, 1) if self._is_contiguous(index) and buffer.dtype in _VECTOR_DTYPES:
                return Load(buffer, index, self._lanes)
            case Unary("-", operand):
                return Unary("-", self._vector(operand))
            case Binary(operator, left, right) if left.type != INDEX and operator in (*ARITHMETIC, *BITWISE):
                return Binary(operator, self._vector(left), self._vector(right))
            case Element(op, (left, right), type_, _) if op in _OPERATORS and type_.is_float:
                return Binary(_OPERATORS[op], self._vector(left), self._vector(right))
            case Element("negative", (operand,), type_, _) if type_.is_float:
                return Unary("-", self._vector(operand))
        raise self._error(_described(expression))

    def _error(self, subject: str) -> InternalError:
        return InternalError(f"loop over `{self._index.name}`", f"has no vector form for {subject}")


def _described(expression: Expression) -> str:
    match expression:
        case Element(op, _, type_, _):
            return f"op `{op}` of {type_}"
        case Load(buffer, _, _):
            return f"a load from `{buffer.name}` of other than contiguous numbers"
        case Select() | Cast() | Size():
            return type(expression).__name__
    return type(expression).__name__
