"""Removal of unused values, pointers and arrays declared in a block."""

from __future__ import annotations

import operator

from byoc_core.authoring.c.expressions import Buffer, Call, Variable
from byoc_core.authoring.c.statements import Alias, Block, Declare, For, If, Let, LocalArray, Statement
from byoc_core.authoring.c.traversal import blocks_of, declared_by, expressions_in, used_by, with_blocks

__all__ = ["drop_unused"]


def drop_unused(block: Block) -> Block:
    """Return a block without values, pointers and local arrays unused by later statements.

    A writer may therefore declare everything possibly needed. Empty loops and branches are removed too. The value of a
    call with memory writes stays.

    Cost: linear in the expressions.
    """
    return _used_part(block)[0]


def _used_part(block: Block) -> tuple[Block, set[Buffer | Variable]]:
    """Return the kept part of a block, and the used items declared outside."""
    used: set[Buffer | Variable] = set()
    used_statements: list[Statement] = []
    for original in reversed(block):
        inside: set[Buffer | Variable] = set()

        def of(inner: Block, inside: set[Buffer | Variable] = inside) -> Block:
            part, found = _used_part(inner)
            inside |= found
            return part

        statement = with_blocks(original, of)
        if _is_needed(statement, used):
            used_statements.append(statement)
            used |= inside
            used.difference_update(declared_by(statement))
            used |= used_by(statement)
    used_statements.reverse()
    is_same = len(used_statements) == len(block) and all(map(operator.is_, used_statements, block))
    return block if is_same else tuple(used_statements), used


def _is_needed(statement: Statement, used: set[Buffer | Variable]) -> bool:
    match statement:
        case Let() | Declare() | Alias() | LocalArray():
            is_used = not used.isdisjoint(declared_by(statement))
        case For() | If():
            is_used = any(blocks_of(statement))
        case _:
            return True
    return is_used or any(isinstance(item, Call) and item.callee.writes for item in expressions_in((statement,)))
