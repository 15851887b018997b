"""Hoisting of invariants: values equal in every round of a loop are computed before the loop."""

from __future__ import annotations

from dataclasses import replace

from byoc_core.authoring.c.aliasing import Aliases
from byoc_core.authoring.c.expressions import (
    Address,
    Binary,
    Buffer,
    Call,
    Expression,
    Load,
    Raw,
    Size,
    Variable,
)
from byoc_core.authoring.c.operands import operands_of
from byoc_core.authoring.c.renewal import without_clashes
from byoc_core.authoring.c.statements import (
    Alias,
    Assign,
    Block,
    Fail,
    For,
    Function,
    Let,
    RawStatement,
    Return,
    Statement,
)
from byoc_core.authoring.c.traversal import (
    buffers_written,
    declared_by,
    expressions_in,
    expressions_of,
    statements_in,
    with_blocks,
)
from byoc_core.dims import is_positive

__all__ = ["hoist"]


def hoist(function: Function) -> Function:
    """Return a function with loop-invariant values and pointers computed before the loop.

    A value moves only if computing the value is safe for a loop without rounds. A load, a call, or a quotient with a
    divisor not known to be above 0 stays if the loop may have no rounds, or if a round may leave the function. A value
    moves out of as many loops as do not change it.

    Cost: linear in the expressions, times the depth of the loops.
    """
    return replace(function, body=_hoisted(function.body, Aliases(function.body)))


def _hoisted(block: Block, aliases: Aliases) -> Block:
    parts: list[Block] = []
    for statement in block:
        inside = with_blocks(statement, lambda inner: _hoisted(inner, aliases))
        # The body of a dispatch is a separate function: a value from outside would be another parameter.
        parts.append(_Loop(inside, aliases).split() if isinstance(inside, For) else (inside,))
    return without_clashes(parts)


class _Loop:
    """A loop, with all items changed by the rounds."""

    def __init__(self, loop: For, aliases: Aliases) -> None:
        self._loop = loop
        self._aliases = aliases
        self._written = buffers_written(loop.body)
        self._changed: set[Buffer | Variable] = {loop.index}
        for statement in statements_in(loop.body):
            self._changed.update(declared_by(statement))
            if isinstance(statement, Assign):
                self._changed.add(statement.variable)
            elif isinstance(statement, RawStatement):
                self._changed.update(statement.writes)
        may_leave = any(isinstance(item, Return | Fail | RawStatement) for item in statements_in(loop.body))
        self._has_rounds = _has_rounds(loop) and not may_leave
        self._may_load = self._has_rounds and not any(
            isinstance(item, Raw) or (isinstance(item, Call) and item.callee.writes)
            for item in expressions_in(loop.body)
        )

    def split(self) -> Block:
        """Return the hoisted statements, and then the loop without these statements."""
        moved: list[Statement] = []
        rest: list[Statement] = []
        for statement in self._loop.body:
            if self._may_move(statement):
                moved.append(statement)
                self._changed.difference_update(declared_by(statement))
            else:
                rest.append(statement)
        return (*moved, replace(self._loop, body=tuple(rest)))

    def _may_move(self, statement: Statement) -> bool:
        if isinstance(statement, Alias) and statement.reads_pointer:
            return self._is_invariant(Load(statement.source, statement.offset))
        is_pointer = isinstance(statement, Alias) and self._changed.isdisjoint(statement.sources)
        return (is_pointer or isinstance(statement, Let)) and all(map(self._is_invariant, expressions_of(statement)))

    def _is_invariant(self, expression: Expression) -> bool:
        match expression:
            case Variable() if expression in self._changed:
                return False
            case Load(buffer, _, _):
                is_changed = any(self._aliases.may_overlap(buffer, item) for item in self._written)
                if not self._may_load or buffer in self._changed or is_changed:
                    return False
            case Address() | Raw():
                return False
            case Call(callee, _, _) if callee.writes or not self._has_rounds:
                return False
            case Binary(("/" | "%"), _, right) if not expression.type.is_float:
                if not self._has_rounds and not (isinstance(right, Size) and is_positive(right.dim)):
                    return False
        return all(map(self._is_invariant, operands_of(expression)))


def _has_rounds(loop: For) -> bool:
    match loop.start, loop.stop:
        case Size(first), Size(end):
            return is_positive(end - first)
    return False
