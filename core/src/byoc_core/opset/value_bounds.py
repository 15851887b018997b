"""Bounds on the magnitude of an op's results in float32, from bounds of the operands.

A bound of a value means: each element is a number, no NaN or infinity, of at most this magnitude. A rule returns the
bound of an op's results from the bounds of the operands; infinity if no bound can be proved. A rule's bound also holds
for intermediate results: for sums of any of the terms, in any order. Bounds are float64, with a margin for the rounding
of float32.

Backends may derive the magnitudes of a region's values from these rules, and check only unproved values at run time. A
bound too small hides an overflow or a NaN; a bound too large costs checks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from byoc_core.opset.contexts import OpContext

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = [
    "LARGEST",
    "LEAST_EPSILON",
    "UNIT",
    "BoundRule",
    "ValueFacts",
    "bound_of_any",
    "bound_of_first",
    "bound_of_one",
    "bound_of_total",
    "bound_towards_zero",
    "dot_bound",
    "mean_bound",
    "summed",
    "total_bound",
]

UNIT = 2.0**-23
"""Twice the unit roundoff of float32."""
LARGEST = 2.0**127
"""The largest valid bound: half of the largest float32, so intermediate rounding never overflows."""
LEAST_EPSILON = 2.0**-100
"""The least term added by an op to a variance: float32 might round a smaller term to zero."""
_MOST_TERMS = 1 << 21
"""Sums of more terms have no bound here: the rounding errors may add up to as much as the terms."""


class ValueFacts(ABC):
    """The facts about a use of an op available to a rule.

    Attributes:
        context: types and attributes.
    """

    context: OpContext

    @abstractmethod
    def bound(self, operand: int) -> float:
        """Return the bound of an operand; infinity for none."""

    @abstractmethod
    def is_constant(self, operand: int) -> bool:
        """Return whether an operand is a constant."""

    @abstractmethod
    def constant(self, operand: int) -> npt.NDArray[Any]:
        """Return the elements of a constant operand."""

    @abstractmethod
    def smallest(self, operand: int) -> float:
        """Return the least magnitude in an operand; 0 if the operand is no constant."""

    @abstractmethod
    def largest_sum(self, operand: int, axis: int) -> float:
        """Return the largest sum of magnitudes of a constant operand over all axes but ``axis``."""

    @property
    def bounds(self) -> Sequence[float]:
        """The bounds of all operands."""
        return [self.bound(operand) for operand in range(len(self.context.operands))]

    def sizes(self, operand: int) -> tuple[int, ...]:
        """Return the known sizes of an operand."""
        return tuple(dim for dim in self.context.operand_shape(operand) if isinstance(dim, int))

    def magnitude_of(self, name: str) -> float:
        """Return the magnitude of a float attribute; infinity if the attribute is NaN."""
        found = abs(float(self.context.attrs[name]))
        return math.inf if math.isnan(found) else found


BoundRule = Callable[[ValueFacts], float]
"""Return the bound of an op's results; infinity if none is proved."""


def summed(largest: float, terms: int) -> float:
    """Return the bound of a sum of ``terms`` whose magnitudes add up to ``largest``, and of all partial sums."""
    return largest * (1 + terms * UNIT) if terms <= _MOST_TERMS else math.inf


def bound_of_first(facts: ValueFacts) -> float:
    """Return the bound of results that are elements of the first operand, or their negatives."""
    return facts.bound(0)


def bound_of_any(facts: ValueFacts) -> float:
    """Return the bound of results that are elements of any operand."""
    return max(facts.bounds)


def bound_of_total(facts: ValueFacts) -> float:
    """Return the bound of sums of an element of each operand."""
    return sum(facts.bounds) * (1 + UNIT)


def bound_of_one(_: ValueFacts) -> float:
    """Return the bound of functions between -1 and 1, computed in several steps."""
    return 1 + 32 * UNIT


def bound_towards_zero(facts: ValueFacts) -> float:
    """Return the bound of a function of magnitude at most the operand's, computed in several steps."""
    return facts.bound(0) * (1 + 32 * UNIT)


def dot_bound(facts: ValueFacts, kept_axis: int, terms: int) -> float:
    """Return the bound of products of the operands, added up over all axes of the second operand but ``kept_axis``."""
    if not facts.is_constant(1):
        return summed(facts.bound(0) * facts.bound(1) * terms, terms)
    return summed(facts.bound(0) * facts.largest_sum(1, kept_axis), terms)


def total_bound(facts: ValueFacts, terms: int) -> float:
    """Return the bound of sums of ``terms`` elements of the first operand."""
    return summed(facts.bound(0) * terms, terms)


def mean_bound(facts: ValueFacts, terms: int) -> float:
    """Return the bound of means of ``terms`` elements of the first operand, if the sums do not overflow."""
    total = total_bound(facts, terms)
    return summed(facts.bound(0), terms) if total <= LARGEST else total
