"""What functions use of their surroundings: C functions that they call, and vector types."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from byoc_core.authoring.c.callee import Callee
from byoc_core.authoring.c.expressions import Call, Raw, Variable
from byoc_core.authoring.c.statements import Declare, Function, Let, LocalArray, RawStatement
from byoc_core.authoring.c.traversal import expressions_in, statements_in
from byoc_core.authoring.c.types import CType

__all__ = ["called_by", "vector_types_of", "words_of"]


def called_by(function: Function) -> list[Callee]:
    """Return the C functions that a function calls, each once, in the order of the calls."""
    found = [item.callee for item in expressions_in(function.body) if isinstance(item, Call)]
    return list(dict.fromkeys(found))


def words_of(function: Function) -> set[str]:
    """Return the identifiers in the raw texts of a function, whose meaning no variable may take."""
    raw = [item.text for item in expressions_in(function.body) if isinstance(item, Raw)]
    raw += [line for item in statements_in(function.body) if isinstance(item, RawStatement) for line in item.lines]
    return {word for text in raw for word in re.findall(r"[A-Za-z_]\w*", re.sub(r"\{\w*\}", " ", text), re.ASCII)}


def vector_types_of(functions: Iterable[Function]) -> list[CType]:
    """Return the vector types of the values of functions, sorted."""
    found = {type_ for function in functions for type_ in _types_of(function) if type_.lanes > 1}
    return sorted((item for item in found if item.dtype != "bool"), key=lambda item: (item.dtype, item.lanes))


def _types_of(function: Function) -> Iterator[CType]:
    yield from (item.type for item in function.parameters if isinstance(item, Variable))
    for expression in expressions_in(function.body):
        if not isinstance(expression, Call) or expression.result is not None:
            yield expression.type
    for statement in statements_in(function.body):
        match statement:
            case LocalArray():
                yield CType(statement.buffer.dtype, statement.lanes)
            case Let(variable, _) | Declare(variable, _):
                yield variable.type
