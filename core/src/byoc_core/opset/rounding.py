"""How far a right implementation of an op may be from the exact result: the rule of an op, and the rule's figures.

- *movement*: the op only moves data, so the result is bit for bit the result of the reference kernel;
- *equal*: integers and truth values are those of the reference kernel;
- *ulp*: each element is within a number of units in the last place (ULP) of the result in float64;
- *sum*: each element is within ``gamma_K * sum |a||b|`` of the result in float64, ``gamma_K = K*u / (1 - K*u)``, ``K``
  the number of operations behind an element (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1);
- *norm*: no bound is known for each element; the error follows from the condition of the op and from ``sqrt(K)``
  roundings of the result.

Source of the ULPs of functions: the OpenCL C Specification 3.0, section 7.4, "Relative Error as ULPs", table "ULP
values for single precision built-in math functions" (of the full profile): the accuracy that devices of all kinds keep.
Formulas have the bounds of the functions in them, and half a unit for each other operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from byoc_core.kernels.precision import NDArray

__all__ = [
    "EXACT",
    "MOVEMENT",
    "NORM",
    "NORMWISE_SUM",
    "ROUNDED",
    "SUM",
    "Magnitude",
    "OpenElements",
    "Rounding",
    "Rule",
    "nan_is_open",
    "result_or_one",
    "result_or_operand",
]

Magnitude = Callable[[NDArray, NDArray, Mapping[str, Any]], NDArray]
"""Return the largest term of an op's formula for each element, from first operand, result and attributes.

Source of the figure: where terms cancel, an error of an ULP of the largest term is no fault of an implementation.
"""


OpenElements = Callable[[Sequence[NDArray], Mapping[str, Any]], NDArray]
"""Return for each element of an op's result, or once for all, whether the op says nothing about it.

From operands, in float64 or integers as they are, and attributes.
"""


class Rule(Enum):
    """How much a right result of an op may be off."""

    MOVEMENT = "movement"
    EQUAL = "equal"
    ULP = "ulp"
    SUM = "sum"
    NORM = "norm"


@dataclass(frozen=True, slots=True)
class Rounding:
    """The error that a right implementation of an op may have.

    Attributes:
        rule: of floating-point results.
        ulps: under ``Rule.ULP``, the largest error of an element in ULP of its magnitude, in 32 and 64 bits.
        is_chain: under ``Rule.ULP``, whether an implementation takes several steps, each of which may round.
        magnitude: under ``Rule.ULP``, the largest term of the formula where terms cancel; by default the result.
        is_normwise: under ``Rule.SUM``, whether fast algorithms (Winograd, FFT) mix neighbours: stable for the whole
            result, not for each element (Higham, chapter 23), so that the largest ``sum |a||b|`` counts for all.
        integers: the rule where no result is a float: rounding to an integer is another number where the quotient
            before it is off by one unit.
        open_elements: the elements about which the op says nothing: no result there is wrong. By default none.
        skips_zeros: whether an implementation may skip what it weighs by zero: whether a NaN there counts is open.
    """

    rule: Rule
    ulps: float = 0.0
    is_chain: bool = False
    magnitude: Magnitude | None = None
    is_normwise: bool = False
    integers: Rule = Rule.EQUAL
    open_elements: OpenElements | None = None
    skips_zeros: bool = False


EXACT = Rounding(Rule.ULP, 0.0)
"""The result is a number that an operand holds, or that any floating-point type holds."""
ROUNDED = Rounding(Rule.ULP, 0.5)
"""One operation that IEEE 754 rounds correctly."""
SUM = Rounding(Rule.SUM)
"""A sum of products of the operands."""
NORMWISE_SUM = Rounding(Rule.SUM, is_normwise=True)
"""A sum of products that fast algorithms may compute."""
MOVEMENT = Rounding(Rule.MOVEMENT)
"""The op only moves data."""
NORM = Rounding(Rule.NORM)
"""No bound is known for each element."""


def nan_is_open(operands: Sequence[NDArray], attrs: Mapping[str, Any]) -> NDArray:
    """Return the open elements of ops that do not say what they make of NaN."""
    return np.isnan(operands[0])


def result_or_one(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    """Return the magnitude of formulas with a term of 1."""
    return np.asarray(np.maximum(np.abs(y), 1.0))


def result_or_operand(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    """Return the magnitude of formulas with a term as large as the operand."""
    return np.asarray(np.maximum(np.abs(y), np.abs(x)))
