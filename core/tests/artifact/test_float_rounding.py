"""Rounding of float64: the nearest number of each type, found by exact arithmetic."""

from __future__ import annotations

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from byoc_core.artifact.float_rounding import round_floats
from byoc_core.dtypes import float_limits, to_numpy
from hypothesis import given
from hypothesis import strategies as st

SMALL = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "bfloat16", "float16")


@cache
def magnitudes(dtype: str) -> list[float]:
    """Return the finite numbers from 0, in order; the index of a number is its bits."""
    target = to_numpy(dtype)
    bits = np.arange(1 << (8 * target.itemsize - 1), dtype=f"u{target.itemsize}")
    with np.errstate(invalid="ignore"):  # NaN
        numbers: list[float] = bits.view(target).astype(np.float64).tolist()
    return numbers[: sum(map(math.isfinite, numbers))]


def nearest(value: float, dtype: str) -> float:
    numbers = magnitudes(dtype)
    index = bisect_left(numbers, abs(value))
    if numbers[index] == abs(value):
        return value
    low, high = (Fraction(number) for number in numbers[index - 1 : index + 1])
    middle = (low + high) / 2
    is_down = Fraction(abs(value)) < middle or (Fraction(abs(value)) == middle and index % 2 == 1)
    return math.copysign(float(low if is_down else high), value)


@pytest.mark.parametrize("dtype", SMALL)
@given(st.data())
def test_numbers_near_midpoints_are_rounded_to_the_nearest(dtype: str, data: st.DataObject) -> None:
    numbers = magnitudes(dtype)
    index = data.draw(st.integers(0, len(numbers) - 2))
    middle = (numbers[index] + numbers[index + 1]) / 2
    steps = data.draw(st.integers(-2, 2))
    value = middle
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.copysign(math.inf, steps))
    value *= data.draw(st.sampled_from((-1.0, 1.0)))
    (found,) = round_floats(np.array([value]), dtype).astype(np.float64).tolist()
    assert found == nearest(value, dtype)


@pytest.mark.parametrize("dtype", [*SMALL, "float32", "float64"])
def test_numbers_beyond_the_range_are_not_finite(dtype: str) -> None:
    wide = np.array([math.inf, -math.inf, math.nan])
    found = round_floats(wide, dtype).astype(np.float64)
    assert not np.isfinite(found).any()
    assert round_floats(np.array([[5.0, -0.0]]), dtype).astype(np.float64).tolist() == [[5.0, 0.0]]
    if dtype != "float64":
        assert not np.isfinite(round_floats(np.array([8 * float_limits(dtype).largest]), dtype).astype(np.float64))
