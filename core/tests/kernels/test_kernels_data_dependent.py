"""Kernels with result sizes depending on elements, against definitions spelled out element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import all_dtypes, is_float, to_numpy
from byoc_core.errors import ExecutionError
from byoc_core.opset.families import KERNELS
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

_KERNELS: Mapping[str, Callable[..., Any]] = KERNELS
_SHAPES = [(), (0,), (5,), (2, 0, 3), (3, 4), (2, 3, 2)]


def _array(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Any:
    """Return few different numbers, with repetitions: zeros of both signs and NaN are included."""
    choices = np.array([0, 1, 2, 3] if dtype.startswith(("u", "bool")) else [0, 1, -2, 3])
    if is_float(dtype):
        choices = np.array([0.0, -0.0, 1.5, -2.0, np.nan])
    return np.random.default_rng(seed).choice(choices, shape).astype(to_numpy(dtype))


def _key(row: npt.ArrayLike) -> tuple[Any, ...]:
    """Order rows as numbers do, with NaN last and equal to NaN."""
    return tuple((math.isnan(value), 0.0 if math.isnan(value) else value) for value in map(float, np.ravel(row)))


@pytest.mark.parametrize("dtype", all_dtypes())
@pytest.mark.parametrize("shape", _SHAPES)
def test_nonzero_finds_every_element_that_is_not_zero(shape: tuple[int, ...], dtype: str) -> None:
    x = _array(shape, dtype)
    result = _KERNELS["nonzero"](x)
    expected = [index for index in product(*map(range, shape)) if float(x[index]) != 0]
    assert result.dtype == np.int64
    assert result.shape == (len(shape), len(expected))
    assert [tuple(column) for column in result.T] == expected


@pytest.mark.parametrize("dtype", all_dtypes())
@pytest.mark.parametrize("shape", _SHAPES)
def test_compress_takes_the_slices_where_the_condition_holds(shape: tuple[int, ...], dtype: str) -> None:
    x = _array(shape, dtype)
    for axis in (None, *range(-len(shape), len(shape))):
        data = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
        for length in {0, len(data) // 2, len(data)}:
            condition = np.random.default_rng(1).random(length) < 0.5
            result = _KERNELS["compress"](x, condition, axis=axis)
            expected = [row for row, holds in zip(data, condition, strict=False) if holds]
            rows = result if axis is None else np.moveaxis(result, axis, 0)
            assert result.dtype == x.dtype
            assert rows.shape == (len(expected), *data.shape[1:])
            for row, wanted in zip(rows, expected, strict=True):
                assert row.tobytes() == wanted.tobytes()


def test_compress_refuses_a_condition_beyond_the_axis() -> None:
    x = np.ones((2, 3), np.float32)
    late = np.array([False, False, False, True])
    with pytest.raises(ExecutionError) as caught:
        _KERNELS["compress"](x, late, axis=1)
    assert str(caught.value) == "op `compress`: the condition holds beyond the end of the axis; got 3, expected < 3"
    assert _KERNELS["compress"](x, late, axis=None).tolist() == [1.0]


@pytest.mark.parametrize("dtype", all_dtypes())
@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_unique_gives_each_different_slice_once(shape: tuple[int, ...], dtype: str, is_sorted: bool) -> None:
    x = _array(shape, dtype, seed=3)
    for axis in (None, *range(-len(shape), len(shape))):
        data = x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)
        values, first, inverse, counts = _KERNELS["unique"](x, axis=axis, sorted=is_sorted)
        rows = values if axis is None else np.moveaxis(values, axis, 0)
        keys = [_key(row) for row in data]
        distinct = sorted(set(keys)) if is_sorted else list(dict.fromkeys(keys))
        assert values.dtype == x.dtype
        assert {first.dtype, inverse.dtype, counts.dtype} == {np.dtype(np.int64)}
        assert [_key(row) for row in rows] == distinct
        assert rows.shape == (len(distinct), *data.shape[1:])
        assert first.tolist() == [keys.index(key) for key in distinct]
        assert inverse.tolist() == [distinct.index(key) for key in keys]
        assert counts.tolist() == [keys.count(key) for key in distinct]
        assert all(rows[i].tobytes() == data[first[i]].tobytes() for i in range(len(distinct)))


@given(
    st.integers(-20, 20),
    st.integers(-20, 20),
    st.integers(-7, 7).filter(bool),
    st.sampled_from(["int8", "int32", "int64", "float32", "float64", "float16", "bfloat16"]),
)
def test_range_is_python_s(start: int, limit: int, delta: int, dtype: str) -> None:
    bounds = [np.array(number).astype(to_numpy(dtype)) for number in (start, limit, delta)]
    result = _KERNELS["range"](*bounds)
    assert result.dtype == to_numpy(dtype)
    assert result.astype(np.int64).tolist() == list(range(start, limit, delta))


@pytest.mark.parametrize(
    ("dtype", "start", "limit", "delta"),
    [
        ("int8", -128, 127, 100),
        ("uint8", 0, 255, 1),
        ("uint64", 2**64 - 5, 2**64 - 1, 2),
        ("int64", -(2**62), 2**62, 2**61),
    ],
)
def test_range_to_the_end_of_a_dtype(dtype: str, start: int, limit: int, delta: int) -> None:
    result = _KERNELS["range"](*(np.array(number, dtype) for number in (start, limit, delta)))
    assert result.dtype == dtype
    assert result.tolist() == list(range(start, limit, delta))


@pytest.mark.parametrize("dtype", ["int4", "float8_e4m3fn", "float8_e5m2"])
def test_range_of_small_dtypes(dtype: str) -> None:
    result = _KERNELS["range"](*(np.array(number).astype(to_numpy(dtype)) for number in (0, 7, 2)))
    assert result.dtype == to_numpy(dtype)
    assert result.astype(np.float32).tolist() == [0, 2, 4, 6]


def test_the_length_of_a_range_follows_from_its_own_dtype() -> None:
    """In float32 ``1.1 - 0.1`` is 1, so there are ten steps of 0.1; the exact difference would give eleven steps."""
    result = _KERNELS["range"](*(np.array(number, np.float32) for number in (0.1, 1.1, 0.1)))
    assert result.shape == (10,)


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ((0.0, 1.0, 0.0), "op `range`: has a step of zero"),
        ((0.0, np.inf, 1.0), "op `range`: has no finite number of steps; got 0.0 to inf by 1.0"),
        ((0.0, np.nan, 1.0), "op `range`: has no finite number of steps; got 0.0 to nan by 1.0"),
    ],
)
def test_range_without_end(bounds: tuple[float, ...], text: str) -> None:
    with pytest.raises(ExecutionError) as caught:
        _KERNELS["range"](*(np.array(number, np.float32) for number in bounds))
    assert str(caught.value) == text
