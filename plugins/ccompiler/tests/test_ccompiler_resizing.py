"""Resizing against the reference kernel: nearest neighbours exactly, weighted neighbours by Higham's bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import tensor
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import PORTABLE, Bench, assert_sum

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@st.composite
def _resizes(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Draw a shape, and attributes changing the sizes of some axes, the last axis among these or not."""
    shape = tuple(draw(st.lists(st.integers(1, 19), min_size=2, max_size=4)))
    axes = tuple(draw(st.permutations(range(len(shape))))[: draw(st.integers(1, min(3, len(shape))))])
    sizes = tuple(draw(st.integers(1, 40) | st.integers(120, 140)) for _ in axes)
    coordinates = draw(st.sampled_from(["half_pixel", "asymmetric", "align_corners", "half_pixel_or_first"]))
    method = draw(st.sampled_from(sorted(_TAPS)))
    # Scales differing from axis to axis, so that no axis may take the scale of another.
    scales = tuple(size / shape[axis] + 1 / (8 + axis) for axis, size in zip(axes, sizes, strict=True))
    attrs: dict[str, Any] = {"axes": axes, "sizes": sizes, "method": method, "coordinates": coordinates}
    attrs["scales"] = scales if coordinates != "align_corners" and draw(st.booleans()) else None
    return shape, attrs | {"rounding": draw(st.sampled_from(["floor", "ceil", "half_down", "half_up"]))}


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
def test_sizes_and_orders_of_axes(march: str) -> None:
    @settings(max_examples=max(4, settings().max_examples // 5), deadline=None)
    @given(st.lists(_resizes(), min_size=4, max_size=8), st.sampled_from(["float32", "float64", "int32"]))
    def check(cases: list[tuple[tuple[int, ...], dict[str, Any]]], dtype: str) -> None:
        if dtype == "int32":
            cases = [(shape, attrs | {"method": "nearest"}) for shape, attrs in cases]
        bench = Bench(march=march)
        functions = [(bench.op("nn.resize", [tensor(shape, dtype)], **attrs), shape, attrs) for shape, attrs in cases]
        for function, shape, attrs in functions:
            x = np.random.default_rng(0).integers(-99, 99, shape).astype(dtype)
            kernel = function.bindings[0].op.kernel
            assert kernel is not None
            (actual,) = bench.run(function, x)
            every = function.bindings[0].attrs
            if attrs["method"] == "nearest":
                np.testing.assert_array_equal(actual, kernel(x, **every))
                continue
            oracle = np.asarray(kernel(x.astype("float64"), **every))
            # Weights are rounded too; of cubic weights, the magnitudes sum up to less than 2 along an axis.
            magnitude = np.full(oracle.shape, np.abs(x).max() * 2.0 ** len(attrs["axes"]))
            assert_sum(actual, oracle, magnitude, 2 * _TAPS[attrs["method"]] * len(attrs["axes"]))

    check()
