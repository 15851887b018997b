"""Numbers in float64 with bounds of the float32 error: running error analysis (Higham, section 3.3).

Each operation propagates the errors of the operands and adds a rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from plugins.dnnl.tests.dnnl_region import TINY, UNIT

NDArray = npt.NDArray[Any]


@dataclass(frozen=True)
class Bounded:
    """Values, with the largest float32 error of each."""

    value: NDArray
    error: NDArray

    @classmethod
    def exact(cls, array: NDArray) -> Bounded:
        """Return numbers exact in float32."""
        wide = array.astype(np.float64)
        return cls(wide, np.zeros_like(wide))

    def __add__(self, other: Bounded) -> Bounded:
        return _rounded(self.value + other.value, self.error + other.error)

    def __mul__(self, other: Bounded) -> Bounded:
        mine, theirs = (np.abs(x.value) for x in (self, other))
        grown = mine * other.error + theirs * self.error + self.error * other.error
        return _rounded(self.value * other.value, grown)

    def complement(self) -> Bounded:
        """Return 1 minus the value."""
        return _rounded(1 - self.value, self.error)

    def sigmoid(self) -> Bounded:
        """Return the logistic function: the slope is at most 1/4, the own error 8 units in the last place of 1."""
        value = 1 / (1 + np.exp(-self.value))
        return Bounded(value, self.error / 4 + 16 * UNIT)

    def tanh(self) -> Bounded:
        """Return the hyperbolic tangent: the slope is at most 1, the own error 5 units in the last place of 1."""
        return Bounded(np.tanh(self.value), self.error + 10 * UNIT)

    def columns(self, start: int, stop: int) -> Bounded:
        """Return some of the columns."""
        return Bounded(self.value[:, start:stop], self.error[:, start:stop])


def sum_of_products(pairs: Sequence[tuple[Bounded, NDArray]], biases: Sequence[NDArray]) -> Bounded:
    """Return ``x @ matrix.T`` for each pair, and biases, added in any order: ``gamma_K`` of all magnitudes."""
    length = sum(matrix.shape[1] for _, matrix in pairs) + len(pairs) + len(biases)
    gamma = length * UNIT / (1 - length * UNIT)
    zero = np.zeros((len(pairs[0][0].value), len(biases[0])))
    value, magnitude, carried = zero + sum(biases), zero + sum(map(np.abs, biases)), zero
    for x, matrix in pairs:
        value = value + x.value @ matrix.T
        magnitude = magnitude + (np.abs(x.value) + x.error) @ np.abs(matrix).T
        carried = carried + x.error @ np.abs(matrix).T
    return Bounded(value, carried + gamma * magnitude + length * TINY)


def _rounded(value: NDArray, error: NDArray) -> Bounded:
    return Bounded(value, error + UNIT * (np.abs(value) + error) + TINY)
