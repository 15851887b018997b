"""Regression over measured ops by distance: a Gaussian process.

The expected value at a point is that of C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine
Learning", MIT Press 2006, section 2.2, with the exponential kernel: the correlation falls by a factor of ``e`` for each
:data:`_LENGTH` of distance. Far from all known points, the expected value is the median of the known values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DistanceRegression"]

Floats = npt.NDArray[np.floating[Any]]

_LENGTH, _NOISE = 16.0, 0.02
"""The length of the kernel, and the variance of the noise over that of the values: so the other rows of the shipped
tables predict a row best."""


class DistanceRegression:
    """Expected values from known values and distances.

    Args:
        distances: between the known points, ``(n, n)``: sums of absolute differences, or of other distances with a
            positive definite exponential kernel.
        values: at the known points, ``(n,)``, n at least 1.

    Cost: cubic in the known points, once; linear for an expected value.
    """

    def __init__(self, distances: Floats, values: Floats) -> None:
        self._least, self._largest, self._usual = float(values.min()), float(values.max()), float(np.median(values))
        kernel = np.exp(distances / -_LENGTH)
        kernel[np.diag_indices_from(kernel)] += _NOISE
        self._weights = np.linalg.solve(kernel, values - self._usual)

    def predict(self, distances: Floats) -> float:
        """Return the expected value at distances ``(n,)`` from the known points; never beyond the known values."""
        found = self._usual + float(np.exp(distances / -_LENGTH) @ self._weights)
        return min(max(found, self._least), self._largest)
