"""Hoist invariants: what every round of a loop would compute again stands before the loop."""

from __future__ import annotations

from dataclasses import replace

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
    operands_of,
)
from byoc_core.authoring.c.statements import Alias, Assign, Block, Dispatch, For, Function, Let, Statement
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
    """Return a function that computes values and pointers that no round of a loop changes before the loop.

    Only what may be computed where the loop has no round moves: a load or a quotient stays where the number of rounds
    is not known to be above 0. A value moves out of as many loops as do not change it.

    Cost: linear in the expressions, times the depth of the loops.
    """
    return replace(function, body=_hoisted(function.body))


def _hoisted(block: Block) -> Block:
    result: list[Statement] = []
    for statement in block:
        statement = with_blocks(statement, _hoisted)
        if isinstance(statement, For | Dispatch):
            before, statement = _split(statement)
            result += before
        result.append(statement)
    return tuple(result)


def _split(loop: For | Dispatch) -> tuple[list[Statement], For | Dispatch]:
    """Return the statements that leave a loop, and the loop without them."""
    if isinstance(loop, Dispatch):
        return [], loop  # Its body is a function of its own: a value from outside would be one more parameter.
    changed: set[Buffer | Variable] = {loop.index, *buffers_written(loop.body)}
    for statement in statements_in(loop.body):
        changed.update(declared_by(statement))
        if isinstance(statement, Assign):
            changed.add(statement.variable)
    # Another pointer may reach the same memory.
    is_memory_safe = not any(isinstance(item, Call | Raw) for item in expressions_in(loop.body)) and not any(
        buffer in changed for buffer in _pointed_into(loop.body)
    )
    has_rounds = _has_rounds(loop)
    moved: list[Statement] = []
    rest: list[Statement] = []
    for statement in loop.body:
        is_fixed = isinstance(statement, Alias) and changed.isdisjoint(statement.sources)
        may_move = isinstance(statement, Let) or is_fixed
        expressions = expressions_of(statement)
        if may_move and all(
            _is_invariant(item, changed, is_memory_safe and has_rounds, has_rounds) for item in expressions
        ):
            moved.append(statement)
            changed.difference_update(declared_by(statement))
        else:
            rest.append(statement)
    return moved, replace(loop, body=tuple(rest))


def _pointed_into(block: Block) -> set[Buffer]:
    """Return the buffers into which pointers that the block declares go, and the pointers."""
    found: set[Buffer] = set()
    for statement in statements_in(block):
        if isinstance(statement, Alias) and statement.buffer.is_writable:
            found |= {statement.buffer, *statement.sources}
    return found


def _has_rounds(loop: For) -> bool:
    match loop.start, loop.stop:
        case Size(first), Size(end):
            return is_positive(end - first)
    return False


def _is_invariant(expression: Expression, changed: set[Buffer | Variable], may_load: bool, may_divide: bool) -> bool:
    match expression:
        case Variable():
            return expression not in changed
        case Load(buffer, _, _):
            if not may_load or buffer in changed:
                return False
        case Address() | Call() | Raw():
            return False
        case Binary(("/" | "%"), _, right) if not expression.type.is_float:
            if not may_divide and not (isinstance(right, Size) and is_positive(right.dim)):
                return False
    return all(_is_invariant(item, changed, may_load, may_divide) for item in operands_of(expression))
