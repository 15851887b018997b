"""Traversals of statements and expressions, and copies with replaced parts.

Passes and the verifier rely on these functions to find all reads, writes and declarations. A new class of statements
needs a case in each function for its parts. Without a case the parts are overlooked, without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any

from byoc_core.authoring.c.expressions import Address, Buffer, Expression, Load, Size, Variable
from byoc_core.authoring.c.operands import operands_of, rebuilt
from byoc_core.authoring.c.statements import (
    Alias,
    Assign,
    Block,
    Clear,
    Copy,
    Declare,
    Dispatch,
    Evaluate,
    Fail,
    For,
    If,
    Let,
    LocalArray,
    RawStatement,
    Return,
    Statement,
    Store,
    While,
)
from byoc_core.dims import Dim, symbols_of

__all__ = [
    "blocks_of",
    "buffers_read",
    "buffers_written",
    "declared_by",
    "expressions_in",
    "expressions_of",
    "expressions_within",
    "free_in",
    "map_block",
    "map_expression",
    "map_own",
    "statements_in",
    "substitute",
    "symbols_in",
    "targets_of",
    "used_by",
    "variables_in",
    "variables_read",
    "with_blocks",
]

Replacement = Callable[[Expression], Expression]


def _condition_and_offset(statement: Alias) -> tuple[Expression, ...]:
    return (statement.offset,) if statement.condition is None else (statement.offset, statement.condition)


# Tables by type, because passes and the verifier ask for every statement of a source, again and again.
_EXPRESSIONS: Mapping[type[Statement], Callable[[Any], tuple[Expression, ...]]] = {
    **dict.fromkeys((Let, Declare, Assign), lambda statement: (statement.value,)),
    Alias: _condition_and_offset,
    Store: attrgetter("index", "value"),
    Copy: attrgetter("target_index", "source_index", "count"),
    Clear: attrgetter("index", "count"),
    For: attrgetter("start", "stop"),
    **dict.fromkeys((While, If), lambda statement: (statement.condition,)),
    Evaluate: lambda statement: (statement.call,),
    Fail: attrgetter("values"),
    Return: lambda statement: () if statement.value is None else (statement.value,),
    RawStatement: attrgetter("reads"),
}
_BLOCKS: Mapping[type[Statement], Callable[[Any], tuple[Block, ...]]] = {
    **dict.fromkeys((For, While, Dispatch), lambda statement: (statement.body,)),
    If: attrgetter("then", "otherwise"),
}


def expressions_of(statement: Statement) -> tuple[Expression, ...]:
    """Return the expressions of a statement itself, without expressions of inner blocks or below another expression."""
    found = _EXPRESSIONS.get(type(statement))
    return () if found is None else found(statement)


def blocks_of(statement: Statement) -> tuple[Block, ...]:
    """Return the blocks inside a statement."""
    found = _BLOCKS.get(type(statement))
    return () if found is None else found(statement)


def with_blocks(statement: Statement, change: Callable[[Block], Block]) -> Statement:
    """Return a statement with changed blocks, or the statement itself if the change returns the same blocks."""
    match statement:
        case For() | While() | Dispatch():
            body = change(statement.body)
            return statement if body is statement.body else replace(statement, body=body)
        case If():
            then, otherwise = change(statement.then), change(statement.otherwise)
            is_same = then is statement.then and otherwise is statement.otherwise
            return statement if is_same else replace(statement, then=then, otherwise=otherwise)
    return statement


def statements_in(block: Block) -> Iterator[Statement]:
    """Yield the statements of a block and of inner blocks, each before its inner statements."""
    pending = list(reversed(block))
    while pending:
        statement = pending.pop()
        yield statement
        if inner_blocks := blocks_of(statement):
            for inner in reversed(inner_blocks):
                pending += reversed(inner)


def expressions_in(block: Block) -> Iterator[Expression]:
    """Yield every expression of a block and of inner blocks, each before its operands."""
    for statement in statements_in(block):
        yield from expressions_within(statement)


def expressions_within(statement: Statement) -> Iterator[Expression]:
    """Yield every expression of a statement itself, each before its operands; inner blocks are excluded."""
    pending = [*reversed(expressions_of(statement))]
    while pending:
        expression = pending.pop()
        yield expression
        if operands := operands_of(expression):
            pending += reversed(operands)


def variables_in(expression: Expression) -> Iterator[Variable]:
    """Yield the variables read by an expression."""
    if isinstance(expression, Variable):
        yield expression
    for operand in operands_of(expression):
        yield from variables_in(operand)


def map_expression(expression: Expression, change: Replacement) -> Expression:
    """Return an expression with changed parts, operands first."""
    operands = operands_of(expression)
    if not operands:
        return change(expression)
    mapped = [map_expression(operand, change) for operand in operands]
    for new, old in zip(mapped, operands, strict=True):
        if new is not old:
            return change(rebuilt(expression, tuple(mapped)))
    return change(expression)


def map_own(statement: Statement, change: Replacement) -> Statement:
    """Return a statement with its own expressions changed as a whole; inner blocks are unchanged."""
    match statement:
        case Let(variable, value) | Declare(variable, value) | Assign(variable, value):
            changed = change(value)
            return statement if changed is value else type(statement)(variable, changed)
        case Alias():
            condition, offset = None if statement.condition is None else change(statement.condition), statement.offset
            changed = change(offset)
            is_same = changed is offset and condition is statement.condition
            return statement if is_same else replace(statement, offset=changed, condition=condition)
        case Store(buffer, index, value):
            return Store(buffer, change(index), change(value))
        case Copy():
            target_index, source_index, count = map(change, expressions_of(statement))
            return replace(statement, target_index=target_index, source_index=source_index, count=count)
        case Clear(target, index, count):
            return Clear(target, change(index), change(count))
        case Fail():
            return replace(statement, values=tuple(map(change, statement.values)))
        case For():
            start, stop = change(statement.start), change(statement.stop)
            is_same = start is statement.start and stop is statement.stop
            return statement if is_same else replace(statement, start=start, stop=stop)
        case While() | If():
            condition = change(statement.condition)
            return statement if condition is statement.condition else replace(statement, condition=condition)
        case Evaluate(call):
            return Evaluate(change(call))
        case Return(value):
            return statement if value is None else Return(change(value))
        case RawStatement():
            return replace(statement, reads=tuple(map(change, statement.reads)))
    return statement


def map_block(block: Block, change: Replacement) -> Block:
    """Return a block with changed expressions, operands first, including the expressions of inner blocks."""

    def of(statement: Statement) -> Statement:
        inside = with_blocks(statement, lambda inner: map_block(inner, change))
        return map_own(inside, lambda expression: map_expression(expression, change))

    return tuple(map(of, block))


def substitute(block: Block, values: Mapping[Variable, Expression]) -> Block:
    """Return a block with expressions substituted for variables read by the block."""
    return map_block(block, lambda item: values.get(item, item) if isinstance(item, Variable) else item)


def declared_by(statement: Statement) -> tuple[Buffer | Variable, ...]:
    """Return the variables and buffers declared by a statement, for the following statements or for the body."""
    match statement:
        case Let(variable, _) | Declare(variable, _):
            return (variable,)
        case Alias() | LocalArray():
            return (statement.buffer,)
        case For():
            return (statement.index,)
        case Dispatch():
            return (statement.first, statement.end)
        case RawStatement():
            return statement.declares
    return ()


def variables_read(block: Block) -> set[Variable]:
    """Return the variables read or assigned by a block, including variables declared in the block."""
    found = {item for item in expressions_in(block) if isinstance(item, Variable)}
    for statement in statements_in(block):
        match statement:
            case Assign(variable, _):
                found.add(variable)
            case RawStatement():
                found.update(item for item in statement.writes if isinstance(item, Variable))
    return found


def buffers_read(block: Block) -> set[Buffer]:
    """Return the buffers loaded from, pointed into or passed to a function by a block."""
    found = {item.buffer for item in expressions_in(block) if isinstance(item, Load | Address)}
    for statement in statements_in(block):
        match statement:
            case Alias():
                found.update(statement.sources)
            case Copy():
                found.add(statement.source)
    return found


def buffers_written(block: Block) -> set[Buffer]:
    """Return the buffers stored to by a block, or passed to a function that may store."""
    found: set[Buffer] = set()
    for statement in statements_in(block):
        match statement:
            case Store(buffer, _, _):
                found.add(buffer)
            case Copy() | Clear():
                found.add(statement.target)
            case RawStatement():
                found.update(item for item in statement.writes if isinstance(item, Buffer))
    return found | {
        item.buffer for item in expressions_in(block) if isinstance(item, Address) and item.buffer.is_writable
    }


def free_in(block: Block) -> set[Buffer | Variable]:
    """Return the variables and buffers used but not declared by a block."""
    declared: set[Buffer | Variable] = set()
    used: set[Buffer | Variable] = set()
    for statement in statements_in(block):
        declared.update(declared_by(statement))
        used.update(used_by(statement))
    return used - declared


def used_by(statement: Statement) -> set[Buffer | Variable]:
    """Return the variables and buffers used by a statement itself, without uses in inner blocks."""
    used = set(targets_of(statement))
    for expression in expressions_within(statement):
        if isinstance(expression, Variable):
            used.add(expression)
        elif isinstance(expression, (Load, Address)):
            used.add(expression.buffer)
    return used


def targets_of(statement: Statement) -> tuple[Buffer | Variable, ...]:
    """Return the variables and buffers used by a statement itself, but absent from all expressions of the statement."""
    match statement:
        case Assign(variable, _):
            return (variable,)
        case Store(buffer, _, _):
            return (buffer,)
        case Alias():
            return statement.sources
        case Copy():
            return (statement.source, statement.target)
        case Clear():
            return (statement.target,)
        case RawStatement():
            return statement.writes
    return ()


def symbols_in(block: Block) -> set[str]:
    """Return the symbolic sizes mentioned in a block."""
    dims: list[Dim] = [item.dim for item in expressions_in(block) if isinstance(item, Size)]
    for statement in statements_in(block):
        match statement:
            case Dispatch():
                dims += [statement.count, statement.grain, statement.work_ps]
    return {name for dim in dims for name in symbols_of(dim)}
