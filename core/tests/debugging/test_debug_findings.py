"""Possible faults of a backend, each found under a separate code; correct behaviour is never reported."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_core import debug_model, parse
from byoc_core.debugging import REGION_FINDING_CODES, DebugReport, Tolerance
from byoc_core.dtypes import to_numpy
from byoc_core.errors import OptionsError
from byoc_core.ir import IRModule
from byoc_core.runtime.module import NDArray

CHAIN = """
class M:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")):
        a = R.add(x, y)
        b = R.multiply(a, y)
        c = R.subtract(b, x)
        d = R.nn.relu(c)
        return d
"""
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 3, 4)).astype(np.float32)


def debug(
    backend: object,
    text: str = CHAIN,
    inputs: Sequence[NDArray] = (X, Y),
    *,
    session: Mapping[str, Any] | None = None,
    **options: object,
) -> DebugReport:
    return debug_model(parse(text), [backend], inputs, options={"faulty": options}, **(session or {}))


def codes(report: DebugReport) -> list[str]:
    return [finding.code for check in report.checks for finding in check.findings]


def test_a_right_backend_diverges_nowhere(faulty: Callable[..., object]) -> None:
    report = debug(faulty())
    assert (report.is_right, report.is_tested, report.first, report.worst, report.cases) == (True, True, None, None, ())
    assert [region.ops for region in report.regions] == [("add", "multiply", "subtract", "nn.relu")]
    assert report.summary() == "1 region, 1 call: nothing diverges"
    assert str(report) == "faulty_main_0 (faulty, 4 ops): right\n1 region, 1 call: nothing diverges"


def test_what_a_backend_sets_is_not_for_the_reference_kernels(faulty: Callable[..., object]) -> None:
    before = np.geterr()
    tiny = X * np.float32(1e-30)
    report = debug(faulty(), inputs=(tiny, tiny), fault="errstate")  # the products are below the smallest number
    assert report.is_right, str(report)
    assert np.geterr() == before


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("lane", ["wrong-values"]),
        ("nan", ["wrong-nonfinite"]),
        ("half", ["wrong-values"]),
        ("input-written", ["input-written"]),
        ("output-unwritten", ["output-unwritten", "wrong-nonfinite"]),
        ("output-read", ["output-read", "wrong-nonfinite"]),
        ("not-deterministic", ["not-deterministic"]),
        ("raise", ["run-error"]),
        ("compile-error", ["compile-error"]),
        ("wrong-dtype", ["wrong-signature"]),
        ("wrong-shape", ["wrong-signature"]),
        ("too-few", ["wrong-signature"]),
    ],
)
def test_each_fault_has_its_code(faulty: Callable[..., object], fault: str, expected: list[str]) -> None:
    report = debug(faulty(), fault=fault, op="subtract")
    assert codes(report) == expected
    assert not report.is_right
    assert report.first is report.worst is report.checks[0]
    assert set(expected) <= set(REGION_FINDING_CODES)


def test_the_text_of_a_wrong_value_names_element_and_values(faulty: Callable[..., object]) -> None:
    small = np.array([[1, 2]], np.float32)
    text = """
class M:
    @R.function
    def main(x: R.Tensor((1, 2), "float32")):
        y = R.add(x, x)
        return y
"""
    report = debug(faulty(), text, [small], fault="lane", op="add")
    (finding,) = report.checks[0].findings
    assert finding.text == "output `y`: error 3, more than 1.91e-06; at [0, 1] got 7, expected 4"
    assert finding.output == 0
    (figures,) = report.checks[0].outputs
    eps = float(np.finfo(np.float32).eps)
    assert (figures.max_abs_error, figures.relative_error, figures.host_relative_error) == (3.0, 0.75, 0.0)
    assert figures.allowed_relative_error == 4 * eps
    assert figures.excess == 3 / (16 * eps)


def test_texts_of_faults_that_are_no_values(faulty: Callable[..., object]) -> None:
    texts = {
        fault: debug(faulty(), fault=fault, op="subtract").checks[0].findings[0].text
        for fault in ("input-written", "output-unwritten", "raise", "compile-error", "wrong-dtype", "too-few")
    }
    assert texts == {
        "input-written": "input 0 `x` was changed",
        "output-unwritten": "output `d`: 1 of 12 elements are never written",
        "raise": "ValueError: no such kernel",
        "compile-error": "faulty: cannot compile `subtract`",
        "wrong-dtype": "output 0 `output0` is float64[3, 4]; the region has float32[3, 4]",
        "too-few": "the compiled function has 0 outputs; the region has 1",
    }


def test_a_backend_that_says_it_is_not_deterministic_is_not_blamed_for_it(faulty: Callable[..., object]) -> None:
    assert debug(faulty(deterministic=False), fault="not-deterministic").is_right


def test_a_refused_region_is_not_wrong_and_not_tested(faulty: Callable[..., object]) -> None:
    report = debug(faulty(), fault="refuse")
    assert (report.is_right, report.is_tested, report.cases) == (True, False, ())
    assert report.regions[0].verdict == "refused"
    assert report.summary() == "1 region, 1 call: every region was refused, so nothing was tested"


def test_one_region_that_fails_does_not_hide_the_others(faulty: Callable[..., object]) -> None:
    text = """
class M:
    @R.function
    def main(x: R.Tensor((3, 4), "float32"), y: R.Tensor((3, 4), "float32")):
        a = R.add(x, y)
        b = R.exp(a)
        c = R.multiply(b, y)
        d = R.exp(c)
        e = R.multiply(d, y)
        return e
"""
    report = debug(faulty("add", "multiply"), text, fault="compile-error", op="add")
    assert [region.verdict for region in report.regions] == ["compile-error", "right", "right"]
    report = debug(faulty("add", "multiply"), text, fault="lane", op="multiply")
    assert [region.verdict for region in report.regions] == ["right", "wrong-values", "wrong-values"]
    assert report.first is report.checks[1]
    assert report.worst is max(report.checks[1:], key=lambda check: check.excess)


def _dense(terms: int, rows: int, dtype: str = "float32") -> str:
    return f"""
class M:
    @R.function
    def main(x: R.Tensor(({rows}, {terms}), "{dtype}"), w: R.Tensor((1, {terms}), "{dtype}")):
        y = R.nn.dense(x, w)
        return y
"""


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_another_order_of_a_long_sum_is_no_divergence(faulty: Callable[..., object], seed: int, dtype: str) -> None:
    """A single result each: the reference kernel's own error is sometimes close to zero by luck."""
    generator = np.random.default_rng(seed)
    terms = 4096
    x, w = (generator.standard_normal((1, terms)).astype(dtype) for _ in range(2))
    if seed % 2:  # the terms cancel, so the error is far more than a unit of the result
        x[:, terms // 2 :], w[:, terms // 2 :] = -x[:, : terms // 2], w[:, : terms // 2] * x.dtype.type(1.01)
    report = debug(faulty(), _dense(terms, 1, dtype), [x, w], fault="backward")
    assert report.is_right, str(report)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("terms", [1, 16, 256, 4096])
def test_a_product_in_half_precision_is_a_divergence(faulty: Callable[..., object], terms: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((16, terms), (1, terms)))
    assert codes(debug(faulty(), _dense(terms, 16), [x, w], fault="half-dense")) == ["wrong-values"]


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("terms", [1, 16])
def test_a_product_in_half_precision_is_right_where_that_is_stated(
    faulty: Callable[..., object], terms: int, accumulate: bool
) -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.standard_normal(shape).astype(np.float32) for shape in ((16, terms), (1, terms)))
    session = {"accumulate": accumulate}
    stated = faulty(unit_roundoff={"float32": 2.0**-11})
    assert debug(stated, _dense(terms, 16), [x, w], fault="half-dense", session=session).is_right
    assert not debug(stated, _dense(terms, 16), [x, w], fault="lane", op="nn.dense", session=session).is_right
    by_option = faulty()
    assert debug(by_option, _dense(terms, 16), [x, w], fault="half-dense", session=session, roundoff=2.0**-11).is_right
    too_little = faulty(unit_roundoff={"float32": 2.0**-20, "float16": 2.0**-8})
    assert not debug(too_little, _dense(terms, 16), [x, w], fault="half-dense", session=session).is_right


def test_an_overflow_in_one_element_hides_no_error_in_another(faulty: Callable[..., object]) -> None:
    text = """
class M:
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        y = R.exp(x)
        return y
"""
    x = np.array([200, 0], np.float32)
    for tolerance in (Tolerance(), Tolerance(atol=1e-3), Tolerance(rtol=1e-3)):
        session = {"tolerance": tolerance}
        assert debug(faulty(), text, [x], session=session).is_right
        assert codes(debug(faulty(), text, [x], session=session, fault="lane", op="exp")) == ["wrong-values"]


@pytest.mark.parametrize("bounds", [{"factor": -1}, {"rtol": math.nan}, {"atol": math.inf}])
def test_bounds_that_are_none(bounds: dict[str, float]) -> None:
    ((name, value),) = bounds.items()
    with pytest.raises(OptionsError) as caught:
        Tolerance(**bounds)
    assert str(caught.value) == f"{name}: is not a bound; got {value}, expected a finite number from 0"


def test_bounds_of_the_user_replace_the_rule(faulty: Callable[..., object]) -> None:
    def run(tolerance: Tolerance) -> bool:
        return debug(faulty(), session={"tolerance": tolerance}, fault="half", op="multiply").is_right

    assert not run(Tolerance())
    assert run(Tolerance(rtol=1e-2, atol=1e-2))
    assert run(Tolerance(atol=1e-2))
    assert not run(Tolerance(rtol=1e-7))
    assert run(Tolerance(factor=1e6))


def test_numbers_that_overflow_on_both_sides_agree(faulty: Callable[..., object]) -> None:
    text = """
class M:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        z = R.subtract(y, y)
        return y, z
"""
    x = np.array([100, -200, 0, np.nan], np.float32)
    assert debug(faulty(), text, [x]).is_right
    report = debug(faulty(), text, [x[[2, 2, 2, 2]]], fault="nan", op="exp")
    assert [finding.output for finding in report.checks[0].findings] == [0, 1]
    text = "output `y`: 1 of 4 elements, the first at [0]: got nan, expected 1"
    assert report.checks[0].findings[0].text == text


@pytest.mark.parametrize("dtype", ["int4", "int32", "uint8", "bfloat16", "float8_e4m3fn", "float16", "float64"])
def test_every_kind_of_dtype_is_compared_and_guarded(faulty: Callable[..., object], dtype: str) -> None:
    text = f"""
class M:
    @R.function
    def main(x: R.Tensor((2, 3), "{dtype}")):
        y = R.add(x, x)
        return y
"""
    x = np.array([[0, 1, 1], [0, 0, 1]]).astype(to_numpy(dtype))
    assert _run(parse(text), faulty(), x, "none") == []
    assert _run(parse(text), faulty(), x, "output-unwritten")[0] == "output-unwritten"
    assert _run(parse(text), faulty(), x, "lane", op="add") == ["wrong-values"]


@pytest.mark.parametrize(("dtype", "value"), [("int64", 2**30 + 1), ("int64", 3 * 2**29 + 1), ("uint64", 2**31 + 1)])
def test_large_integers_are_compared_exactly(faulty: Callable[..., object], dtype: str, value: int) -> None:
    # In float64 the wrong value and the expected one are the same number.
    text = f"""
class M:
    @R.function
    def main(x: R.Tensor((3,), "{dtype}")):
        y = R.multiply(x, x)
        return y
"""
    x = np.array([1, value, value], dtype)
    square = value * value
    report = debug(faulty(), text, [x], fault="lane", op="multiply")
    ((finding,),) = (check.findings for check in report.checks)
    expected = f"error 3, but integers must be equal; at [2] got {square + 3}, expected {square}"
    assert finding.text == f"output `y`: {expected}"


def test_booleans_are_compared_and_guarded(faulty: Callable[..., object]) -> None:
    text = """
class M:
    @R.function
    def main(x: R.Tensor((2, 2), "float32")):
        y = R.greater(x, R.const(0.5, "float32"))
        return y
"""
    x = np.array([[0, 1], [1, 0]], np.float32)
    assert _run(parse(text), faulty(), x, "none") == []
    assert _run(parse(text), faulty(), x, "output-unwritten") == ["output-unwritten", "wrong-values"]
    assert _run(parse(text), faulty(), x, "lane", op="greater") == ["wrong-values"]


def _run(module: IRModule, backend: object, x: NDArray, fault: str, op: str = "") -> list[str]:
    return codes(debug_model(module, [backend], [x], options={"faulty": {"fault": fault, "op": op}}))


def test_what_is_no_error_of_values_is_worst(faulty: Callable[..., object]) -> None:
    report = debug(faulty(), fault="raise")
    assert report.worst is not None
    assert math.isinf(report.worst.excess)
    assert report.worst.to_data()["outputs"] == []
