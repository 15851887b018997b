"""Elementwise kernels against float64 functions (ULP bounds), ONNX Runtime (integers) and IEEE special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from byoc_core.kernels.error_function import erf64, erfc64
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

pytestmark = pytest.mark.lowest

ORACLES = {
    "not_equal": "numpy.not_equal",
}
"""The oracles of ops missing in ONNX Runtime."""


def _ulps(result: NDArray, exact: NDArray) -> float:
    """Return the largest distance in units of the last place of the result's dtype."""
    expected = np.asarray(exact, np.float64)
    unit = np.spacing(np.abs(expected).astype(result.dtype)).astype(np.float64)
    return float(np.max(np.abs(result.astype(np.float64) - expected) / unit))


def _gelu_exact(x: NDArray) -> Any:
    return np.array([0.5 * v * math.erfc(-v * math.sqrt(0.5)) for v in x])


def _gelu_tanh_exact(x: NDArray) -> Any:
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return x * special.expit(2 * u)


_FUNCTIONS: list[tuple[str, dict[str, Any], Callable[[Any], Any], float, float, float]] = [
    ("exp", {}, np.exp, -80, 80, 2.52),  # what numpy promises of its vectorised exp
    ("log", {}, np.log, 1e-30, 1e30, 2),
    ("sqrt", {}, np.sqrt, 0, 1e30, 0.5),
    ("tanh", {}, np.tanh, -10, 10, 2),
    ("sigmoid", {}, special.expit, -80, 80, 4),
    ("erf", {}, special.erf, -5, 5, 0.51),
    ("abs", {}, np.abs, -10, 10, 0),
    ("negative", {}, np.negative, -10, 10, 0),
    ("nn.gelu", {"approximate": "none"}, _gelu_exact, -10, 10, 0.51),
    ("nn.gelu", {"approximate": "tanh"}, _gelu_tanh_exact, -4, 10, 0.51),
    ("nn.leaky_relu", {"alpha": 0.25}, lambda x: np.where(x < 0, x / 4, x), -10, 10, 0),
]


@pytest.mark.parametrize(("name", "attrs", "exact", "low", "high", "bound"), _FUNCTIONS)
def test_function_is_within_its_ulp_bound_of_float64(
    name: str, attrs: dict[str, Any], exact: Callable[[Any], Any], low: float, high: float, bound: float
) -> None:
    x = np.random.default_rng(7).uniform(low, high, 20_000).astype(np.float32)
    result = KERNELS[name](x, **attrs)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float32
    assert _ulps(result, exact(x.astype(np.float64))) <= bound


def test_erf_and_erfc_are_accurate_in_float64() -> None:
    x = np.concatenate([np.linspace(-6, 6, 40_001), np.linspace(-0.5, 0.5, 10_001), [-30.0, 26.0, 1e-300]])
    exact_erf = np.array([math.erf(v) for v in x])
    exact_erfc = np.array([math.erfc(v) for v in x])
    assert _ulps(erf64(x), exact_erf) <= 4
    assert _ulps(erfc64(x), exact_erfc) <= 8


def test_erf_special_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0])
    np.testing.assert_array_equal(erf64(x), [np.nan, 1.0, -1.0, -0.0])
    assert np.signbit(erf64(x)[3])
    np.testing.assert_array_equal(erfc64(x), [np.nan, 0.0, 2.0, 1.0])


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid", "erf", "nn.relu", "nn.gelu", "sqrt", "log", "negative"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_float_types_are_kept_and_special_values_do_not_warn(name: str, dtype: str) -> None:
    kind: Any = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    x = np.array([np.nan, np.inf, -np.inf, -1.0, -0.0, 0.0, 60000.0], np.float32).astype(kind)
    attrs = {"approximate": "none"} if name == "nn.gelu" else {}
    result = KERNELS[name](x, **attrs)
    assert isinstance(result, np.ndarray)
    assert result.dtype == kind
    assert np.isnan(result[0].astype(np.float32))


def test_gelu_of_minus_infinity_is_zero() -> None:
    x = np.array([-np.inf, np.inf], np.float32)
    for approximate in ("none", "tanh"):
        np.testing.assert_array_equal(KERNELS["nn.gelu"](x, approximate=approximate), [0.0, np.inf])


_INT_PAIRS = (
    [7, -7, 7, -7, 6, -6, 0, 5, -128, 127],
    [2, 2, -2, -2, 3, 3, 4, 7, 3, -1],
)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integer_division_truncates_as_onnx_does(dtype: str, run_node: Callable[..., list[Any]]) -> None:
    x, y = (np.array(values, dtype) for values in _INT_PAIRS)
    result = KERNELS["divide"](x, y)
    assert isinstance(result, np.ndarray)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result, [math.trunc(a / b) for a, b in zip(*_INT_PAIRS, strict=True)])
    if dtype != "int8":
        np.testing.assert_array_equal(result, run_node("Div", [x, y])[0])


def test_integer_division_has_an_answer_where_c_has_none() -> None:
    x, y = np.array([5, -128], np.int8), np.array([0, -1], np.int8)
    np.testing.assert_array_equal(KERNELS["divide"](x, y), [0, -128])


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_integer_division_law(x: int, y: int) -> None:
    (result,) = np.asarray(KERNELS["divide"](np.array([x], np.int8), np.array([y], np.int8)))
    if y and (x, y) != (-128, -1):
        assert result == math.trunc(x / y)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_power_truncates_negative_exponents(dtype: str) -> None:
    x = np.array([2, 3, -2, 1, -1, -1, 5, 0, 0, 2], dtype)
    y = np.array([10, 3, 3, -4, -3, -2, -1, 0, -1, 0], dtype)
    np.testing.assert_array_equal(KERNELS["power"](x, y), [1024, 27, -8, 1, -1, 1, 0, 1, 0, 1])


def test_unsigned_power_and_division() -> None:
    x, y = np.array([7, 2, 255], np.uint8), np.array([2, 7, 16], np.uint8)
    np.testing.assert_array_equal(KERNELS["power"](x, y), [49, 128, pow(255, 16, 256)])
    np.testing.assert_array_equal(KERNELS["divide"](x, y), [3, 0, 15])


_BINARY = {
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
}


@pytest.mark.parametrize("exponent", [0.5, -0.5, 0.25, 1.5, -1.0, 0.0, 1.0, 2.0, 3.0, np.inf, -np.inf, np.nan])
def test_special_powers_equal_onnx_runtime(exponent: float, run_node: Callable[..., list[Any]]) -> None:
    """numpy takes a square root for an exponent of a half: -0 and NaN for -0 and negative infinity."""
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 4.0, -4.0], np.float32)
    for y in (np.array(exponent, np.float32), np.full(x.shape, exponent, np.float32)):
        (expected,) = run_node("Pow", [x, y])
        result = KERNELS["power"](x, y)
        np.testing.assert_allclose(result, expected, rtol=2**-22, atol=0)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result[numbers]), np.signbit(expected[numbers]))


@pytest.mark.parametrize("name", sorted(_BINARY))
def test_binary_kernels_equal_onnx_runtime_with_broadcasting(name: str, run_node: Callable[..., list[Any]]) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(1, 9, (3, 1, 5)).astype(np.float32)
    y = rng.integers(1, 5, (4, 1)).astype(np.float32)
    (expected,) = run_node(_BINARY[name], [x, y])
    result = KERNELS[name](x, y)
    assert isinstance(result, np.ndarray)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, rtol=2**-22 if name == "power" else 0, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "uint64", "bool"])
def test_not_equal_is_that_of_numpy(dtype: str) -> None:
    x = np.array([0.0, -0.0, 1.0, np.nan if dtype == "float32" else 2**60]).astype(dtype)
    result = KERNELS["not_equal"](x[:, np.newaxis], x)
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, np.not_equal(x[:, np.newaxis], x), strict=True)


@pytest.mark.parametrize(("name", "op_type"), [("logical_and", "And"), ("logical_or", "Or")])
def test_logic_equals_onnx_runtime(name: str, op_type: str, run_node: Callable[..., list[Any]]) -> None:
    x, y = np.array([[True], [False]]), np.array([True, False])
    np.testing.assert_array_equal(KERNELS[name](x, y), run_node(op_type, [x, y])[0])


def test_logical_not_where_and_scalars_stay_arrays() -> None:
    true = np.array(True)
    assert isinstance(KERNELS["logical_not"](true), np.ndarray)
    scalar = KERNELS["add"](np.array(1, np.int8), np.array(2, np.int8))
    assert isinstance(scalar, np.ndarray)
    assert scalar.shape == ()
    np.testing.assert_array_equal(
        KERNELS["where"](np.array([True, False]), np.array([1, 2], np.int8), np.array(9, np.int8)), [1, 9]
    )


def test_maximum_keeps_nan() -> None:
    x, y = np.array([np.nan, 1.0], np.float32), np.array([1.0, np.nan], np.float32)
    assert np.isnan(KERNELS["maximum"](x, y)).all()
    assert np.isnan(KERNELS["minimum"](x, y)).all()


@pytest.mark.parametrize(("low", "high"), [(0.0, 6.0), (None, 1.5), (-1.0, None), (None, None)])
def test_clip_equals_onnx_runtime(low: float | None, high: float | None, run_node: Callable[..., list[Any]]) -> None:
    x = np.linspace(-8, 8, 33, dtype=np.float32)
    ends = [np.float32(-np.inf if low is None else low), np.float32(np.inf if high is None else high)]
    np.testing.assert_array_equal(KERNELS["clip"](x, min=low, max=high), run_node("Clip", [x, *ends])[0])


@pytest.mark.parametrize("target", ["int8", "int32", "float16", "float64", "bool", "bfloat16", "uint8"])
def test_cast_truncates_and_never_warns(target: str) -> None:
    x = np.array([0.0, -0.0, 1.9, 100.4], np.float32)
    result = KERNELS["cast"](x, dtype=target)
    assert isinstance(result, np.ndarray)
    assert result.dtype.name == target
    expected = [0, 0, 1, 1] if target == "bool" else ([0, 0, 1, 100] if "int" in target else x)
    np.testing.assert_allclose(result.astype(np.float64), expected, rtol=2**-8)
    KERNELS["cast"](np.array([np.nan, np.inf, 1e30], np.float32), dtype=target)
