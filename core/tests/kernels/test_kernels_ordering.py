"""Kernels of ordering against Python's sort, cumulative ops against exact sums and products, tests of truth.

A sum of i terms, one after the other, has an error of at most ``gamma_{i-1} * sum|x|``, a product of at most
``gamma_{i-1} * |product|`` (Higham, Accuracy and Stability, ch. 3 and 4).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

ORACLES = {
    "argsort": "sorted of Python",
    "sort": "sorted of Python",
}
"""The oracles of ops missing in ONNX Runtime."""

_UNITS = {"float16": 2.0**-24, "float32": 2.0**-24, "float64": 2.0**-53, "bfloat16": 2.0**-24}
"""The unit roundoff of the dtype used to compute sums of a dtype."""
_LAST_ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
_DTYPES = {"bfloat16": ml_dtypes.bfloat16, "int4": ml_dtypes.int4, "float8_e5m2": ml_dtypes.float8_e5m2}

_NARROW = ["bfloat16", "float16", "float8_e5m2", "int4"]

_TIES = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1.0, 2.0, np.inf, np.nan])


def _call(name: str, x: NDArray, **attrs: object) -> Any:
    return KERNELS[name](x, **default_ops()[name].normalise_attrs(attrs))


def _gamma(length: int, unit: float) -> float:
    return length * unit / (1 - length * unit)


def _expected_order(lane: list[float], *, descending: bool) -> list[int]:
    """Return the indices in order: equal elements in their original order, a NaN as the largest."""

    def key(index: int) -> tuple[bool, float]:
        value = lane[index]
        is_nan = math.isnan(value)
        return (not is_nan, 0.0 if is_nan else -value) if descending else (is_nan, 0.0 if is_nan else value)

    return sorted(range(len(lane)), key=key)


def _rows(x: NDArray, axis: int) -> Any:
    """Return the lanes along an axis as the rows of a matrix."""
    moved = np.moveaxis(x, axis, -1)
    return moved.reshape(math.prod(moved.shape[:-1]), moved.shape[-1])


@st.composite
def _lanes(draw: st.DrawFn) -> tuple[Any, int]:
    """Return an array of few values, many equal, and an axis."""
    shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    dtype = draw(st.sampled_from(["float32", "float64", "int8", "uint64", *_NARROW]))
    count = math.prod(shape)
    values = np.array(draw(st.lists(_TIES, min_size=count, max_size=count)))
    if "int" in dtype:
        values = np.abs(np.nan_to_num(values, nan=3.0, posinf=4.0, neginf=0.0))
    return values.reshape(shape).astype(_DTYPES.get(dtype, dtype)), draw(st.integers(-len(shape), len(shape) - 1))


@settings(max_examples=150, deadline=None)
@given(case=_lanes(), descending=st.booleans())
def test_order_is_that_of_a_stable_sort(case: tuple[Any, int], descending: bool) -> None:
    x, axis = case
    order = _call("argsort", x, axis=axis, descending=descending)
    in_order = _call("sort", x, axis=axis, descending=descending)
    assert (order.dtype, in_order.dtype) == (np.dtype(np.int64), x.dtype)
    assert order.shape == in_order.shape == x.shape
    lanes, orders, sorts = (_rows(array, axis) for array in (x, order, in_order))
    for lane, found, put in zip(lanes, orders, sorts, strict=True):
        wanted = _expected_order([float(item) for item in lane], descending=descending)
        assert found.tolist() == wanted
        assert put.tobytes() == lane[wanted].tobytes()


@settings(max_examples=150, deadline=None)
@given(case=_lanes(), largest=st.booleans(), is_sorted=st.booleans(), data=st.data())
def test_topk_is_the_begin_of_a_stable_sort(
    case: tuple[Any, int], largest: bool, is_sorted: bool, data: st.DataObject
) -> None:
    x, axis = case
    k = data.draw(st.integers(0, x.shape[axis]))
    values, indices = _call("topk", x, k=k, axis=axis, largest=largest, sorted=is_sorted)
    assert (values.dtype, indices.dtype) == (x.dtype, np.dtype(np.int64))
    lanes, tops, ranks = (_rows(array, axis) for array in (x, values, indices))
    for lane, taken, places in zip(lanes, tops, ranks, strict=True):
        wanted = _expected_order([float(item) for item in lane], descending=largest)[:k]
        assert places.tolist() == (wanted if is_sorted else sorted(wanted))
        assert taken.tobytes() == lane[places].tobytes()


def test_topk_of_integers_is_exact_beyond_what_floats_hold() -> None:
    x = np.array([2**53, 2**53 + 1, -(2**63), 2**63 - 1, 2**53 + 1])
    values, indices = _call("topk", x, k=3)
    assert values.tolist() == [2**63 - 1, 2**53 + 1, 2**53 + 1]
    assert indices.tolist() == [3, 1, 4]


@pytest.mark.parametrize("k", [4, -1])
def test_topk_of_too_many_is_an_error(k: int) -> None:
    with pytest.raises(ExecutionError) as caught:
        _call("topk", np.zeros((2, 3)), k=k)
    assert str(caught.value) == (f"op `topk`: attribute `k` is out of range for the axis; got {k}, expected 0 to 3")


@st.composite
def _numbers(draw: st.DrawFn, low: float, high: float) -> tuple[Any, int, bool, bool]:
    """Return an array of floats, an axis, and two flags."""
    shape = tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=3)))
    x = np.random.default_rng(draw(st.integers(0, 2**32))).uniform(low, high, shape)
    x = x * np.where(np.random.default_rng(1).random(shape) < 0.5, -1, 1)
    dtype = draw(st.sampled_from(sorted(_UNITS)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    return x.astype(_DTYPES.get(dtype, dtype)), axis, draw(st.booleans()), draw(st.booleans())


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_cumulative_ops_round_as_one_walk_does(name: str, data: st.DataObject) -> None:
    x, axis, exclusive, reverse = data.draw(_numbers(0.5, 2.0))
    result = _call(name, x, axis=axis, exclusive=exclusive, reverse=reverse)
    assert (result.dtype, result.shape) == (x.dtype, x.shape)
    unit, last = _UNITS[x.dtype.name], _LAST_ROUNDING.get(x.dtype.name, 0.0)
    steps = -1 if reverse else 1
    size = x.shape[axis]
    lanes, sums = (_rows(array, axis)[:, ::steps].astype(np.float64) for array in (x, result))
    for lane, found in zip(lanes.tolist(), sums.tolist(), strict=True):
        for index in range(size):
            terms = lane[: index + (0 if exclusive else 1)]
            if name == "cumsum":
                exact, magnitude = sum(map(Fraction, terms), Fraction(0)), math.fsum(map(abs, terms))
            else:
                exact = math.prod(map(Fraction, terms), start=Fraction(1))
                magnitude = float(abs(exact))
            bound = _gamma(max(len(terms) - 1, 0), unit) * magnitude
            bound += last * (float(abs(exact)) + bound)
            assert abs(Fraction(found[index]) - exact) <= Fraction(bound)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize("dtype", ["int4", "int8", "uint8", "int64", "uint64"])
@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_cumulative_ops_of_integers_wrap_around(name: str, dtype: str, exclusive: bool, reverse: bool) -> None:
    x = np.array([[3, -5, 7, 6, -8, 7], [1, 2, 3, 4, 5, 7]]).astype(_DTYPES.get(dtype, dtype))
    result = _call(name, x, axis=1, exclusive=exclusive, reverse=reverse)
    assert result.dtype == x.dtype
    bits = 4 if dtype == "int4" else 8 * x.itemsize
    for lane, found in zip(x.astype(object), result.astype(object), strict=True):
        walked, totals = (int(item) for item in (lane[::-1] if reverse else lane)), []
        total = 0 if name == "cumsum" else 1
        for item in walked:
            before, total = total, total + item if name == "cumsum" else total * item
            totals.append(before if exclusive else total)
        wanted = totals[::-1] if reverse else totals
        assert [int(item) % 2**bits for item in found] == [item % 2**bits for item in wanted]


def test_cumulative_ops_of_infinities_do_not_subtract() -> None:
    x = np.array([1.0, np.inf, 2.0, -np.inf, 3.0])
    np.testing.assert_array_equal(_call("cumsum", x, axis=0, exclusive=True), [0, 1, np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(_call("cumsum", x, axis=0, reverse=True)[-2:], [-np.inf, 3])
    np.testing.assert_array_equal(_call("cumprod", x, axis=0, exclusive=True), [1, 1, np.inf, np.inf, -np.inf])


def test_truth_of_nothing_and_of_some() -> None:
    x = np.array([[True, False], [True, True]])
    assert _call("all", x, axis=(1,)).tolist() == [False, True]
    assert _call("any", ~x, axis=(0,), keepdims=True).tolist() == [[False, True]]
    assert _call("all", np.zeros((0, 2), bool)).tolist() is True
    assert _call("any", np.zeros((0, 2), bool)).tolist() is False


@pytest.mark.parametrize("name", ["argmax", "argmin"])
@settings(max_examples=60, deadline=None)
@given(values=st.lists(_TIES, min_size=1, max_size=8), keepdims=st.booleans())
def test_the_last_extreme_element(name: str, values: list[float], keepdims: bool) -> None:
    """A NaN is more extreme than all numbers, and any NaN equals any other."""
    x = np.array(values, np.float32)
    index = _call(name, x, axis=0, keepdims=keepdims, select_last_index=True)
    assert (index.dtype, index.shape) == (np.dtype(np.int64), (1,) if keepdims else ())
    with np.errstate(invalid="ignore"):
        extreme = np.max(x) if name == "argmax" else np.min(x)  # NaN where there is one
    wanted = [
        place for place, value in enumerate(values) if value == extreme or (extreme != extreme and value != value)
    ]
    assert int(index.reshape(())) == wanted[-1]
