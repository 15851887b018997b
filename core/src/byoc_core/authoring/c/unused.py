"""Drop what nothing reads: values, pointers and arrays that a block declares and does not use."""

from __future__ import annotations

import operator

from byoc_core.authoring.c.expressions import Buffer, Call, Variable
from byoc_core.authoring.c.statements import Alias, Block, Declare, For, If, Let, LocalArray, Statement
from byoc_core.authoring.c.traversal import blocks_of, declared_by, expressions_in, used_by, with_blocks

__all__ = ["drop_unused"]


def drop_unused(block: Block) -> Block:
    """Return a block without the values, pointers and local arrays that no statement behind them uses.

    So a writer may declare all that it might need. Loops and branches that have nothing left to do go, too. The value
    of a call that writes memory stays.

    Cost: linear in the expressions.
    """
    return _kept(block)[0]


def _kept(block: Block) -> tuple[Block, set[Buffer | Variable]]:
    """Return what stays of a block, and what it uses that is declared outside."""
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
