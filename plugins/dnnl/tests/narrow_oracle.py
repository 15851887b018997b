"""What a kernel may give that computes on a narrow float in float32 and rounds once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import float_limits, to_numpy

__all__ = ["is_rounded_once"]

NDArray = npt.NDArray[Any]


def is_rounded_once(found: NDArray, exact: NDArray, error: npt.ArrayLike, dtype: str) -> NDArray:
    """Return for each element whether it is a number within ``error`` of the exact one, rounded once.

    Rounding is monotone, so the result lies between the rounded ends of the interval; an end beyond the largest number
    rounds to infinity, as the result does. A result below the smallest normal number may be flushed to zero. NaN wants
    NaN.
    """
    low, high = (_rounded(exact + sign * np.asarray(error), dtype) for sign in (-1, 1))
    given = found.astype(np.float64)
    smallest = float_limits(dtype).smallest_normal
    is_flushed = (given == 0) & (np.minimum(np.abs(low), np.abs(high)) < smallest)
    return np.where(np.isnan(exact), np.isnan(given), ((low <= given) & (given <= high)) | is_flushed)


def _rounded(exact: NDArray, dtype: str) -> NDArray:
    with np.errstate(over="ignore"):
        return exact.astype(to_numpy(dtype)).astype(np.float64)
