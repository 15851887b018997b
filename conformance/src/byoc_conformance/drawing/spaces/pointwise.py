"""Spaces of elementwise ops: ranks, broadcasting and attributes."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.dtypes import computing_dtypes
from byoc_core.ir import OpDef
from byoc_core.ops.cases import OpCase, OperandCase, case

from byoc_conformance.drawing.pairwise import Levels
from byoc_conformance.drawing.spaces.space import Space, schema_levels

__all__ = ["cast", "elementwise", "prelu", "where"]

# The last of each is more than a block of a loop, and no multiple of a vector register.
_SINGLE = (((2, 3),), ((),), ((3,),), ((17,),), ((1, 33),), ((2, 3, 4, 5),), ((3, 1, 2),), ((3, 1037),))
_PAIRS = (
    ((2, 3), (2, 3)),
    ((2, 3), (3,)),
    ((17,), (17,)),
    ((5, 1), (5, 7)),
    ((4, 1, 5), (1, 3, 1)),
    ((3, 33), ()),
    ((), (3, 8)),
    ((3, 4, 5), (2, 3, 1, 5)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((1,), (1,)),
    ((3, 1037), (1037,)),
)
_TRIPLES = (
    ((2, 3), (2, 3), (2, 3)),
    ((17,), (17,), (17,)),
    ((3,), (2, 3), ()),
    ((2, 1), (1, 3), (2, 3)),
    ((), (2, 3), (3,)),
    ((4, 1, 5), (3, 1), (2, 4, 3, 1)),
    ((2, 33), (), (2, 1)),
    ((1037,), (2, 1037), ()),
)
_ANY_INTEGER = 2**62
_SLOPES = (
    ((2, 3), (3,)),
    ((2, 3, 4, 5), (3, 1, 1)),
    ((17,), ()),
    ((2, 3), (2, 3)),
    ((5, 7), (1, 7)),
    ((4, 3), (4, 1)),
    ((3, 1037), (1037,)),
)


def elementwise(op: OpDef) -> Space:
    """Return the space of a unary or binary op with broadcast operands."""
    shapes = _SINGLE if len(op.operands) == 1 else _PAIRS
    return Space({"shapes": shapes, **schema_levels(op)}, _builder(op))


def prelu(op: OpDef) -> Space:
    """Return the space of ``nn.prelu``; the slopes broadcast to the operand."""
    return Space({"shapes": _SLOPES}, _builder(op))


def cast(op: OpDef) -> Space:
    """Return the space of ``cast``: all pairs of dtypes, on a vector register and a bit more."""

    def build(levels: Levels) -> OpCase:
        operand = OperandCase((2, 33), levels["from"], -_ANY_INTEGER, _ANY_INTEGER)
        return OpCase(op.name, (operand,), {"dtype": levels["dtype"]})

    return Space({"from": computing_dtypes(), **schema_levels(op)}, build)


def where(op: OpDef) -> Space:
    """Return the space of ``where``: three broadcast operands."""

    def build(levels: Levels) -> OpCase:
        condition, x, y = levels["shapes"]
        return case(op.name, OperandCase(condition, "bool"), x, y)

    return Space({"shapes": _TRIPLES}, build)


def _builder(op: OpDef) -> Callable[[Levels], OpCase]:
    def build(levels: Levels) -> OpCase:
        attrs = {name: level for name, level in levels.items() if name != "shapes"}
        return OpCase(op.name, tuple(map(OperandCase, levels["shapes"])), attrs)

    return build
