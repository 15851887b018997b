"""Ops right in oneDNN for finite operands only: over all numbers possible there, and beyond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import byoc_dnnl.ranges as ranges
import numpy as np
import pytest
from byoc_core.backend.hooks import Rejection
from byoc_core.ir import tensor
from byoc_core.opset.families import KERNELS
from byoc_dnnl.engine import Region as BuiltRegion
from byoc_dnnl.lowerings.functions import FINITE_ONLY
from byoc_dnnl.reference import Reference

from plugins.dnnl.tests.dnnl_region import TINY, UNIT, NDArray, Region, all_magnitudes, emit

Magnitude = Callable[[NDArray, NDArray], NDArray]


def _of_result(_: NDArray, y: NDArray) -> NDArray:
    return np.asarray(abs(y))


def _of_operand(x: NDArray, y: NDArray) -> NDArray:
    return np.asarray(np.maximum(abs(x), abs(y)))


FUNCTIONS: list[tuple[str, dict[str, Any], float, Magnitude]] = [
    # ULP of the largest term, as the conformance kit asks.
    ("clip", {"min": -1.5, "max": 6.25}, 0, _of_result),
    ("clip", {"min": 0.0, "max": None}, 0, _of_result),
    ("clip", {"min": None, "max": -3.4e38}, 0, _of_result),
    ("nn.gelu", {"approximate": "none"}, 20, _of_operand),
    ("nn.gelu", {"approximate": "tanh"}, 20, _of_operand),
    ("nn.hard_sigmoid", {"alpha": 0.2, "beta": 0.5}, 2, lambda x, y: np.asarray(abs(0.2 * x) + 0.5)),
    ("nn.hard_swish", {}, 4, _of_operand),
    ("nn.leaky_relu", {"alpha": 0.0}, 0, _of_result),
    ("nn.mish", {}, 20, _of_operand),
    ("nn.relu", {}, 0, _of_result),
    ("nn.swish", {"alpha": 1.0}, 10, _of_operand),
    ("nn.swish", {"alpha": -1.702}, 10, _of_operand),
    ("nn.swish", {"alpha": 0.0}, 10, _of_operand),
]

SPECIAL = (np.nan, np.inf, -np.inf, 3.3e38, -3.3e38, -np.nan)


@pytest.fixture
def set_limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function setting the limit of checks, without recomputing."""

    def never(_: Reference, *__: NDArray) -> bool:
        raise AssertionError("the region was computed anew")

    monkeypatch.setattr(Reference, "__call__", never)
    return lambda limit: monkeypatch.setattr(ranges, "CHECK_LIMITS", (limit,))


@pytest.mark.parametrize("within", ["alone", "nn.dense", "add"])
@pytest.mark.parametrize(("op", "attrs", "ulps", "magnitude"), FUNCTIONS)
def test_functions_are_right_for_all_numbers_up_to_their_limit(
    set_limit: Callable[[float], None], within: str, op: str, attrs: dict[str, Any], ulps: float, magnitude: Magnitude
) -> None:
    # What comes before adds to the bound what it may round.
    limit = FINITE_ONLY[op] if within == "alone" else FINITE_ONLY[op] / 2
    set_limit(limit)
    x = all_magnitudes()
    x = x[abs(x) <= limit]
    x = x[: len(x) // 16 * 16].reshape(-1, 16)
    region = Region()
    value = region.builder.param("x", tensor(x.shape))
    if within == "nn.dense":
        value = emit(region, "nn.dense", value, region.builder.const(np.eye(16, dtype=np.float32)))
    elif within == "add":
        value = emit(region, "add", value, region.builder.const(np.zeros(16, np.float32)))
    region.finish(emit(region, op, value, **attrs))
    assert ("" if within == "alone" else f"{within} + ") + op in region.source
    assert region.source.count("check for finite numbers  %0:ab") == 1
    (found,), (exact,) = region.run(x), region.oracle(x)
    error = abs(found.astype(np.float64) - exact)
    allowed = 2 * ulps * UNIT * magnitude(x.astype(np.float64), exact) + TINY
    assert np.isfinite(found).all()
    assert ((error <= allowed) | (found == exact.astype(np.float32))).all()


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_the_larger_and_the_smaller_of_two_are_right_for_all_finite_numbers(
    set_limit: Callable[[float], None], op: str
) -> None:
    set_limit(FINITE_ONLY[op])
    numbers = all_magnitudes()
    x, y = (np.random.default_rng(seed).choice(numbers, (999, 16)) for seed in (1, 2))
    x, y = (np.where(abs(array) <= FINITE_ONLY[op], array, 1).astype(np.float32) for array in (x, y))
    x[0] = y[0]
    region = Region()
    region.finish(emit(region, op, *(region.builder.param(name, tensor((999, 16))) for name in "xy")))
    assert region.source.count("check") == 2
    np.testing.assert_array_equal(region.run(x, y)[0], KERNELS[op](x, y))


CALLS: list[tuple[str, dict[str, Any]]] = [(op, attrs) for op, attrs, *_ in FUNCTIONS]


def _around(before: str, op: str, attrs: dict[str, Any]) -> tuple[Region, list[NDArray]]:
    """Return a region with an op behind another, and inputs."""
    region = Region()
    builder = region.builder
    if before == "nn.conv2d":
        x = builder.param("x", tensor((1, 8, 6, 5)))
        value = emit(region, "nn.conv2d", x, builder.const(region.draw(8, 8, 3, 3)), padding=(1,) * 4)
        value = emit(region, "nn.bias_add", value, builder.const(region.draw(8)), axis=1)
        inputs = [region.draw(1, 8, 6, 5)]
        y: Any = x
    else:
        x, y = (builder.param(name, tensor((7, 16))) for name in "xy")
        value = x if before == "alone" else emit(region, "nn.dense", x, builder.const(region.draw(16, 16)))
        value = emit(region, "add", value, y)
        inputs = [region.draw(7, 16), region.draw(7, 16)]
    others = [y] if op in ("maximum", "minimum") else []
    return region.finish(emit(region, op, value, *others, **attrs)), inputs


@pytest.mark.parametrize("before", ["alone", "nn.dense", "nn.conv2d"])
@pytest.mark.parametrize(("op", "attrs"), [*CALLS, ("maximum", {}), ("minimum", {})])
def test_what_is_not_finite_gives_what_the_reference_gives(before: str, op: str, attrs: dict[str, Any]) -> None:
    region, inputs = _around(before, op, attrs)
    assert " + " in region.source  # the op is a post-op
    assert "check for finite numbers" in region.source
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    for number, special in enumerate(SPECIAL):
        for which in range(len(inputs)):
            given = [array.copy() for array in inputs]
            given[which].reshape(-1)[(number * 37) % given[which].size] = special
            (found,) = region.run(*given)
            expected = np.empty_like(found)
            built.reference(*given, expected)
            np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("before", ["alone", "nn.dense", "nn.conv2d"])
@pytest.mark.parametrize(("op", "attrs"), [*CALLS, ("maximum", {}), ("minimum", {})])
def test_finite_numbers_are_not_computed_anew(
    before: str, op: str, attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    region, inputs = _around(before, op, attrs)
    (expected,) = region.run(*inputs)
    built = region.module.get_function("f").impl
    assert isinstance(built, BuiltRegion)
    monkeypatch.setattr(built, "reference", lambda *_: pytest.fail("the region was computed anew"))
    np.testing.assert_array_equal(region.run(*inputs)[0], expected)


@pytest.mark.parametrize("special", [np.nan, np.inf])
def test_weights_that_are_not_finite_prove_nothing(special: float) -> None:
    region = Region()
    weights = region.draw(8, 8)
    weights[3, 5] = special
    value = region.builder.param("x", tensor((4, 8)))
    product = emit(region, "nn.dense", value, region.builder.const(weights))
    region.finish(emit(region, "nn.relu", product))
    titles = [line.split("  ")[0] for line in region.source.splitlines()[1:] if not line.startswith("pack")]
    assert titles == ["nn.dense", "check for finite numbers", "nn.relu"]
    x = region.draw(4, 8)
    np.testing.assert_array_equal(np.isnan(region.run(x)[0]), np.isnan(region.oracle(x)[0]))


def test_a_constant_operand_that_is_not_finite_is_refused() -> None:
    region = Region()
    x = region.builder.param("x", tensor((4, 8)))
    result = emit(region, "maximum", x, region.builder.const(np.full(8, np.nan, np.float32)))
    region.finish(result)
    text = "correct for finite operands only, and the operands cannot be checked"
    answer = region.judge(region.function.bindings[0])
    assert isinstance(answer, Rejection)
    assert text in answer.text
    with pytest.raises(AssertionError, match=text):
        _ = region.module


@pytest.mark.parametrize("ends", [(1.0, 0.5), (np.inf, None), (None, -np.inf), (np.nan, 1.0)])
def test_ends_between_which_nothing_lies_are_refused(ends: tuple[float | None, float | None]) -> None:
    region = Region()
    x = region.builder.param("x", tensor((4,)))
    answer = region.judge(region.builder.bind("clip", [x], {"min": ends[0], "max": ends[1]}))
    assert isinstance(answer, Rejection)
    assert answer.text == "`clip`: no number lies between minimum and maximum"
