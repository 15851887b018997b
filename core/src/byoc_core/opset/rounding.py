"""The permitted deviation of an op's results from the exact results: rules and figures.

- *movement*: the op only moves data, so the result is bit for bit the result of the reference kernel;
- *equal*: integers and truth values equal the values of the reference kernel;
- *ulp*: each element is within a number of units in the last place (ULP) of the result in float64;
- *sum*: each element is within ``gamma_K * sum |a||b|`` of the result in float64, ``gamma_K = K*u / (1 - K*u)``, ``K``
  the number of operations behind an element (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1);
- *norm*: no bound is known for each element; the error follows from the condition of the op and from ``sqrt(K)``
  roundings of the result.

Source of the ULPs of functions: the OpenCL C Specification 3.0, section 7.4, "Relative Error as ULPs", table "ULP
values for single precision built-in math functions" (of the full profile): the accuracy of devices of all kinds.
Formulas have the bounds of the contained functions, and half a unit for each other operation.
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

Reason for the figure: if terms cancel, an error of an ULP of the largest term is no fault of an implementation.
"""


OpenElements = Callable[[Sequence[NDArray], Mapping[str, Any]], NDArray]
"""Return for each element of an op's result, or once for all, whether the op leaves the element undefined.

Arguments are the operands, in float64 or as given integers, and the attributes.
"""


class Rule(Enum):
    """The kind of permitted deviation of an op's result."""

    MOVEMENT = "movement"
    EQUAL = "equal"
    ULP = "ulp"
    SUM = "sum"
    NORM = "norm"


@dataclass(frozen=True, slots=True)
class Rounding:
    """The permitted error of an implementation of an op.

    Attributes:
        rule: of floating-point results.
        ulps: under ``Rule.ULP``, the largest error of an element in ULP of the element's magnitude, in 32 and 64 bits.
        is_chain: under ``Rule.ULP``, whether an implementation takes several steps, each with possible rounding.
        magnitude: under ``Rule.ULP``, the largest term of the formula if terms cancel; by default the result.
        is_normwise: under ``Rule.SUM``, whether fast algorithms (Winograd, FFT) mix neighbours: stable for the whole
            result, not for each element (Higham, chapter 23). The largest ``sum |a||b|`` then counts for all elements.
        integers: the rule if no result is a float: rounding to an integer yields another number if the quotient
            before rounding is off by one unit.
        open_elements: the elements left undefined by the op: no result there is wrong. By default none.
        skips_zeros: whether an implementation may skip elements with weight zero: the effect of a NaN there is open.
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
"""The result is a number held by an operand, or representable without rounding."""
ROUNDED = Rounding(Rule.ULP, 0.5)
"""A single operation, correctly rounded by IEEE 754."""
SUM = Rounding(Rule.SUM)
"""A sum of products of the operands."""
NORMWISE_SUM = Rounding(Rule.SUM, is_normwise=True)
"""A sum of products with fast algorithms permitted."""
MOVEMENT = Rounding(Rule.MOVEMENT)
"""The op only moves data."""
NORM = Rounding(Rule.NORM)
"""No bound is known for each element."""


def nan_is_open(operands: Sequence[NDArray], attrs: Mapping[str, Any]) -> NDArray:
    """Return the open elements of ops with undefined results for NaN."""
    return np.isnan(operands[0])


def result_or_one(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    """Return the magnitude of formulas with a term of 1."""
    return np.asarray(np.maximum(np.abs(y), 1.0))


def result_or_operand(x: NDArray, y: NDArray, attrs: Mapping[str, Any]) -> NDArray:
    """Return the magnitude of formulas with a term as large as the operand."""
    return np.asarray(np.maximum(np.abs(y), np.abs(x)))
