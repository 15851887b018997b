"""The oracle of narrow floats, on numbers without a processor: overflow, ties, subnormals, NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import float_limits, to_numpy
from byoc_core.runtime.module import NDArray
from byoc_dnnl.capi import Isa
from byoc_dnnl.precision import lacks_instructions
from hypothesis import given
from hypothesis import strategies as st

from plugins.dnnl.tests.narrow_oracle import (
    gamma,
    is_rounded_once,
    layer_norm_error,
    log_softmax_error,
    narrowed,
    softmax_error,
)

_UNIT = 2.0**-24


def _judge(found: float, exact: float, error: float, dtype: str) -> bool:
    return bool(is_rounded_once(np.array(found).astype(to_numpy(dtype)), np.array(exact), error, dtype))


@pytest.mark.parametrize(
    ("found", "exact", "error", "right"),
    [
        (np.inf, np.exp(13.87), 1.0, True),  # 1.05e6 is beyond float16, whose largest number is 65504
        (65504.0, np.exp(13.87), 1.0, False),
        (np.inf, 65519.0, 0.5, False),  # below the tie with the number after the largest
        (65504.0, 65519.0, 0.5, True),
        (np.inf, 65519.9, 0.5, True),  # the error reaches the tie, so both are right
        (65504.0, 65519.9, 0.5, True),
        (-np.inf, -1e6, 1.0, True),
        (np.inf, -1e6, 1.0, False),
        (np.nan, 1e6, 1.0, False),
        (np.nan, np.nan, 1.0, True),
        (1.0, np.nan, 1.0, False),
        (1.0, 1 + 2.0**-11, 0.0, True),  # a tie goes to even
        (1 + 2.0**-10, 1 + 2.0**-11, 0.0, False),
        (0.0, 2.0**-15, 0.0, True),  # flushed
        (2.0**-15, 2.0**-15, 0.0, True),
        (2.0**-14, 2.0**-15, 0.0, False),
        (0.0, 2.0**-14, 0.0, False),
    ],
)
def test_float16(found: float, exact: float, error: float, right: bool) -> None:
    assert _judge(found, exact, error, "float16") == right


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@given(exact=st.floats(-1e6, 1e6), part=st.floats(-1, 1))
def test_what_is_computed_in_float32_and_rounded_once_is_right(dtype: str, exact: float, part: float) -> None:
    error = 16 * _UNIT * max(abs(exact), 32)
    computed = np.float64(exact + 0.9 * part * error).astype(np.float32)
    with np.errstate(over="ignore"):
        rounded = computed.astype(to_numpy(dtype)).astype(np.float64)
    assert _judge(float(rounded), exact, error, dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@given(exact=st.floats(1e-3, 6e4))
def test_two_units_beside_it_is_wrong(dtype: str, exact: float) -> None:
    """Double rounding, or computation in the narrow type, is noticed."""
    wrong = exact * (1 + 4 * float_limits(dtype).unit_roundoff)
    assert not _judge(wrong, exact, 16 * _UNIT * exact, dtype)


def _softmax(x: NDArray, kind: npt.DTypeLike) -> Any:
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials.astype(kind).astype(x.dtype) / exponentials.sum(-1, keepdims=True, dtype=x.dtype)


def _log_softmax(x: NDArray, _: object) -> Any:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True, dtype=x.dtype))


_SCALE, _SHIFT = np.random.default_rng(1).standard_normal((2, 40))


def _layer_norm(x: NDArray, _: object) -> Any:
    centred = x - x.mean(-1, keepdims=True, dtype=x.dtype)
    variance = (centred * centred).mean(-1, keepdims=True, dtype=x.dtype)
    scale, shift = _SCALE.astype(x.dtype), _SHIFT.astype(x.dtype)
    return centred / np.sqrt(variance + x.dtype.type(1e-5)) * scale + shift


def _product(x: NDArray, _: object) -> Any:
    sums = np.zeros((len(x), len(x)), x.dtype)
    for column in range(x.shape[1]):  # in order, each sum rounded
        sums = sums + x[:, column, None] * x[None, :, column]
    return sums


_ERRORS: dict[str, tuple[Any, Any]] = {
    "softmax": (_softmax, softmax_error),
    "log_softmax": (_log_softmax, lambda x, exact, dtype: log_softmax_error(x, exact, -1)),
    "layer_norm": (_layer_norm, lambda x, exact, dtype: layer_norm_error(x, _SCALE, _SHIFT, 1e-5)),
    "product": (_product, lambda x, exact, dtype: gamma(40) * _product(np.abs(x.astype(np.float64)), None)),
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", _ERRORS)
def test_bounds_tell_float32_from_the_narrow_type(name: str, dtype: str, seed: int) -> None:
    """A float32 result rounded once is within each bound; a result computed in the narrow type is not."""
    compute, error_of = _ERRORS[name]
    kind = to_numpy(dtype)
    x = narrowed(np.random.default_rng(seed).standard_normal((64, 40)), dtype)
    exact = compute(x.astype(np.float64), np.float64)
    error = error_of(x, exact, dtype)
    right = compute(x.astype(np.float32), kind if name == "softmax" else np.float32).astype(kind)
    assert is_rounded_once(right, exact, error, dtype).all()
    assert not is_rounded_once(compute(x, kind), exact, error, dtype).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrowed_numbers_are_normal(dtype: str) -> None:
    smallest = float_limits(dtype).smallest_normal
    given_ = np.array([0.0, -smallest / 4, smallest / 2, -smallest, 1.0])
    found = narrowed(given_, dtype).astype(np.float64)
    np.testing.assert_array_equal(found, np.array([smallest, -smallest, smallest, -smallest, 1.0]))


def test_processors_with_and_without_instructions_are_told_apart() -> None:
    assert not lacks_instructions(Isa.AVX512_CORE_FP16, "float16")
    assert lacks_instructions(Isa.AVX512_CORE_BF16, "float16")
