"""Known powers: products of square roots where exact enough and defined alike, else the power of the C library."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from byoc_ccompiler.kernels.pointwise import known_power
from byoc_core.authoring import c
from byoc_core.ir import tensor
from hypothesis import given
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import Bench, assert_ulp

BASES = (0.0, 1e-30, 0.3, 1.0, 7.7, 3e20, np.inf, np.nan)
VALUES = (0.0, 0.5, 3.0, 1e3, np.inf, np.nan)


def _power(base: float, exponent: float, dtype: str) -> Any:
    """Return a power as computed by the statements of a kernel, by the interpreter of C statements."""
    of, to = c.Buffer("of", dtype), c.Buffer("to", dtype, c.MemoryAccess.WRITE)
    body = (c.Store(to, c.Size(0), known_power(of[c.Size(0)], exponent)),)
    result = np.zeros(1, dtype)
    c.interpret(c.Function("power", (of, to), body), {of: np.array([base], dtype), to: result}, {})
    return result[0]


@given(st.sampled_from(BASES) | st.floats(0, 2.0**99, width=32), st.integers(1, 20).map(lambda quarters: quarters / 4))
def test_powers_by_roots_are_within_a_few_units(base: float, exponent: float) -> None:
    for dtype in ("float32", "float64"):
        with np.errstate(all="ignore"):
            oracle = np.power(np.longdouble(np.dtype(dtype).type(base)), np.longdouble(exponent)).astype(dtype)
            actual = _power(base, exponent, dtype)
        # A root halves the error of its argument; each of at most five products adds half a unit.
        assert np.isclose(actual, oracle, rtol=3 * float(np.finfo(dtype).eps), atol=0, equal_nan=True), (base, exponent)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_responses_are_normalised_by_any_power(bench: Bench, dtype: str) -> None:
    forms = [
        (beta, alpha, bias)
        for beta in (0.25, 0.5, 0.6, 0.75, 1.0, 2.25, 5.0)
        for alpha, bias in ((1e-4, 1.0), (0.5, 2.0), (0.0, 0.0), (-0.5, 4.0))
    ]
    functions = [
        bench.op("nn.lrn", [tensor((1, len(VALUES), 3), dtype)], size=3, alpha=alpha, beta=beta, bias=bias)
        for beta, alpha, bias in forms
    ]
    x = np.outer(np.array(VALUES), np.array([1.0, -2.0, 0.3])).astype(dtype)[None]
    for function, form in zip(functions, forms, strict=True):
        with np.errstate(all="ignore"):
            (actual,), (oracle,) = bench.run(function, x), bench.reference(function, x, wide=True)
        if form[1] < 0:  # the square root of minus infinity is no number, but other powers are infinite
            actual, oracle = actual[np.isfinite(oracle)], oracle[np.isfinite(oracle)]
        rtol = 16 * (1 + form[0]) * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(actual, oracle, rtol=rtol, equal_nan=True, err_msg=f"{form}")


@pytest.mark.parametrize(("beta", "alpha", "calls"), [(0.75, 1e-4, "sqrtf"), (0.6, 1e-4, "powf"), (0.75, -1.0, "powf")])
def test_only_roots_are_vectors(bench: Bench, beta: float, alpha: float, calls: str) -> None:
    bench.op("nn.lrn", [tensor((1, 4, 8))], size=3, alpha=alpha, beta=beta)
    assert set(re.findall(r"\b(sqrtf|powf)\(", bench.module.get_source())) == {calls}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 1.5, -1.0])
def test_small_exponents_are_products_and_roots(bench: Bench, dtype: str, exponent: float) -> None:
    """Repeated operands fill vectors: gcc computes some powers otherwise with vectors."""
    x = np.repeat(np.array([-7.7, -1.0, -1e-3, -0.0, 0.0, 0.3, 2.5, 1e3, np.inf, -np.inf, np.nan], dtype), 32)
    builder = bench.builder()
    argument = builder.param("x", tensor(x.shape, dtype))
    function = bench.add(builder, builder.emit("power", argument, np.asarray(exponent, dtype)))
    with np.errstate(all="ignore"):
        (actual,), (oracle,) = bench.run(function, x), bench.reference(function, x, wide=True)
    assert_ulp(actual, oracle, 2.0)
    is_number = ~np.isnan(oracle)
    np.testing.assert_array_equal(np.signbit(actual[is_number]), np.signbit(oracle[is_number]))
    calls = re.findall(r"byoc_power_f(?:32|64)\(", bench.module.get_source())
    assert bool(calls) != (exponent in (0.5, 1.0, 2.0, 3.0, 4.0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("exponent", [2.0, 3.0, 4.0])
def test_powers_near_the_largest_and_the_smallest_number(bench: Bench, dtype: str, exponent: float) -> None:
    """Products are within two units; only a result within two units of the largest number may become infinite."""
    info = np.finfo(dtype)
    units = 1 + np.arange(-12, 13) * float(info.eps)
    ends = [float(end) ** (1 / exponent) for end in (info.max, info.tiny, 4 * info.smallest_subnormal)]
    x = np.concatenate([sign * end * units for sign in (1, -1) for end in ends]).astype(dtype)
    builder = bench.builder()
    argument = builder.param("x", tensor(x.shape, dtype))
    function = bench.add(builder, builder.emit("power", argument, np.asarray(exponent, dtype)))
    (actual,) = bench.run(function, x)
    with np.errstate(all="ignore"):
        oracle = np.prod([x.astype(np.longdouble)] * int(exponent), axis=0)
    is_finite, most = np.isfinite(actual), np.longdouble(info.max)
    assert np.all(np.abs(oracle[~is_finite]) > most * (1 - 2 * np.longdouble(info.eps)))
    assert np.all(np.sign(actual) == np.where(actual == 0, 0, np.sign(oracle)))
    error = np.abs(actual[is_finite] - oracle[is_finite])
    assert np.all(error <= 2 * np.spacing(np.minimum(np.abs(actual[is_finite]), info.max / 2)))
