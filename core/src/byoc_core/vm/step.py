"""Steps: calls of a program as made by Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Self

__all__ = ["WAIT", "Step"]

WAIT = -1
"""The number of the instruction of a step waiting for devices."""


class Step(NamedTuple):
    """A linked call.

    Attributes:
        function: the function to call.
        pick: picks its arguments out of the registers.
        instruction: the number of the instruction, or :data:`WAIT`.
        registers: the numbers of the argument registers, in order.
    """

    function: Callable[..., object]
    pick: Callable[[list[Any]], tuple[Any, ...]]
    instruction: int
    registers: tuple[int, ...]

    @classmethod
    def of(cls, function: Callable[..., object], registers: tuple[int, ...], instruction: int) -> Self:
        """Return the step of an instruction calling a function on registers."""
        return cls(function, _picker(registers), instruction, registers)


def _picker(registers: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Return a function to pick these registers, in order, as a tuple."""
    if len(registers) == 1:
        (only,) = registers
        return lambda values: (values[only],)
    return itemgetter(*registers)
