"""The indices of extreme elements, along rows and across rows, equal to the reference kernels'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import Function, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench, sizes_of, tensor_type


def _numbers(shape: tuple[int, ...], dtype: str, seed: int, share: float = 0.01) -> Any:
    """Return numbers with many equal elements, infinities, and a share of NaN."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 6, shape).astype(dtype)
    if not dtype.startswith("float"):
        return numbers
    numbers = np.where(rng.random(shape) < 0.05, np.array([-0.0, np.inf, -np.inf], dtype)[rng.integers(0, 3)], numbers)
    return np.where(rng.random(shape) < share, np.array(np.nan, dtype), numbers)


def _functions(bench: Bench, dtype: str, shapes: tuple[tuple[int, ...], ...]) -> list[Function]:
    return [
        bench.op(op, [tensor(shape, dtype)], axis=axis, select_last_index=takes_last)
        for shape in shapes
        for axis in range(len(shape))
        if shape[axis]
        for op in ("argmax", "argmin")
        for takes_last in (False, True)
    ]


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
def test_rows_and_columns(march: str) -> None:
    bench = Bench(march=march)
    shapes = ((3, 200), (5, 64), (2, 300, 3), (300, 2), (4, 3, 270), (1, 1), (7,), (0, 5))
    dtypes = ("float32", "float64", "int32", "int8", "uint64") if march == "native" else ("float32",)
    functions = [
        function
        for dtype in dtypes
        for function in _functions(bench, dtype, shapes if dtype == "float32" else shapes[:4])
    ]
    for function in functions:
        shape = sizes_of(function.params[0])
        for seed, share in enumerate((0, 0.01, 0.5)):
            x = _numbers(shape, tensor_type(function.params[0]).dtype, seed, share)
            (actual,) = bench.run(function, x)
            (expected,) = bench.reference(function, x)
            np.testing.assert_array_equal(actual, expected, err_msg=f"{shape} {dict(function.bindings[0].attrs)}")


@pytest.mark.parametrize("march", ["generic", "native", PORTABLE])
def test_short_rows(march: str) -> None:
    """Rows compared side by side and element by element: few, a multiple of a block, with a rest; of few lines."""
    bench = Bench(march=march)
    shapes: list[tuple[int, ...]] = [(rows, size) for rows in (15, 64, 65, 200) for size in (1, 2, 3, 10, 32, 127)]
    shapes += [(70, 3, 2), (128, 9, 3), (67, 16, 2), (65, 2, 8), (20, 1, 2), (3, 300, 15), (16, 700, 6)]
    functions = [
        bench.op(op, [tensor(shape, dtype)], axis=1, select_last_index=takes_last)
        for shape in shapes
        for dtype in ("float32", "float64", "int8")
        for op, takes_last in (("argmax", False), ("argmin", True))
    ]
    for seed, function in enumerate(functions):
        shape = sizes_of(function.params[0])
        for share in (0, 0.3):
            x = _numbers(shape, tensor_type(function.params[0]).dtype, seed, share)
            (actual,), (expected,) = bench.run(function, x), bench.reference(function, x)
            np.testing.assert_array_equal(actual, expected, err_msg=f"{shape} {dict(function.bindings[0].attrs)}")


def test_short_rows_of_an_unknown_number(bench: Bench) -> None:
    functions = [bench.op("argmax", [tensor(("n", *sizes))], axis=1) for sizes in ((10,), (9, 3), (32, 2))]
    for function in functions:
        for rows in (0, 1, 63, 64, 65, 130):
            x = _numbers(sizes_of(function.params[0], {"n": rows}), "float32", rows, 0.1)
            (actual,), (expected,) = bench.run(function, x), bench.reference(function, x)
            np.testing.assert_array_equal(actual, expected)


def test_sizes_that_a_call_shows(bench: Bench) -> None:
    functions = [
        bench.op(op, [tensor(("n", "m"))], axis=axis, select_last_index=takes_last)
        for op in ("argmax", "argmin")
        for axis in (0, 1)
        for takes_last in (False, True)
    ]

    @settings(max_examples=40 if MEANING == 0 else 400, deadline=None)
    @given(st.sampled_from(functions), st.integers(1, 400), st.integers(1, 400), st.integers(0, 99))
    def check(function: Function, rows: int, columns: int, seed: int) -> None:
        x = _numbers((rows, columns), "float32", seed, 0.5 / columns)
        (actual,) = bench.run(function, x)
        (expected,) = bench.reference(function, x)
        np.testing.assert_array_equal(actual, expected)

    check()
