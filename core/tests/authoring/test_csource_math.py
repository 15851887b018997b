"""The functions of float32 and float64 in C: within the bounds stated in their headers, and vectorised."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import ByocError
from byoc_core.native.cpu import check_target
from byoc_core.native.toolchain import BuildOptions, find_toolchain, include_directory
from hypothesis import given
from hypothesis import strategies as st

from core.tests.authoring.header_bounds import MAGNITUDES, assert_close, stated_bounds

NDArray = npt.NDArray[Any]
WARNINGS = ("-Wall", "-Wextra", "-Werror")
MARCHES = ("generic", "x86-64-v3", "native")
TYPES: Mapping[str, tuple[str, Any]] = {"f32": ("float", np.float32), "f64": ("double", np.float64)}
HEADERS = {"f32": "byoc_math_f32.h", "f64": "byoc_math_f64.h"}
TRIGONOMETRY_HEADER = "byoc_trigonometry_f32.h"


def _softplus(x: NDArray) -> NDArray:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _by_element(function: Callable[[float], float]) -> Callable[[NDArray], NDArray]:
    return lambda x: np.array([function(float(value)) for value in x])


def _of_finite(function: Callable[[NDArray], NDArray]) -> Callable[[NDArray], NDArray]:
    """Return a product with the limit at minus infinity, 0."""
    return lambda x: np.where(np.isneginf(x), 0, function(x))


ORACLES: Mapping[str, Callable[[NDArray], NDArray]] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "tanh": np.tanh,
    "erf": _by_element(math.erf),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": _softplus,
    "gelu": _of_finite(lambda x: x * _by_element(math.erfc)(x * -math.sqrt(0.5)) / 2),
    "gelu_tanh": _of_finite(lambda x: x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "swish": _of_finite(lambda x: x / (1 + np.exp(-x))),
    "mish": _of_finite(lambda x: x * np.tanh(_softplus(x))),
    "softsign": lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + np.abs(x))),
}
"""Oracles in a longer type, without functions of the code under test."""

TRIGONOMETRY: Mapping[str, Callable[[NDArray], NDArray]] = {
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
"""Oracles of the functions for float32 alone."""

NONPOSITIVE = "exp_nonpositive"

BY_C_LIBRARY = {("erf", "f64"), ("gelu", "f64")}
"""Functions with the C library as oracle: no evidence about the C library itself."""


def _source() -> str:
    lines = ['#include "byoc_ffi.h"', '#include "byoc_scalar.h"']
    for suffix, (type_, _) in TYPES.items():
        for name in (*ORACLES, NONPOSITIVE, *(TRIGONOMETRY if suffix == "f32" else ())):
            alpha = ", 1" if name == "swish" else ""
            lines.append(f"BYOC_EXPORT void {name}_{suffix}(const {type_} *x, {type_} *restrict out, int64_t n) {{")
            lines.append(f"  for (int64_t i = 0; i < n; ++i) out[i] = byoc_{name}_{suffix}(x[i]{alpha});\n}}")
    return "\n".join(lines) + "\n"


Library = Callable[[str, str, NDArray], NDArray]


@pytest.fixture(scope="module", params=MARCHES)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Return results by function, suffix and operand."""
    built = find_toolchain().compile(_source(), BuildOptions(3, request.param, WARNINGS))
    try:
        check_target(built.target, "library")
    except ByocError as error:
        pytest.skip(str(error))
    path = tmp_path_factory.mktemp("library") / "library.so"
    path.write_bytes(built.data)
    handle = ctypes.CDLL(str(path))

    def run(name: str, suffix: str, x: NDArray) -> NDArray:
        operand = np.ascontiguousarray(x, TYPES[suffix][1])
        out = np.full_like(operand, 7)
        pointers = (ctypes.c_void_p(array.ctypes.data) for array in (operand, out))
        handle[f"{name}_{suffix}"](*pointers, ctypes.c_int64(operand.size))
        return out

    return run


def _operands(suffix: str) -> NDArray:
    """Return numbers of every exponent and both signs, more near the bends of functions, and the special values."""
    dtype = TYPES[suffix][1]
    info = np.finfo(dtype)
    rng = np.random.default_rng(11)
    exponents = np.arange(info.minexp - info.nmant, info.maxexp)
    mantissas = np.concatenate([[1, 2 - float(info.eps)], rng.uniform(1, 2, 29)])
    everywhere = np.ldexp(mantissas[None, :], exponents[:, None]).reshape(-1)
    bends = np.concatenate([rng.uniform(0, scale, 20_000) for scale in (1, 10, 110, 800)])
    limits = [
        *(88.722839, 87.336545, 103.972084, 104, 9, 10, 4, 20, 40, 0.5, 1, 2, math.sqrt(0.5), math.sqrt(2), 0.414),
        *(0.0623924, 0.062361),
        *(709.782712893384, 708.3964185322641, 745.1332191019412, 746, math.log(2), math.log(2) / 2),
    ]
    near = [np.asarray(limits, dtype)]
    for direction in (np.inf, -np.inf):
        point = near[0]
        for _ in range(5):
            point = np.nextafter(point, dtype(direction))
            near.append(point)
    special = np.array([0, np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal])
    positive = np.concatenate([everywhere, bends, *near, special]).astype(dtype)
    return np.concatenate([positive, -positive])


@pytest.mark.parametrize("suffix", TYPES)
def test_errors_are_within_the_bounds_that_the_headers_state(library: Library, suffix: str) -> None:
    x = _operands(suffix)
    has_longer = np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant
    wide = x.astype(np.float64 if suffix == "f32" else np.longdouble)
    bounds = {**stated_bounds(HEADERS[suffix]), **stated_bounds("byoc_activations.h")}
    for name, oracle in ORACLES.items():
        if (name, suffix) in BY_C_LIBRARY:
            continue
        with np.errstate(all="ignore"):
            exact = oracle(wide)
        bound, unit = bounds[name]
        # A longer type that is none errs as well.
        slack = 0 if suffix == "f32" or has_longer else 2
        assert_close(library(name, suffix, x), exact, MAGNITUDES[unit](wide, exact), bound + slack, f"{name} {suffix}")


def _angles() -> NDArray:
    """Return numbers of every exponent, neighbours of multiples of pi / 2, and numbers near the ends of domains."""
    rng = np.random.default_rng(12)
    multiples = np.concatenate([np.arange(1, 4000), rng.integers(1, 1 << 52, 20_000)]) * (np.pi / 2)
    unit = np.concatenate([rng.uniform(0, 1, 20_000), 1 - np.exp2(rng.uniform(-24, -1, 5_000))])
    over = 1 + np.exp2(rng.uniform(-23, 4, 20_000))
    small = np.exp2(rng.uniform(-20, -8, 20_000))
    positive = np.concatenate([multiples, unit, over, small]).astype(np.float32)
    neighbours = [np.nextafter(positive, np.float32(end)) for end in (0, np.inf)]
    drawn = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    all_positive = np.concatenate([positive, *neighbours, np.abs(drawn)])
    return np.concatenate([_operands("f32"), all_positive, -all_positive])


@pytest.mark.parametrize("name", TRIGONOMETRY)
def test_errors_of_trigonometry_are_within_the_bounds_that_the_header_states(library: Library, name: str) -> None:
    x = _angles()
    with np.errstate(all="ignore"):
        exact = TRIGONOMETRY[name](x.astype(np.float64))
    bound, unit = stated_bounds(TRIGONOMETRY_HEADER)[name]
    actual = library(name, "f32", x)
    assert_close(actual, exact, MAGNITUDES[unit](x, exact), bound, name)
    zeros = exact == 0
    assert np.array_equal(np.signbit(actual[zeros]), np.signbit(exact[zeros]))


# Expected results are computed with 400 bits. Angles near multiples of pi / 2 need most bits of 1 / pi.
@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("sin", "0x1.921fb6p1", -8.742278000372475e-08),
        ("cos", "0x1.921fb6p0", -4.371139000186241e-08),
        ("tan", "0x1.921fb6p0", -22877332.42885646),
        ("cos", "0x1.f37c8ap95", -1.6147697982476211e-09),
        ("sin", "0x1p100", -0.8721836054182673),
        ("cos", "0x1.fffffep127", 0.8530210398303042),
        ("sinh", "0x1.65a9f8p6", 3.4028196375086208e38),
        ("atanh", "0x1.fffffep-1", 8.664339742098155),
    ],
)
def test_known_results(library: Library, name: str, x: str, expected: float) -> None:
    assert library(name, "f32", np.array([float.fromhex(x)])).tolist() == [float(np.float32(expected))]


def test_sine_and_cosine_lie_on_the_unit_circle_in_each_range_of_exponents(library: Library) -> None:
    """Sine is odd, cosine is even, and the sum of their squares is 1, in each range of the reduction."""
    rng = np.random.default_rng(13)
    for low, high in ((-10, 50), (50, 76), (76, 102), (102, 128)):
        x = np.exp2(rng.uniform(low, high, 5_000)).astype(np.float32)
        sine, cosine = (library(name, "f32", x).astype(np.float64) for name in ("sin", "cos"))
        assert np.all(np.abs(sine**2 + cosine**2 - 1) <= 2 * float(np.finfo(np.float32).eps))
        np.testing.assert_array_equal(library("sin", "f32", -x), -sine.astype(np.float32))
        np.testing.assert_array_equal(library("cos", "f32", -x), cosine.astype(np.float32))


@pytest.mark.parametrize("suffix", TYPES)
def test_exponentials_of_nonpositive_numbers_fade_to_zero(library: Library, suffix: str) -> None:
    x = -np.abs(_operands(suffix))
    with np.errstate(all="ignore"):
        exact = np.exp(x.astype(np.float64 if suffix == "f32" else np.longdouble))
    actual = library(NONPOSITIVE, suffix, x)
    bound, _ = stated_bounds(HEADERS[suffix])[NONPOSITIVE]
    info = np.finfo(x.dtype)
    least = exact.dtype.type(info.tiny)
    normal = ~(exact < least)
    assert_close(actual[normal], exact[normal], exact[normal], bound, suffix)
    faded = ~normal
    # What is less than the smallest normal number over the root of 2 is 0; 1 / log(2), which tells, is rounded once.
    assert np.all(np.abs(actual[faded] - exact[faded]) <= least * (math.sqrt(0.5) - info.minexp * float(info.eps)))
    assert np.all(actual[exact < least / 2] == 0)


@pytest.mark.parametrize("suffix", TYPES)
def test_limits_and_signs_of_zeros(library: Library, suffix: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan])
    half_pi = float(np.float32(np.pi / 2))
    trigonometry: dict[str, Sequence[float]] = {
        **dict.fromkeys(["sin", "tan", "asin", "atanh"], (0.0, -0.0, np.nan, np.nan, np.nan)),
        "cos": (1, 1, np.nan, np.nan, np.nan),
        "acos": (half_pi, half_pi, np.nan, np.nan, np.nan),
        "atan": (0.0, -0.0, half_pi, -half_pi, np.nan),
        **dict.fromkeys(["sinh", "asinh"], (0.0, -0.0, np.inf, -np.inf, np.nan)),
        "cosh": (1, 1, np.inf, np.inf, np.nan),
        "acosh": (np.nan, np.nan, np.inf, np.nan, np.nan),
    }
    expected: dict[str, Sequence[float]] = {
        **(trigonometry if suffix == "f32" else {}),
        "exp": [1, 1, np.inf, 0, np.nan],
        "expm1": [0.0, 0.0, np.inf, -1, np.nan],
        "log": [-np.inf, -np.inf, np.inf, np.nan, np.nan],
        "tanh": [0.0, -0.0, 1, -1, np.nan],
        "erf": [0.0, -0.0, 1, -1, np.nan],
        "sigmoid": [0.5, 0.5, 1, 0, np.nan],
        "gelu": [0.0, -0.0, np.inf, 0, np.nan],
        "gelu_tanh": [0.0, -0.0, np.inf, 0, np.nan],
        "swish": [0.0, -0.0, np.inf, 0, np.nan],
        "mish": [0.0, -0.0, np.inf, 0, np.nan],
        "softsign": [0.0, -0.0, 1, -1, np.nan],
    }
    for name, values in expected.items():
        actual = library(name, suffix, x)
        np.testing.assert_array_equal(actual, np.array(values, actual.dtype), err_msg=name)
        numbers = ~np.isnan(values)
        assert np.signbit(actual[numbers]).tolist() == np.signbit(np.array(values)[numbers]).tolist(), name


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=40))
def test_laws(library: Library, values: list[float]) -> None:
    x = np.array(values)
    for suffix in TYPES:
        for name in ("tanh", "erf", "softsign"):
            results = library(name, suffix, x)
            assert (-results).tobytes() == library(name, suffix, -x).tobytes()
            assert np.all(np.abs(results) <= 1)
        ends = library("sigmoid", suffix, x)
        assert np.all((ends >= 0) & (ends <= 1))
        assert np.all(library("exp", suffix, x) >= 0)
        # One element alone, and in a vector with others.
        for name in (*ORACLES, *(TRIGONOMETRY if suffix == "f32" else ())):
            assert library(name, suffix, x[-1:]).tobytes() == library(name, suffix, x)[-1:].tobytes(), name


def test_headers_and_oracles_name_the_same_functions() -> None:
    stated = [stated_bounds(header) for header in (*HEADERS.values(), "byoc_activations.h")]
    assert stated[0].keys() == stated[1].keys()
    assert set(ORACLES) <= stated[0].keys() | stated[2].keys()
    assert stated_bounds(TRIGONOMETRY_HEADER).keys() == TRIGONOMETRY.keys()


@pytest.mark.parametrize("march", MARCHES)
def test_gcc_vectorises_loops_over_them(march: str, tmp_path: Path) -> None:
    toolchain = find_toolchain()
    if "Free Software Foundation" not in toolchain.version:
        pytest.skip("the report is GCC's")
    source = tmp_path / "loops.c"
    source.write_text(_source())
    flags = [flag for flag in toolchain.flags(BuildOptions(3, march)) if flag not in ("-shared", "-s")]
    include = f"-I{include_directory()}"
    command = [*toolchain.command, *flags, "-fopt-info-vec-optimized", include, "-c", str(source), "-o", "loops.o"]
    report = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120).stderr
    vectorised = {int(number) for number in re.findall(r"loops\.c:(\d+):\d+: optimized: loop vectorized", report)}
    lines = source.read_text().splitlines()
    loops = {re.findall(r"byoc_(\w+)\(", line)[0]: k + 1 for k, line in enumerate(lines) if "for (" in line}
    by_call = {f"{name}_{suffix}" for name, suffix in BY_C_LIBRARY}
    assert {name for name, number in loops.items() if number not in vectorised} == by_call
