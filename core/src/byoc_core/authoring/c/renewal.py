"""Copies of blocks with separate variables and buffers.

No item is declared twice in a scope: the verifier refuses a function with a second declaration. A pass that
repeats or joins statements therefore renews the declarations here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from byoc_core.authoring.c.expressions import Address, Buffer, Expression, Load, Variable
from byoc_core.authoring.c.statements import (
    Alias,
    Assign,
    Block,
    Clear,
    Copy,
    Declare,
    Dispatch,
    For,
    Let,
    LocalArray,
    RawStatement,
    Statement,
    Store,
)
from byoc_core.authoring.c.traversal import blocks_of, declared_by, map_block, statements_in, with_blocks

__all__ = ["renamed", "renewed", "without_clashes"]

_Names = Mapping[Buffer | Variable, Buffer | Variable]


def renewed(block: Block) -> Block:
    """Return a copy of a block with new declarations, valid beside the block."""
    names: dict[Buffer | Variable, Buffer | Variable] = {}
    for statement in statements_in(block):
        names.update((item, replace(item)) for item in declared_by(statement))
    return renamed(block, names)


def without_clashes(parts: Iterable[Block]) -> Block:
    """Return a block of parts from separate blocks: no part redeclares items of an earlier part."""
    result: list[Statement] = []
    declared: set[Buffer | Variable] = set()
    for part in parts:
        if any(item in declared for statement in statements_in(part) for item in declared_by(statement)):
            part = renewed(part)
        declared.update(item for statement in part if not blocks_of(statement) for item in declared_by(statement))
        result += part
    return tuple(result)


def renamed(block: Block, names: _Names) -> Block:
    """Return a block with some variables and buffers replaced at declarations and uses."""

    def expression(item: Expression) -> Expression:
        match item:
            case Variable():
                return _variable(item, names)
            case Load(buffer, index, lanes):
                return Load(_buffer(buffer, names), index, lanes)
            case Address(buffer, index):
                return Address(_buffer(buffer, names), index)
        return item

    return _targets(map_block(block, expression), names)


def _targets(block: Block, names: _Names) -> Block:
    """Return a block with other targets of declarations, assignments and stores."""

    def of(statement: Statement) -> Statement:
        statement = with_blocks(statement, lambda inner: _targets(inner, names))
        match statement:
            case Let(variable, value) | Declare(variable, value) | Assign(variable, value):
                return type(statement)(_variable(variable, names), value)
            case Store(buffer, index, value):
                return Store(_buffer(buffer, names), index, value)
            case LocalArray():
                return replace(statement, buffer=_buffer(statement.buffer, names))
            case Alias(buffer, source, _, _, otherwise):
                other = None if otherwise is None else _buffer(otherwise, names)
                return replace(statement, buffer=_buffer(buffer, names), source=_buffer(source, names), otherwise=other)
            case Copy():
                target, source = _buffer(statement.target, names), _buffer(statement.source, names)
                return replace(statement, target=target, source=source)
            case Clear():
                return replace(statement, target=_buffer(statement.target, names))
            case For():
                return replace(statement, index=_variable(statement.index, names))
            case Dispatch():
                first, end = _variable(statement.first, names), _variable(statement.end, names)
                return replace(statement, first=first, end=end)
            case RawStatement():
                writes = tuple(names.get(item, item) for item in statement.writes)
                declares = tuple(names.get(item, item) for item in statement.declares)
                return replace(statement, writes=writes, declares=declares)
        return statement

    return tuple(map(of, block))


def _variable(item: Variable, names: _Names) -> Variable:
    found = names.get(item, item)
    assert isinstance(found, Variable)
    return found


def _buffer(item: Buffer, names: _Names) -> Buffer:
    found = names.get(item, item)
    assert isinstance(found, Buffer)
    return found
