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
    return _kept(block)[0]


def _kept(block: Block) -> tuple[Block, set[Buffer | Variable]]:
    """Return the kept part of a block, and the used items declared outside."""
    used: set[Buffer | Variable] = set()
    kept: list[Statement] = []
    for given in reversed(block):
        inside: set[Buffer | Variable] = set()

        def of(inner: Block, inside: set[Buffer | Variable] = inside) -> Block:
            part, found = _kept(inner)
            inside |= found
            return part

        statement = with_blocks(given, of)
        if _is_needed(statement, used):
            kept.append(statement)
            used |= inside
            used.difference_update(declared_by(statement))
            used |= used_by(statement)
    kept.reverse()
    is_same = len(kept) == len(block) and all(map(operator.is_, kept, block))
    return block if is_same else tuple(kept), used


def _is_needed(statement: Statement, used: set[Buffer | Variable]) -> bool:
    match statement:
        case Let() | Declare() | Alias() | LocalArray():
            is_used = not used.isdisjoint(declared_by(statement))
        case For() | If():
            is_used = any(blocks_of(statement))
        case _:
            return True
    return is_used or any(isinstance(item, Call) and item.callee.writes for item in expressions_in((statement,)))
