"""Comparison of results: whether two functions compute the same op, irrespective of accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from byoc_core.dtypes import dtype_info

__all__ = ["agree"]

Array = npt.NDArray[Any]


def agree(first: Sequence[Array], second: Sequence[Array]) -> bool:
    """Return whether results agree: dtypes and shapes, and for floats half of the digits of the largest element.

    Level 2 checks the accuracy of each element; a mistaken op differs by more than rounding.
    """
    return len(first) == len(second) and all(map(_agree, first, second))


def _agree(first: Array, second: Array) -> bool:
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if dtype_info(first.dtype.name).kind != "float":
        return bool(np.array_equal(first, second))
    values, other_values = first.astype(np.float64), second.astype(np.float64)
    finite = np.isfinite(values)
    if not np.array_equal(values[~finite], other_values[~finite], equal_nan=True):
        return False
    scale = np.max(np.abs(values[finite]), initial=0.0)
    return bool(np.all(np.abs(values[finite] - other_values[finite]) <= scale * np.sqrt(_unit(first))))


def _unit(array: Array) -> float:
    """Return the distance from 1 to the next number of a float dtype."""
    unity = np.ones((), array.dtype)
    digits = 0
    while (unity + np.asarray(2.0 ** -(digits + 1), array.dtype)).astype(np.float64) > 1.0:
        digits += 1
    return float(2.0**-digits)
