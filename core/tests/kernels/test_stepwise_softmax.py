"""Softmax by steps: each step is computed in float64 and rounded to the dtype; short rows equal ONNX's reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import float_limits, to_numpy
from byoc_core.opset.families import KERNELS
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

ORACLES = {
    "nn.stepwise_softmax": "numpy.sum of ml_dtypes, and float64",
}
"""The oracles of ops missing in ONNX Runtime."""

NDArray = npt.NDArray[Any]
NARROW = ("bfloat16", "float16")
EXP_ERROR = 2.0**-21
"""A bound above any relative error of an exponential in float32."""


def _softmax(x: NDArray, axis: int = -1) -> NDArray:
    return np.asarray(KERNELS["nn.stepwise_softmax"](x, axis=axis))


def _rounding(dtype: str) -> Callable[[NDArray], NDArray]:
    """Return a function rounding float64 to a dtype by way of float32, if this does not change the outcome."""

    def rounded(exact: NDArray) -> NDArray:
        return np.asarray(exact).astype(np.float32).astype(to_numpy(dtype)).astype(np.float64)

    return rounded


def _sum_of_bfloat16(terms: list[float], rounded: Callable[[Any], Any]) -> float:
    """Return the sum by the recursion in the op's text."""
    if len(terms) > 8:
        half = (len(terms) + 1) // 2
        folded = [float(rounded(a + b)) for a, b in zip(terms, terms[half:], strict=False)]
        return _sum_of_bfloat16(folded + terms[len(folded) : half], rounded)
    total = terms[0]
    for term in terms[1:]:
        total = float(rounded(total + term))
    return total


def _expected(row: NDArray, dtype: str) -> NDArray:
    """Return the result of a row in float64; reject rows with roundings sensitive to an error of float32."""
    rounded = _rounding(dtype)
    exact = np.exp(rounded(row - row.max()))
    low, high = rounded(exact * (1 - EXP_ERROR)), rounded(exact * (1 + EXP_ERROR))
    assume(bool((low == high).all()))
    if dtype == "bfloat16":
        total = _sum_of_bfloat16(low.tolist(), rounded)
    else:
        error = row.size * 2.0**-23 * low.sum()
        total = float(rounded(low.sum()))
        assume(rounded(low.sum() - error) == rounded(low.sum() + error))
    return rounded(low / total)


@pytest.mark.parametrize("dtype", NARROW)
@settings(deadline=None)
@given(size=st.integers(1, 70), scale=st.sampled_from([0.1, 1.0, 8.0]), seed=st.integers(0, 9999))
def test_each_step_is_that_of_float64_rounded_once(dtype: str, size: int, scale: float, seed: int) -> None:
    x = (np.random.default_rng(seed).standard_normal(size) * scale).astype(to_numpy(dtype))
    expected = _expected(x.astype(np.float64), dtype)
    found = _softmax(x)
    assert found.dtype == x.dtype
    normal = expected >= float_limits(dtype).smallest_normal
    np.testing.assert_array_equal(found.astype(np.float64)[normal], expected[normal])


@pytest.mark.parametrize("dtype", NARROW)
@settings(deadline=None)
@given(size=st.integers(1, 8), seed=st.integers(0, 9999))
def test_short_rows_are_those_of_onnx(dtype: str, size: int, seed: int) -> None:
    """numpy adds few numbers of bfloat16 in their order, and rounds each sum."""
    x = (np.random.default_rng(seed).integers(-32, 33, size) / 8).astype(to_numpy(dtype))
    _expected(x.astype(np.float64), dtype)
    powers = np.exp(x - x.max())
    np.testing.assert_array_equal(_softmax(x), powers / np.sum(powers))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("size", [1, 9, 1000, 10_000])
def test_shares_of_long_rows_sum_to_about_one(dtype: str, size: int) -> None:
    """Sequential sums would stay at 256 in bfloat16: adding 1 changes nothing there."""
    x = np.zeros(size, to_numpy(dtype))
    x[size // 2 :] = -1
    unit = float_limits(dtype).unit_roundoff
    # An addition for each halving, up to seven in order, and the roundings of exponential and quotient.
    num_roundings = max(size.bit_length(), 8) + 8 if dtype == "bfloat16" else 4
    bound = (1 + unit) ** num_roundings - 1 + size * 2.0**-24
    assert abs(_softmax(x).astype(np.float64).sum() - 1) <= bound


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_any_axis(dtype: str, axis: int) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5, 4)).astype(to_numpy(dtype))
    moved = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    np.testing.assert_array_equal(_softmax(x, axis), np.moveaxis(_softmax(moved), -1, axis))


@pytest.mark.parametrize("dtype", NARROW)
def test_rows_that_are_not_finite(dtype: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[0, -inf, 0], [-inf, -inf, -inf], [0, nan, 1], [0, inf, 1]]).astype(to_numpy(dtype))
    found = _softmax(x).astype(np.float64)
    np.testing.assert_array_equal(found, [[0.5, 0, 0.5], *[[nan] * 3] * 3])


@pytest.mark.parametrize("dtype", [*NARROW, "float32", "float64"])
def test_rows_that_see_nothing_may_be_zeros(dtype: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[0, -inf, 0], [-inf, -inf, -inf], [-inf, nan, -inf], [0, inf, 1]]).astype(to_numpy(dtype))
    found = np.asarray(KERNELS["nn.stepwise_softmax"](x, axis=1, zero_unseen=True)).astype(np.float64)
    np.testing.assert_array_equal(found, [[0.5, 0, 0.5], [0, 0, 0], *[[nan] * 3] * 2])


def test_no_elements() -> None:
    assert _softmax(np.zeros((2, 0), np.float16)).shape == (2, 0)
