"""Kernels of mathematical functions and activations against float64 (ULP bounds), and their special values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from scipy import special

pytestmark = pytest.mark.lowest

ORACLES = {
    "nn.swish": "scipy.special.expit",
}
"""The oracles of ops missing in ONNX Runtime."""


def _ulps(result: NDArray, exact: NDArray) -> float:
    expected = np.asarray(exact, np.float64)
    unit = np.spacing(np.abs(expected).astype(result.dtype)).astype(np.float64)
    return float(np.max(np.abs(result.astype(np.float64) - expected) / unit))


_VECTORISED = 4.0  # what numpy promises of its vectorised functions
_ROUNDED_ONCE = 0.51
_SELU = (1.6732632423543772, 1.0507009873554805)

_FUNCTIONS: list[tuple[str, Callable[[Any], Any], float, float, float]] = [
    ("sin", np.sin, -10, 10, _VECTORISED),
    ("cos", np.cos, -10, 10, _VECTORISED),
    ("tan", np.tan, -10, 10, _VECTORISED),
    ("asin", np.arcsin, -1, 1, _VECTORISED),
    ("acos", np.arccos, -1, 1, _VECTORISED),
    ("atan", np.arctan, -10, 10, _VECTORISED),
    ("sinh", np.sinh, -20, 20, _VECTORISED),
    ("cosh", np.cosh, -20, 20, _VECTORISED),
    ("asinh", np.arcsinh, -20, 20, _VECTORISED),
    ("acosh", np.arccosh, 1, 20, _VECTORISED),
    ("atanh", np.arctanh, -1, 1, _VECTORISED),
    ("reciprocal", np.reciprocal, 0.1, 20, 0.5),
    ("floor", np.floor, -20, 20, 0),
    ("ceil", np.ceil, -20, 20, 0),
    ("round", np.rint, -20, 20, 0),
    ("nn.softplus", lambda x: np.log1p(np.exp(x)), -20, 20, _ROUNDED_ONCE),
    ("nn.softsign", lambda x: x / (1 + np.abs(x)), -20, 20, _ROUNDED_ONCE),
    ("nn.elu", lambda x: np.where(x < 0, np.expm1(x), x), -20, 20, _ROUNDED_ONCE),
    ("nn.celu", lambda x: np.where(x < 0, np.expm1(x), x), -20, 20, _ROUNDED_ONCE),
    ("nn.selu", lambda x: _SELU[1] * np.where(x < 0, _SELU[0] * np.expm1(x), x), -20, 20, _ROUNDED_ONCE),
    ("nn.hard_sigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1), -20, 20, _ROUNDED_ONCE),
    ("nn.hard_swish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), -20, 20, _ROUNDED_ONCE),
    ("nn.swish", lambda x: x * special.expit(x), -20, 20, _ROUNDED_ONCE),
    ("nn.mish", lambda x: x * np.tanh(np.log1p(np.exp(x))), -20, 20, _ROUNDED_ONCE),
    ("nn.thresholded_relu", lambda x: np.where(x > 1, x, 0), -20, 20, 0),
    ("nn.shrink", lambda x: np.where(np.abs(x) > 0.5, x, 0), -20, 20, 0),
]


@pytest.mark.parametrize(("name", "exact", "low", "high", "bound"), _FUNCTIONS)
def test_function_is_within_its_ulp_bound_of_float64(
    name: str, exact: Callable[[Any], Any], low: float, high: float, bound: float
) -> None:
    x = np.random.default_rng(7).uniform(low, high, 20_000).astype(np.float32)
    result = np.asarray(KERNELS[name](x, **default_ops()[name].normalise_attrs({})))
    assert result.dtype == np.float32
    assert _ulps(result, exact(x.astype(np.float64))) <= bound


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("nn.softplus", 0.0, math.inf),
        ("nn.softsign", -1.0, 1.0),
        ("nn.elu", -1.0, math.inf),
        ("nn.celu", -1.0, math.inf),
        ("nn.hard_sigmoid", 0.0, 1.0),
        ("nn.hard_swish", 0.0, math.inf),
        ("nn.swish", 0.0, math.inf),
        ("nn.mish", 0.0, math.inf),
    ],
)
def test_activations_have_their_limits_at_the_infinities(name: str, low: float, high: float) -> None:
    x = np.array([-np.inf, np.inf, np.nan], np.float32)
    result = KERNELS[name](x, **default_ops()[name].normalise_attrs({}))
    np.testing.assert_array_equal(result, np.array([low, high, np.nan], np.float32))


def test_round_goes_to_the_even_one_and_sign_keeps_nan() -> None:
    np.testing.assert_array_equal(KERNELS["round"](np.array([0.5, 1.5, -2.5])), [0, 2, -2])
    np.testing.assert_array_equal(KERNELS["sign"](np.array([-2.0, 0.0, np.nan])), [-1, 0, np.nan])


def test_shifts_beyond_the_width_and_remainders_of_zero() -> None:
    x = np.array([-3, 5], np.int8)
    np.testing.assert_array_equal(KERNELS["left_shift"](x, np.array([8, 9], np.int8)), [0, 0])
    np.testing.assert_array_equal(KERNELS["right_shift"](x, np.array([8, 9], np.int8)), [-1, 0])
    for fmod in (False, True):
        np.testing.assert_array_equal(KERNELS["mod"](x, np.zeros_like(x), fmod=fmod), [0, 0])


@pytest.mark.parametrize("name", ["floor", "sin", "nn.elu", "nn.swish", "isnan"])
def test_functions_of_integers_are_refused(name: str) -> None:
    from byoc_core.errors import IRTypeError
    from byoc_core.ir.builder import FunctionBuilder
    from byoc_core.opset.types import tensor

    builder = FunctionBuilder("f", ops=default_ops())
    value = builder.param("a", tensor((2,), "int32"))
    with pytest.raises(IRTypeError) as caught:
        builder.bind(name, [value], {})
    assert str(caught.value) == (
        f"op `{name}`, operand `x=a`: has a dtype not accepted by the op; got int32, expected a dtype of kind "
        "floating-point"
    )
