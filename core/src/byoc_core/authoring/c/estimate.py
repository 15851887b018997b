"""Estimate the work of C before anything is compiled: operations, bytes, picoseconds on one thread."""

from __future__ import annotations

from dataclasses import dataclass, replace

from byoc_core.authoring.c.expressions import (
    Binary,
    Call,
    Element,
    Expression,
    Load,
    Select,
    Size,
    Unary,
    Variable,
)
from byoc_core.authoring.c.operands import operands_of
from byoc_core.authoring.c.simplify import range_of
from byoc_core.authoring.c.statements import (
    Block,
    Clear,
    Copy,
    Dispatch,
    For,
    Function,
    If,
    Statement,
    Store,
    While,
)
from byoc_core.authoring.c.traversal import expressions_of, substitute
from byoc_core.dims import Dim, ceildiv
from byoc_core.dtypes import dtype_info

__all__ = ["Estimate", "estimate", "estimate_statement", "rounds_of"]

_OPERATION_PS = 50
"""One operation on an element, in a loop that a C compiler makes vectors of; a store likewise."""

_VECTOR_PS = 80
"""One operation on a vector register."""

_BYTE_PS = 30
"""One byte that is copied."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated work.

    Attributes:
        flops: floating-point operations.
        nbytes: bytes that loads, stores and copies touch, each time again.
        ps: picoseconds on one thread.
    """

    flops: Dim = 0
    nbytes: Dim = 0
    ps: Dim = 0

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.flops + other.flops, self.nbytes + other.nbytes, self.ps + other.ps)

    def times(self, count: Dim) -> Estimate:
        """Return the work of so many rounds."""
        return Estimate(self.flops * count, self.nbytes * count, self.ps * count)


def estimate(function: Function) -> Estimate:
    """Return the work of a call of a function. Of two branches the first counts, of a :class:`While` one round."""
    return _block(function.body)


def rounds_of(loop: For) -> Dim:
    """Return how many rounds a loop has: exactly where its bounds are sizes, else the most that can be told.

    Where a bound is a choice between a number and the rest of an axis, as tiling makes it, the number counts.
    """
    match loop.start, loop.stop:
        case Size(first), Size(end):
            rounds = ceildiv(end - first, loop.step)
            return max(rounds, 0) if isinstance(rounds, int) else rounds
        case Size(0), Select(_, one, other):
            for bound in (one, other):
                if isinstance(bound, Size):
                    return ceildiv(bound.dim, loop.step)
    found = range_of(loop.stop - loop.start, {})
    return 1 if found is None else ceildiv(found[1], loop.step)


def estimate_statement(statement: Statement) -> Estimate:
    """Return the work of one statement, with the blocks inside it."""
    total = Estimate()
    for expression in expressions_of(statement):
        total = total + _expression(expression)
    match statement:
        case Store(_, _, value):
            total = total + Estimate(0, value.type.nbytes, _VECTOR_PS if value.type.lanes > 1 else _OPERATION_PS)
        case Copy():
            if isinstance(statement.count, Size):
                nbytes = statement.count.dim * dtype_info(statement.target.dtype).itemsize
                total = total + Estimate(0, nbytes * 2, nbytes * _BYTE_PS)
        case Clear():
            if isinstance(statement.count, Size):
                nbytes = statement.count.dim * dtype_info(statement.target.dtype).itemsize
                total = total + Estimate(0, nbytes, nbytes * _BYTE_PS)
        case For():
            return total + _block(statement.body).times(rounds_of(statement))
        case Dispatch():
            rounds = substitute(statement.body, {statement.first: Size(0), statement.end: Size(statement.count)})
            return replace(_block(rounds), ps=statement.work_ps)
        case While():
            return total + _block(statement.body)
        case If():
            return total + _block(statement.then)
    return total


def _block(block: Block) -> Estimate:
    return sum((estimate_statement(statement) for statement in block), Estimate())


def _expression(expression: Expression) -> Estimate:
    total = Estimate()
    match expression:
        case Load():
            return Estimate(0, expression.type.nbytes, 0)
        case Call():
            total = _called(expression)
        case Element() | Binary() | Unary() | Select() if expression.type.is_float:
            lanes = expression.type.lanes
            total = Estimate(lanes, 0, _VECTOR_PS if lanes > 1 else _OPERATION_PS)
    for operand in operands_of(expression):
        total = total + _expression(operand)
    return total


def _called(call: Call) -> Estimate:
    """Return the work of a called function: that of its statements where it is data, else what it says of itself."""
    callee = call.callee
    if callee.function is None:
        return Estimate(callee.flops, 0, callee.flops * _OPERATION_PS)
    pairs = zip(callee.function.parameters, call.arguments, strict=True)
    values = {parameter: argument for parameter, argument in pairs if isinstance(parameter, Variable)}
    return _block(substitute(callee.function.body, values))
