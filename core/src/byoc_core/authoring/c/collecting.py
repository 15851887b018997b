"""Dependencies of functions: called C functions, vector types, sizes, words of raw text.

The printer and backends derive from these the headers and definitions of a source, the size parameters of
a function, and the names forbidden to variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from byoc_core.authoring.c.callee import Callee
from byoc_core.authoring.c.expressions import (
    Address,
    Binary,
    Buffer,
    Call,
    Expression,
    Load,
    Raw,
    Select,
    Size,
    Unary,
    Variable,
)
from byoc_core.authoring.c.statements import Declare, Dispatch, Function, Let, LocalArray, RawStatement, Statement
from byoc_core.authoring.c.traversal import expressions_in, statements_in, targets_of
from byoc_core.authoring.c.types import CType
from byoc_core.authoring.c.vectors import Lane
from byoc_core.dims import Dim, symbols_of

__all__ = ["Uses", "uses_of", "vector_types_of"]


@dataclass(frozen=True, slots=True)
class Uses:
    """The dependencies of a function, found in a single traversal of the body.

    Attributes:
        callees: the called C functions, each once, in the order of the calls.
        raw_texts: the raw C texts.
        vector_types: the types of values with several lanes.
        symbols: the symbolic sizes mentioned in the body.
        items: the variables and buffers read or written in the body.
    """

    callees: tuple[Callee, ...]
    raw_texts: tuple[str, ...]
    vector_types: frozenset[CType]
    symbols: frozenset[str]
    items: frozenset[Buffer | Variable]

    @property
    def words(self) -> set[str]:
        """The identifiers in raw texts; no variable may get such a name."""
        texts = (re.sub(r"\{\w*\}", " ", text) for text in self.raw_texts)
        return {word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text, re.ASCII)}


class _Collector:
    """A collector of the dependencies of expressions and statements."""

    def __init__(self) -> None:
        self.callees: dict[Callee, None] = {}
        self.raw_texts: list[str] = []
        self.types: set[CType] = set()
        self.dims: set[Dim] = set()
        self.items: set[Buffer | Variable] = set()

    def expression(self, item: Expression) -> None:
        match item:
            case Variable():
                self.items.add(item)
            case Size(dim):
                if not isinstance(dim, int):
                    self.dims.add(dim)
            case Binary() | Unary() | Select() | Lane():
                pass  # The lanes equal the lanes of the operands, or 1.
            case Load(buffer, _, lanes):
                self.items.add(buffer)
                if lanes > 1:
                    self.types.add(item.type)
            case Address(buffer, _):
                self.items.add(buffer)
            case Call(callee, _, result):
                self.callees[callee] = None
                if result is not None:
                    self.types.add(result)
            case Raw(text):
                self.raw_texts.append(text)
                self.types.add(item.type)
            case _:
                self.types.add(item.type)

    def statement(self, item: Statement) -> None:
        self.items.update(targets_of(item))
        match item:
            case Let(variable, _) | Declare(variable, _):
                self.types.add(variable.type)
            case LocalArray():
                self.types.add(CType(item.buffer.dtype, item.lanes))
            case Dispatch():
                self.dims.update((item.count, item.grain, item.work_ps))
            case RawStatement():
                self.raw_texts += item.lines


def uses_of(function: Function) -> Uses:
    """Return the dependencies of a function."""
    found = _Collector()
    found.types.update(item.type for item in function.parameters if isinstance(item, Variable))
    for statement in statements_in(function.body):
        found.statement(statement)
    for expression in expressions_in(function.body):
        found.expression(expression)
    vectors = frozenset(item for item in found.types if item.lanes > 1 and item.dtype != "bool")
    symbols = frozenset(name for dim in found.dims for name in symbols_of(dim))
    return Uses(tuple(found.callees), tuple(found.raw_texts), vectors, symbols, frozenset(found.items))


def vector_types_of(functions: Iterable[Function]) -> set[CType]:
    """Return the vector types of the values of functions."""
    return {type_ for function in functions for type_ in uses_of(function).vector_types}
