"""Steps: calls of a program as Python makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Self

__all__ = ["Step"]


class Step(NamedTuple):
    """One linked call.

    Attributes:
        function: what to call.
        pick: picks its arguments out of the registers.
        instruction: its number.
        registers: those arguments, in order.
    """

    function: Callable[..., object]
    pick: Callable[[list[Any]], tuple[Any, ...]]
    instruction: int
    registers: tuple[int, ...]

    @classmethod
    def of(cls, function: Callable[..., object], registers: tuple[int, ...], instruction: int) -> Self:
        """Gives the step of an instruction that calls a function on registers."""
        return cls(function, _picker(registers), instruction, registers)


def _picker(registers: Sequence[int]) -> Callable[[list[Any]], tuple[Any, ...]]:
    """Gives a function that picks these registers, in order, as a tuple."""
    if len(registers) == 1:
        (only,) = registers
        return lambda values: (values[only],)
    return itemgetter(*registers)
