"""Expressions over the lanes of vectors."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.authoring.c.expressions import Expression
from byoc_core.authoring.c.types import CType

__all__ = ["Broadcast", "Lane", "Shuffle"]


@dataclass(frozen=True, slots=True)
class Broadcast(Expression):
    """A scalar in every lane of a vector."""

    operand: Expression
    lanes: int

    @property
    def type(self) -> CType:
        """The operand's type in as many lanes."""
        return self.operand.type.with_lanes(self.lanes)


@dataclass(frozen=True, slots=True)
class Lane(Expression):
    """A lane of a vector.

    Attributes:
        operand: the vector.
        index: the number of the lane.
    """

    operand: Expression
    index: Expression

    @property
    def type(self) -> CType:
        """The type of an element."""
        return self.operand.type.with_lanes(1)


@dataclass(frozen=True, slots=True)
class Shuffle(Expression):
    """Lanes of two vectors in another order.

    Attributes:
        left: a vector.
        right: another vector of the same type.
        order: for each lane of the result, the number of the source lane; lanes of the right vector are numbered after
            the lanes of the left vector.
    """

    left: Expression
    right: Expression
    order: tuple[int, ...]

    @property
    def type(self) -> CType:
        """The type of the operands, with the number of lanes in ``order``."""
        return self.left.type.with_lanes(len(self.order))
