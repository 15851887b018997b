"""The C extension's functions of many numbers: exact for all numbers, with each instruction set of the processor."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.extension import extension, extension_status
from byoc_core.runtime.vector_functions import vector_function
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.interpreter

NDArray = npt.NDArray[Any]
UNIT = 2.0**-24
SUBNORMAL = 2.0**-149
ULPS = {"elu": 2.0, "exp": 1.5, "log": 1.0, "softplus": 2.5}
OPS = {"elu": "nn.elu", "exp": "exp", "log": "log", "softplus": "nn.softplus", "log_softmax": "nn.log_softmax"}
SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, -1e-45, 0.0, -0.0, 1.0], np.float32)
native: Any = extension()
needs_extension = pytest.mark.skipif(native is None, reason=extension_status()[1] or "it is there")

Function = Callable[[NDArray], NDArray]


def _functions(name: str) -> list[Function]:
    """Return a function with each instruction set."""
    return [_at(address) for address in native.VECTOR_FUNCTIONS[name]]


def _at(address: int) -> Function:
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)

    def compute(x: NDArray) -> NDArray:
        memory = np.full(x.size + 2, 7.0, np.float32)
        function(x.ctypes.data, memory[1:].ctypes.data, x.size)
        assert memory[0] == memory[-1] == 7  # nothing around it is written
        return memory[1:-1]

    return compute


def _numbers() -> NDArray:
    """Return numbers of all magnitudes and both signs, special values, and many near the bends of functions."""
    generator = np.random.default_rng(0)
    fractions = generator.integers(0, 1 << 23, (255, 64), dtype=np.uint32)
    fractions[:, 0], fractions[:, 1] = 0, (1 << 23) - 1
    sizes = (fractions | (np.arange(255, dtype=np.uint32)[:, None] << 23)).ravel().view(np.float32)
    bends = np.linspace(-110, 110, 40_001, dtype=np.float32)
    return np.concatenate([sizes, -sizes, bends, 1 + bends / 128, SPECIAL]).astype(np.float32)


def _exact(name: str, x: NDArray, **attrs: float) -> NDArray:
    attrs |= {"alpha": 1.0} if name == "elu" else {}
    with np.errstate(all="ignore"):
        return np.asarray(KERNELS[OPS[name]](x.astype(np.float64), **attrs))


@needs_extension
@pytest.mark.parametrize("name", sorted(ULPS))
def test_functions_of_each_number_keep_their_bounds(name: str) -> None:
    x = _numbers()
    exact = _exact(name, x)
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    for function in _functions(name):
        found = function(x)
        with np.errstate(all="ignore"):
            close = abs(found.astype(np.float64) - exact) <= np.maximum(2 * ULPS[name] * UNIT * abs(exact), SUBNORMAL)
        right = close | (found == rounded) | (np.isnan(found) & np.isnan(rounded))
        assert right.all(), (x[~right][:5], found[~right][:5])


@needs_extension
@pytest.mark.parametrize("name", sorted(ULPS))
@pytest.mark.parametrize("size", [0, 1, 7, 15, 16, 17, 127, 128, 129, 1000])
def test_a_number_has_the_same_result_among_any_number_of_others(name: str, size: int) -> None:
    x = np.random.default_rng(size).standard_normal(1024).astype(np.float32)
    for function in _functions(name):
        np.testing.assert_array_equal(function(x[:size]), function(x)[:size])


def _exact_row(x: NDArray) -> NDArray:
    """Return `log_softmax` of a row in float64, without the 1 in the sum: there, the others may be lost."""
    differences = x.astype(np.float64) - x.max()
    others = np.delete(np.exp(differences), x.argmax()).sum()
    return np.asarray(differences - np.log1p(others))


def _row_bound(x: NDArray, exact: NDArray) -> NDArray:
    """Return the largest distance of `log_softmax` from the exact result (Higham, section 3.1).

    Differences to the largest number are rounded, and exponentials have this error and another of 3 units, or are 0
    below 2**-126; the error of the logarithm of their sum is the mean of these errors, with 8 units of the sum of all
    but one, and 5 of the logarithm.
    """
    differences = x.max() - x.astype(np.float64)
    log_sum = abs(exact + differences)
    mean = np.sum(np.exp(exact) * (differences + 3 + 8), where=differences > 0)
    return np.asarray(UNIT * (differences + mean + 5 * log_sum + 2 * abs(exact)) + x.size * 2.0**-126)


@needs_extension
@settings(max_examples=200, deadline=None)
@given(
    size=st.integers(1, 3000),
    scale=st.sampled_from([1e-3, 1.0, 30.0, 1e4, 1e30]),
    num_tops=st.integers(1, 3),
    seed=st.integers(0, 999),
)
def test_log_softmax_is_as_exact_as_its_operands_differences(size: int, scale: float, num_tops: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = (generator.standard_normal(size) * scale).astype(np.float32)
    x[generator.integers(0, size, num_tops)] = x.max()
    exact = _exact_row(x)
    for function in _functions("log_softmax"):
        assert (abs(function(x) - exact) <= _row_bound(x, exact)).all()


@needs_extension
@pytest.mark.parametrize("size", [20, 1000])
def test_the_number_that_dominates_a_row_has_an_exact_result(size: int) -> None:
    """The exponential there is 1: a sum including this 1 would lose the others."""
    x = np.zeros(size, np.float32)
    x[3] = 50.0
    exact = _exact_row(x)
    assert -1e-18 < exact[3] < -1e-22
    for function in _functions("log_softmax"):
        assert (abs(function(x) - exact) <= _row_bound(x, exact)).all()


@needs_extension
@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("places", [(0,), (49,), (3, 17), range(50)])
def test_rows_that_are_not_finite_give_what_the_kernel_gives(special: float, places: Sequence[int]) -> None:
    x = np.random.default_rng(0).standard_normal(50).astype(np.float32)
    x[list(places)] = special
    expected = _exact("log_softmax", x, axis=0)
    for function in _functions("log_softmax"):
        found = function(x)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
        np.testing.assert_array_equal(np.isinf(found), np.isinf(expected))


@needs_extension
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 200])
def test_a_stepwise_softmax_has_the_bits_of_the_kernel(size: int, dtype: str) -> None:
    """For multiples of a quarter: exponentials of their differences are far from ties, with exact sums."""
    steps = np.arange(17, dtype=np.float32) / 4
    for factor in (1 - 2.0**-20, 1 + 2.0**-20):
        near, exact = ((np.exp(-steps.astype(np.float64)) * by).astype(to_numpy(dtype)) for by in (factor, 1))
        assert (near == exact).all()
    x = np.random.default_rng(size).choice(steps, size)
    expected = np.asarray(KERNELS["nn.stepwise_softmax"](x.astype(to_numpy(dtype)), axis=0))
    for function in _functions(f"stepwise_softmax_{dtype}"):
        np.testing.assert_array_equal(function(x), expected.astype(np.float32))


@needs_extension
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("places", [(0,), (49,), (3, 17), range(50)])
def test_stepwise_rows_that_are_not_finite(special: float, places: Sequence[int], dtype: str) -> None:
    x = np.zeros(50, np.float32)
    x[list(places)] = special
    for suffix, zero_unseen in (("", False), ("_zero_unseen", True)):
        expected = KERNELS["nn.stepwise_softmax"](x.astype(to_numpy(dtype)), axis=0, zero_unseen=zero_unseen)
        for function in _functions(f"stepwise_softmax_{dtype}{suffix}"):
            np.testing.assert_array_equal(function(x), expected.astype(np.float32))


@needs_extension
def test_runtimes_get_the_fastest_of_them() -> None:
    for name, addresses in native.VECTOR_FUNCTIONS.items():
        assert len({*addresses}) == len(addresses)
        assert vector_function(name) == addresses[-1]


def test_without_the_extension_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("byoc_core.runtime.vector_functions.extension", lambda: None)
    assert vector_function("exp") == 0
