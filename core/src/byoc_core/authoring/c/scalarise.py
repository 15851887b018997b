"""Scalarisation: vectors as arrays and loops over lanes, for targets without vector types in C."""

from __future__ import annotations

from dataclasses import replace

from byoc_core.authoring.c.aliasing import Aliases
from byoc_core.authoring.c.expressions import (
    Buffer,
    Call,
    Cast,
    Expression,
    Literal,
    Load,
    MemoryAccess,
    Raw,
    Select,
    Size,
    Variable,
)
from byoc_core.authoring.c.operands import operands_of, rebuilt
from byoc_core.authoring.c.statements import (
    Assign,
    Block,
    Declare,
    Evaluate,
    For,
    Function,
    Let,
    LocalArray,
    LoopKind,
    Statement,
    Store,
)
from byoc_core.authoring.c.traversal import expressions_in, map_own, with_blocks
from byoc_core.authoring.c.vectors import Broadcast, Lane, Shuffle
from byoc_core.errors import InternalError

__all__ = ["scalarise"]


def scalarise(function: Function) -> Function:
    """Return a function with the same bits but without vectors: each lane is computed separately.

    Raises:
        InternalError: a parameter is a vector, or a call or a raw text computes with vectors: their lanes have no
            separate form.
    """
    for parameter in function.parameters:
        if isinstance(parameter, Variable) and parameter.type.lanes > 1:
            raise InternalError(f"parameter `{parameter.name}`", "is a vector")
    return replace(function, body=_Scalariser(Aliases(function.body)).block(function.body))


class _Scalariser:
    def __init__(self, aliases: Aliases) -> None:
        self._aliases = aliases
        self._arrays: dict[Variable, Buffer] = {}

    def block(self, block: Block) -> Block:
        result: Block = ()
        for statement in block:
            result += self._statement(statement)
        return result

    def _statement(self, statement: Statement) -> Block:
        match statement:
            case Let(variable, value) | Declare(variable, value) if variable.type.lanes > 1:
                array = Buffer(variable.name, variable.type.dtype, MemoryAccess.WRITE, variable.type.lanes)
                self._arrays[variable] = array
                return (LocalArray(array), self._stores(array, Size(0), value))
            case Assign(variable, value) if variable.type.lanes > 1:
                return self._safe_stores(self._arrays[variable], Size(0), value)
            case Store(buffer, index, value) if value.type.lanes > 1:
                return self._safe_stores(buffer, self._scalar(index), value)
            case LocalArray():
                return (replace(statement, lanes=1),)
        return (map_own(with_blocks(statement, self.block), self._scalar),)

    def _safe_stores(self, buffer: Buffer, index: Expression, value: Expression) -> Block:
        """Return the stores of the lanes, via an array if stores of other lanes could change the values."""
        if not any(self._may_change(buffer, index, item) for item in expressions_in((Store(buffer, index, value),))):
            return (self._stores(buffer, index, value),)
        array = Buffer(f"{buffer.name}_lanes", buffer.dtype, MemoryAccess.WRITE, value.type.lanes)
        lane = Variable("lane")
        copied: Statement = For(lane, Size(0), Size(value.type.lanes), (Store(buffer, index + lane, array[lane]),))
        return (LocalArray(array), self._stores(array, Size(0), value), copied)

    def _may_change(self, buffer: Buffer, index: Expression, read: Expression) -> bool:
        """Return whether a store to a lane may change a value read by another lane."""
        match read:
            case Load(source, source_index, lanes):
                is_lane_by_lane = source is buffer and lanes > 1 and self._scalar(source_index) == index
                return not is_lane_by_lane and self._aliases.may_overlap(source, buffer)
            case Lane(operand, _):
                # A single lane of a vector is read by every lane of the value.
                vectors = tuple(expressions_in((Evaluate(operand),)))
                return any(
                    (isinstance(item, Load) and self._aliases.may_overlap(item.buffer, buffer))
                    or (isinstance(item, Variable) and self._arrays.get(item) is buffer)
                    for item in vectors
                )
        return False

    def _stores(self, buffer: Buffer, index: Expression, value: Expression) -> Statement:
        lane = Variable("lane")
        stored = Store(buffer, index + lane, self._lane(value, lane))
        return For(lane, Size(0), Size(value.type.lanes), (stored,), kind=LoopKind.VECTOR)

    def _lane(self, expression: Expression, lane: Expression) -> Expression:
        """Return a lane of a vector."""
        match expression:
            case Variable():
                return self._arrays[expression][lane]
            case Load(buffer, index, _):
                return buffer[self._scalar(index) + lane]
            case Broadcast(operand, _):
                return self._scalar(operand)
            case Literal(tuple(values), type_):
                return _selected_lane([Literal(value, type_.with_lanes(1)) for value in values], lane)
            case Literal(value, type_):
                return Literal(value, type_.with_lanes(1))
            case Shuffle(left, right, order):
                lanes = left.type.lanes
                sources = [(left, position) if position < lanes else (right, position - lanes) for position in order]
                return _selected_lane([self._lane(vector, Size(position)) for vector, position in sources], lane)
        if isinstance(expression, Call | Raw):
            raise InternalError(type(expression).__name__, f"computes {expression.type} and has no scalar form")
        operands = tuple(
            self._lane(item, lane) if item.type.lanes > 1 else self._scalar(item) for item in operands_of(expression)
        )
        changed = rebuilt(expression, operands)
        return replace(changed, type=changed.type.with_lanes(1)) if isinstance(changed, Cast) else changed

    def _scalar(self, expression: Expression) -> Expression:
        """Return a scalar expression without reads of vectors."""
        if isinstance(expression, Lane):
            return self._lane(expression.operand, self._scalar(expression.index))
        operands = operands_of(expression)
        if isinstance(expression, Call | Raw) and any(item.type.lanes > 1 for item in operands):
            raise InternalError(type(expression).__name__, "reads a vector and has no scalar form")
        return rebuilt(expression, tuple(map(self._scalar, operands))) if operands else expression


def _selected_lane(values: list[Expression], lane: Expression) -> Expression:
    """Return the value of a lane, chosen from a list with a value for each lane."""
    selected = values[-1]
    for number, value in reversed(list(enumerate(values[:-1]))):
        selected = Select(lane.compare("==", number), value, selected)
    return selected
