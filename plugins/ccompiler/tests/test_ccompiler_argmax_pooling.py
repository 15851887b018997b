"""The indices of the largest elements of windows, equal to the reference kernel's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench, sizes_of, tensor_type

FORMS: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 23), {"pool_size": (3,), "strides": (2,), "padding": (1, 1)}),
    ((1, 3, 56, 57), {"pool_size": (2, 2)}),
    ((2, 2, 19, 40), {"pool_size": (3, 4), "strides": (2, 1), "padding": (1, 3, 2, 0), "ceil_mode": True}),
    ((1, 2, 30, 41), {"pool_size": (2, 3), "strides": (1, 3), "dilation": (5, 7)}),
    ((1, 2, 1, 1), {"pool_size": (2, 2), "strides": (2, 2), "padding": (2, 2), "dilation": (2, 2)}),
    ((1, 1, 3, 9000), {"pool_size": (2, 2), "strides": (1, 1)}),
    ((1, 2, 5, 6, 7), {"pool_size": (3, 2, 2), "strides": (2, 1, 2), "padding": (1, 1, 0, 0, 1, 1)}),
)


def _image(shape: tuple[int, ...], dtype: str, seed: int) -> Any:
    """Return an image with many equal elements, zeros of both signs, the least element, and NaN."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 4, shape).astype(dtype)
    if dtype.startswith("float"):
        awkward = np.array([-0.0, -np.inf, np.nan, np.inf], dtype)
        image = np.where(rng.random(shape) < 0.1, awkward[rng.integers(0, 4, shape)], image)
    else:
        image[rng.random(shape) < 0.3] = np.iinfo(dtype).min
    return image


def _check(bench: Bench, function: Function, image: NDArray) -> None:
    (actual,) = bench.run(function, image)
    (expected,) = bench.reference(function, image)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
def test_forms(march: str) -> None:
    bench = Bench(march=march)
    dtypes = ("float32", "float64", "int32", "uint8", "int64") if march == "native" else ("float32",)
    functions = [
        bench.op(f"nn.argmax_pool{len(shape) - 2}d", [tensor(shape, dtype)], **form, column_major=column_major)
        for shape, form in FORMS
        for dtype in dtypes
        for column_major in (False, True)
    ]
    for function in functions:
        shape, dtype = sizes_of(function.params[0]), tensor_type(function.params[0]).dtype
        for seed in range(3):
            image = _image(shape, dtype, seed)
            _check(bench, function, image)


@settings(max_examples=25 if MEANING == 0 else 300, deadline=None)
@given(st.data())
def test_planes(data: st.DataObject) -> None:
    """Windows of any form; an image of the least element alone has the index of the first tap inside."""
    bench = Bench()
    size = tuple(data.draw(st.integers(1, 12)) for _ in range(2))
    dilation = tuple(data.draw(st.integers(1, 3)) for _ in range(2))
    taps = tuple(data.draw(st.integers(1, 5)) for _ in range(2))
    pads = [[data.draw(st.integers(0, count - 1)) for count in taps] for _ in range(2)]
    for axis in range(2):
        pads[1][axis] += max(0, (taps[axis] - 1) * dilation[axis] + 1 - size[axis] - pads[0][axis] - pads[1][axis])
    function = bench.op(
        "nn.argmax_pool2d",
        [tensor((2, 2, *size))],
        pool_size=taps,
        strides=tuple(data.draw(st.integers(1, 4)) for _ in range(2)),
        padding=(*pads[0], *pads[1]),
        dilation=dilation,
        ceil_mode=data.draw(st.booleans()),
        column_major=data.draw(st.booleans()),
    )
    images = (
        _image((2, 2, *size), "float32", data.draw(st.integers(0, 99))),
        np.full((2, 2, *size), -np.inf, "float32"),
    )
    for image in images:
        _check(bench, function, image)


def test_images_of_any_size(bench: Bench) -> None:
    function = bench.op(
        "nn.argmax_pool2d", [tensor(("n", "c", "h", "w"))], pool_size=(3, 2), strides=(2, 2), padding=(1, 0, 1, 0)
    )
    for shape in ((1, 2, 5, 6), (0, 3, 4, 4), (2, 1, 3, 2), (3, 2, 9, 8)):
        image = _image(shape, "float32", 0)
        _check(bench, function, image)


def test_neighbouring_windows_are_compared_side_by_side(bench: Bench) -> None:
    bench.op("nn.argmax_pool2d", [tensor((1, 2, 16, 64))], pool_size=(2, 2))
    assert bench.module.get_source().count("BYOC_INDEPENDENT_ROUNDS") == 2
