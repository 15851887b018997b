"""Estimates of the work of C before compilation: operations, bytes, picoseconds on one thread.

The estimate traverses a function once. Each round of a loop is estimated like the middle round (the first round, if the
number of rounds is symbolic). Parts depending on the round count as in this round: a tile is a whole tile, and of two
branches the branch taken in this round counts.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from byoc_core.authoring.c.callee import Callee
from byoc_core.authoring.c.expressions import (
    Binary,
    Buffer,
    Call,
    Element,
    Expression,
    Literal,
    Load,
    Select,
    Size,
    Unary,
    Variable,
)
from byoc_core.authoring.c.indices import MAX, MIN
from byoc_core.authoring.c.operands import COMPARE, operands_of
from byoc_core.authoring.c.statements import (
    Assign,
    Block,
    Clear,
    Copy,
    Declare,
    Dispatch,
    Evaluate,
    For,
    Function,
    If,
    Let,
    LocalArray,
    Statement,
    Store,
    While,
)
from byoc_core.authoring.c.strides import stride_of
from byoc_core.authoring.c.traversal import statements_in
from byoc_core.authoring.c.types import CType
from byoc_core.authoring.c.vectors import Shuffle
from byoc_core.dims import Dim, ceildiv, dim_max, dim_min, is_positive, rough_product
from byoc_core.dtypes import dtype_info

__all__ = ["Estimate", "KnownCalls", "estimate", "loop_times", "rounds_of"]

_OPERATION_PS = 50
"""An operation on an element, in a loop vectorised by a C compiler; a store likewise."""

_VECTOR_PS = 80
"""An operation on a vector register."""

_BYTE_PS = 30
"""A copied byte."""

_MEMORY_PS = 5
"""A byte of a vector loaded from or stored to memory, in near and far caches."""

_SHUFFLE_PS = 700
"""Rearranging the lanes of vectors."""

_STRIDED_PS = 400
"""Loading or storing one of many non-contiguous elements."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated work.

    Attributes:
        flops: floating-point operations.
        nbytes: bytes touched by loads, stores and copies, with repetitions.
        ps: picoseconds on one thread.
    """

    flops: Dim = 0
    nbytes: Dim = 0
    ps: Dim = 0

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.flops + other.flops, self.nbytes + other.nbytes, self.ps + other.ps)

    def times(self, length: Dim, step: int = 1) -> Estimate:
        """Return the work of a loop's rounds over the given number of positions; approximate for symbolic numbers."""
        parts = (self.flops, self.nbytes, self.ps)
        return Estimate(*(rough_product(part, length, step) for part in parts))


KnownCalls = dict[tuple[int, tuple[Dim | None, ...]], tuple[Function, Estimate]]
"""The work of functions, by identity and values of the parameters, kept between estimates."""


def estimate(function: Function) -> Estimate:
    """Return the work of a call of a function.

    If the taken branch is unknown, the first of two branches counts. Loops with data-dependent ends, and
    :class:`While`, count as a single round. But a loop that continues at the end of its previous part counts all parts.
    """
    return _Walk().block(function.body)


def loop_times(function: Function, calls: KnownCalls | None = None) -> dict[int, Dim]:
    """Return the picoseconds of each loop, all rounds, by the identity of the statement; ``calls`` grows.

    A loop in a branch not taken is estimated alone, without the known values around the branch.
    """
    walk = _Walk({} if calls is None else calls)
    walk.block(function.body)
    for statement in statements_in(function.body):
        if isinstance(statement, For | Dispatch) and id(statement) not in walk.times:
            walk.statement(statement)
    return walk.times


def rounds_of(loop: For) -> Dim:
    """Return the number of rounds of a loop if the bounds are sizes, else 1."""
    return _Walk().rounds(loop)


@dataclass(slots=True)
class _Walk:
    """A traversal of statements.

    Attributes:
        calls: the work of functions met in this traversal or an earlier traversal.
        values: the known values of variables in the current round.
        ends: for a loop that continues at the end of its previous part: by this end, the end of all parts.
        index: the index of the innermost loop around.
        registers: arrays of vectors, kept in registers by a C compiler.
        times: the picoseconds of loops, by the identity of the statement.
    """

    calls: KnownCalls = field(default_factory=dict)
    values: dict[Variable, Dim] = field(default_factory=dict)
    ends: dict[Variable, Expression] = field(default_factory=dict)
    index: Variable | None = None
    registers: set[Buffer] = field(default_factory=set)
    times: dict[int, Dim] = field(default_factory=dict)

    def block(self, block: Block) -> Estimate:
        total = Estimate()
        for statement in block:
            work = self.statement(statement)
            total = total + work if total.ps or total.nbytes else work
        return total

    def statement(self, statement: Statement) -> Estimate:
        match statement:
            case Let(variable, value) | Declare(variable, value):
                self._set(variable, self.value(self.ends.get(variable, value)))
                return self.expression(value)
            case Store(buffer, index, value):
                ps = self._access(buffer, index, value.type)
                ps = ps or (0 if buffer in self.registers else _OPERATION_PS)
                return self.expression(value) + Estimate(0, value.type.nbytes, ps)
            case Assign(variable, value):
                self._set(variable, None)
                return self.expression(value)
            case Evaluate(value):
                return self.expression(value)
            case LocalArray(buffer):
                if statement.lanes > 1:
                    self.registers.add(buffer)
            case For() | Dispatch():
                work = self._loop(statement) if isinstance(statement, For) else self._dispatch(statement)
                self.times[id(statement)] = work.ps
                return work
            case While():
                self._go_on(statement)
                return self.block(statement.body)
            case If(condition, then, otherwise):
                return self.expression(condition) + self.block(otherwise if self.value(condition) == 0 else then)
            case Copy():
                nbytes = self._count(statement.count) * dtype_info(statement.target.dtype).itemsize
                return Estimate(0, nbytes * 2, nbytes * _BYTE_PS)
            case Clear():
                nbytes = self._count(statement.count) * dtype_info(statement.target.dtype).itemsize
                return Estimate(0, nbytes, nbytes * _BYTE_PS)
        return Estimate()

    def expression(self, expression: Expression) -> Estimate:
        """Return the work of computing a value."""
        total = Estimate()
        match expression:
            case Load(buffer, index):
                # Index arithmetic of a load is cheap compared with the load.
                return Estimate(0, expression.type.nbytes, self._access(buffer, index, expression.type))
            case Call():
                total = self._call(expression)
            case Element() | Binary() | Unary() | Select() if expression.type.is_float:
                lanes = expression.type.lanes
                total = Estimate(lanes, 0, _VECTOR_PS if lanes > 1 else _OPERATION_PS)
            case Shuffle():
                total = Estimate(0, 0, _SHUFFLE_PS)
        for operand in operands_of(expression):
            if not isinstance(operand, Size | Variable | Literal):
                work = self.expression(operand)
                total = total + work if work.ps or work.nbytes else total
        return total

    def value(self, expression: Expression) -> Dim | None:
        """Return an index, or a condition as 0 or 1, in the current round; ``None`` if unknown."""
        match expression:
            case Size(dim):
                return dim
            case Variable():
                return self.values.get(expression)
            case Literal(bool() | int() as number):
                return int(number)
            case Select(condition, then, otherwise):
                is_first = self.value(condition)
                return (
                    self._smaller(then, otherwise) if is_first is None else self.value(then if is_first else otherwise)
                )
            case Call(callee, (left, right)) if callee == MIN:
                return self._smaller(left, right)
            case Binary(symbol, left, right) | Call(Callee(symbol), (left, right)):
                left_value, right_value = self.value(left), self.value(right)
                if symbol in ("&&", "||"):
                    dominant = 0 if symbol == "&&" else 1
                    if dominant in (left_value, right_value):
                        return dominant
                    return None if None in (left_value, right_value) else 1 - dominant
                return None if left_value is None or right_value is None else _combined(symbol, left_value, right_value)
        return None

    def _smaller(self, left: Expression, right: Expression) -> Dim | None:
        """Return the smaller of the known indices among two: a tile counts as a whole tile."""
        values = [value for value in (self.value(left), self.value(right)) if value is not None]
        number = next((value for value in values if isinstance(value, int)), None)
        if len(values) == 2 and (number is None or all(isinstance(value, int) for value in values)):
            return dim_min(*values)
        return number if number is not None else next(iter(values), None)

    def rounds(self, loop: For) -> Dim:
        """Return the number of rounds of a loop; 1 if unknown."""
        first, end = self.value(loop.start), self.value(loop.stop)
        if first is None or end is None:
            return 1
        rounds = ceildiv(end - first, loop.step)
        return max(rounds, 0) if isinstance(rounds, int) else rounds

    def _loop(self, loop: For) -> Estimate:
        first, end, outer = self.value(loop.start), self.value(loop.stop), self.index
        length: Dim = loop.step if first is None or end is None else end - first
        if isinstance(length, int):
            length = max(-(-length // loop.step), 0) * loop.step
        if length == 0:
            return Estimate()
        middle = (length // loop.step - 1) // 2 * loop.step if isinstance(length, int) else 0
        self._set(loop.index, None if first is None else first + middle)
        self.index = loop.index
        work = self.block(loop.body).times(length, loop.step)
        self.index = outer
        return (
            work
            if loop.round_ps is None
            else Estimate(work.flops, work.nbytes, rough_product(loop.round_ps, length, loop.step))
        )

    def _dispatch(self, loop: Dispatch) -> Estimate:
        self.values[loop.first], self.values[loop.end] = 0, loop.count
        work = self.block(loop.body)
        return Estimate(work.flops, work.nbytes, loop.work_ps) if loop.work_ps else work

    def _set(self, variable: Variable, value: Dim | None) -> None:
        if value is None:
            self.values.pop(variable, None)
        else:
            self.values[variable] = value

    def _count(self, count: Expression) -> Dim:
        value = self.value(count)
        return 0 if value is None else value

    def _access(self, buffer: Buffer, index: Expression, type_: CType) -> Dim:
        """Return the picoseconds of a load or store; none for an element adjacent to the element of the last round."""
        if buffer in self.registers:
            return 0
        if type_.lanes > 1:
            return type_.nbytes * _MEMORY_PS
        return 0 if self.index is None or stride_of(index, self.index) in (0, 1, -1) else _STRIDED_PS

    def _go_on(self, loop: While) -> None:
        """Record the end of all parts for a loop that continues at the end of its previous part."""
        if isinstance(loop.condition, Binary) and loop.condition.operator == "<":
            ends = (
                item.value for item in loop.body if isinstance(item, Assign) and item.variable is loop.condition.left
            )
            self.ends.update((end, loop.condition.right) for end in ends if isinstance(end, Variable))

    def _call(self, call: Call) -> Estimate:
        """Return the work of a called function: of its statements if known as data, else its declared work."""
        callee, function = call.callee, call.callee.function
        values = tuple(map(self.value, call.arguments))
        if function is None:
            own = _VECTOR_PS if call.result is not None and call.result.lanes > 1 else callee.flops * _OPERATION_PS
            return Estimate(callee.flops, 0, own if callee.ps is None else callee.ps(*values))
        key = (id(function), values)
        if key not in self.calls:
            inner = _Walk(self.calls)
            for parameter, value in zip(function.parameters, values, strict=True):
                if isinstance(parameter, Variable):
                    inner._set(parameter, value)
            self.calls[key] = function, inner.block(function.body)
        return self.calls[key][1]


_OPERATIONS: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    MAX.name: dim_max,
}
_NUMBER_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "/": operator.floordiv,
    "%": operator.mod,
    **COMPARE,
}


def _combined(symbol: str, left: Dim, right: Dim) -> Dim | None:
    """Return the result of an operator or function of C; ``None`` if unknown."""
    if symbol in _OPERATIONS:
        return _OPERATIONS[symbol](left, right)
    if isinstance(left, int) and isinstance(right, int) and symbol in _NUMBER_OPERATIONS:
        return None if symbol in "/%" and (right <= 0 or left < 0) else int(_NUMBER_OPERATIONS[symbol](left, right))
    if left == 0 and symbol in "/%":
        return 0
    return left // right if symbol == "/" and is_positive(right) else None
