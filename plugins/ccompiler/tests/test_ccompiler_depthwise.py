"""Depthwise convolution, channels last, against a float64 oracle with the bound of Higham, ch. 3."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import PORTABLE, Bench, assert_sum


def _random(shape: int | Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _check(function: Function, actual: NDArray, image: NDArray, weight: NDArray) -> None:
    binding = function.bindings[0]
    kernel = binding.op.kernel
    assert kernel is not None
    wide = [array.astype("float64") for array in (image, weight)]
    oracle, magnitude = (np.asarray(kernel(*arrays, **binding.attrs)) for arrays in (wide, map(np.abs, wide)))
    assert_sum(actual, oracle, magnitude, weight.size // image.shape[-1])


CASES: dict[str, tuple[Any, tuple[int, int], dict[str, Any]]] = {
    "padded": ((2, 9, 11, 40), (3, 3), {"padding": (1, 1)}),
    "not padded": ((1, 12, 23, 16), (3, 3), {}),
    "strided": ((1, 13, 14, 33), (3, 3), {"strides": (2, 2), "padding": (0, 0, 1, 1)}),
    "strides of two kinds": ((1, 13, 17, 17), (3, 5), {"strides": (1, 3), "padding": (1, 2)}),
    "5 by 5": ((1, 14, 28, 24), (5, 5), {"padding": (2, 2)}),
    "7 by 7": ((1, 9, 9, 20), (7, 7), {"padding": (3, 3)}),
    "one tap": ((1, 5, 6, 20), (1, 1), {}),
    "a line": ((1, 5, 19, 20), (1, 4), {"padding": (0, 1, 0, 2)}),
    "dilated": ((1, 15, 16, 18), (3, 3), {"dilation": (2, 3), "padding": (2, 2)}),
    "dilated and strided": ((2, 15, 16, 18), (3, 2), {"dilation": (3, 2), "strides": (2, 3), "padding": (2, 1, 3, 2)}),
    "9 by 9": ((1, 11, 13, 24), (9, 9), {"padding": (4, 4)}),
    "a long line": ((1, 2, 60, 16), (1, 41), {"padding": (0, 20)}),
    "21 by 7, strided": ((1, 33, 19, 17), (21, 7), {"padding": (10, 3), "strides": (3, 2)}),
    "far apart": ((1, 20, 22, 16), (3, 3), {"dilation": (18, 12), "padding": (18, 12)}),
    "padding beyond the filter": ((1, 2, 3, 16), (2, 2), {"padding": (4, 3)}),
    "many channels": ((1, 7, 7, 529), (3, 3), {"padding": (1, 1)}),
    "chunks of two sizes": ((1, 7, 8, 263), (3, 3), {"padding": (1, 1)}),
    "one pixel": ((1, 3, 3, 16), (3, 3), {}),
    "one row": ((1, 1, 40, 16), (1, 3), {"padding": (0, 1)}),
    "empty batch": ((0, 5, 5, 16), (3, 3), {}),
}


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_geometries(dtype: str, march: str) -> None:
    bench = Bench(march=march)
    layouts = {"OIHW": lambda c, k: (c, 1, *k), "HWIO": lambda c, k: (*k, 1, c)}
    functions = []
    for number, (shape, filter_size, attrs) in enumerate(CASES.values()):
        layout = list(layouts)[number % 2]
        weight = _random(layouts[layout](shape[3], filter_size), dtype, 1)
        for is_constant in (True, False):
            builder = bench.builder()
            image = builder.param("x", tensor(shape, dtype))
            kernel = builder.const(weight) if is_constant else builder.param("w", tensor(weight.shape, dtype))
            given_attrs = {"groups": shape[3], "data_layout": "NHWC", "kernel_layout": layout, **attrs}
            result = builder.emit("nn.conv2d", image, kernel, **given_attrs)
            functions.append((bench.add(builder, result), _random(shape, dtype), weight))
    assert "_depthwise_inside" in bench.module.get_source()
    for function, image, weight in functions:
        (actual,) = bench.run(function, *[image, weight][: len(function.params)])
        _check(function, actual, image, weight)


LINES: dict[str, tuple[tuple[int, int, int], int, dict[str, Any]]] = {
    "padded": ((2, 29, 40), 15, {"padding": (7, 7)}),
    "causal": ((1, 23, 33), 4, {"padding": (3, 0)}),
    "strided": ((3, 40, 18), 5, {"strides": (3,), "padding": (2, 1)}),
    "dilated": ((1, 30, 16), 3, {"dilation": (8,), "padding": (8, 8)}),
    "a filter of the longest reach": ((2, 37, 17), 31, {"padding": (15, 15)}),
    "shorter than the filter": ((1, 5, 20), 9, {"padding": (4, 4)}),
    "many channels": ((1, 7, 529), 3, {"padding": (1, 1)}),
    "one step": ((1, 1, 16), 3, {"padding": (1, 1)}),
    "empty batch": ((0, 5, 16), 3, {}),
}


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sequences(dtype: str, march: str) -> None:
    """``nn.conv1d`` goes the way of images of one row, with an epilogue reading a tensor of two axes and channels."""
    bench = Bench(march=march)
    functions = []
    for number, (shape, filter_size, attrs) in enumerate(LINES.values()):
        weight = _random((shape[-1], 1, filter_size), dtype, number)
        for is_constant in (True, False):
            builder = bench.builder()
            image = builder.param("x", tensor(("n", "t", shape[-1]) if number % 3 else shape, dtype))
            kernel = builder.const(weight) if is_constant else builder.param("w", tensor(weight.shape, dtype))
            form = {"groups": shape[-1], "data_layout": "NWC", **attrs}
            sums = builder.emit("nn.conv1d", image, kernel, **form)
            result = builder.emit("add", sums, builder.const(_random(shape[-1], dtype, 9)))
            functions.append((bench.add(builder, sums, result), _random(shape, dtype), weight))
    assert "_depthwise_border" in bench.module.get_source()
    assert ("_windows_" in bench.module.get_source()) == (march == PORTABLE)  # scalars reach less far
    for function, image, weight in functions:
        plain, actual = bench.run(function, *[image, weight][: len(function.params)])
        _check(function, plain, image, weight)
        np.testing.assert_array_equal(actual, plain + _random(image.shape[-1], dtype, 9))


@pytest.mark.parametrize(("march", "least_lanes"), [("generic", 4), ("x86-64-v3", 8), ("native", 4), (PORTABLE, 1)])
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_groups_of_few_channels(size: int, march: str, least_lanes: int) -> None:
    """Each output channel meets all channels of the group: the weights of all pairs differ."""
    bench = Bench(march=march)
    functions = []
    for number, ((*sizes, count), filter_size, attrs) in enumerate(CASES.values()):
        shape = (*sizes, -(-count // size) * size)
        for dtype in ("float32", "float64"):
            builder = bench.builder()
            image = builder.param("x", tensor(shape, dtype))
            weight = _random((shape[3], size, *filter_size), dtype, number)
            is_constant = number % 5 > 0
            kernel = builder.const(weight) if is_constant else builder.param("w", tensor(weight.shape, dtype))
            result = builder.emit("nn.conv2d", image, kernel, groups=shape[3] // size, data_layout="NHWC", **attrs)
            functions.append((bench.add(builder, result), _random(shape, dtype), weight))
    if size <= least_lanes or march == PORTABLE:
        assert ("_depthwise_inside" in bench.module.get_source()) == (march != PORTABLE)
    for function, image, weight in functions:
        (actual,) = bench.run(function, *[image, weight][: len(function.params)])
        _check(function, actual, image, weight)


def test_images_of_any_size(bench: Bench) -> None:
    forms: list[dict[str, Any]] = [
        {"padding": (1, 1)},
        {"padding": (1, 0, 2, 1), "strides": (2, 2)},
        {"strides": (1, 2), "dilation": (1, 1)},
    ]
    weight = _random((3, 3, 1, 21), seed=1)
    functions = []
    for form in forms:
        builder = bench.builder()
        x = builder.param("x", tensor(("n", "h", "w", 21)))
        attrs = {"groups": 21, "data_layout": "NHWC", "kernel_layout": "HWIO", **form}
        functions.append(bench.add(builder, builder.emit("nn.conv2d", x, builder.const(weight), **attrs)))
    assert "_depthwise_inside" in bench.module.get_source()

    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.sampled_from(functions), st.integers(0, 3), st.integers(3, 23), st.integers(3, 23), st.integers(0, 99))
    def check(function: Function, batch: int, height: int, width: int, seed: int) -> None:
        image = _random((batch, height, width, 21), seed=seed)
        (actual,) = bench.run(function, image)
        _check(function, actual, image, weight)

    check()


@st.composite
def _large_windows(draw: st.DrawFn) -> tuple[Any, tuple[int, int], dict[str, Any]]:
    """Draw a shape, a window too large or too dilated to be unrolled, and attributes."""
    sizes = st.sampled_from([(9, 9), (11, 7), (1, 80), (13, 6), (3, 3), (2, 5)])
    height, width = draw(sizes)
    is_large = height * width > 72
    dilation = (1, 1) if is_large else draw(st.sampled_from([(31, 1), (1, 33), (16, 40)]))
    reach = ((height - 1) * dilation[0] + 1, (width - 1) * dilation[1] + 1)
    padding = [draw(st.integers(0, size)) for size in (*reach, *reach)]
    room = [max(1, size - padding[axis] - padding[axis + 2]) for axis, size in enumerate(reach)]
    shape = (1, *(least + draw(st.integers(0, 11)) for least in room), draw(st.sampled_from([16, 21, 40])))
    strides = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return shape, (height, width), {"padding": tuple(padding), "strides": strides, "dilation": dilation}


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native"])
def test_large_windows_have_loops_over_taps(march: str) -> None:
    @settings(max_examples=max(4, settings().max_examples // 5), deadline=None)
    @given(st.lists(_large_windows(), min_size=3, max_size=6))
    def check(cases: list[tuple[Any, tuple[int, int], dict[str, Any]]]) -> None:
        bench, functions = Bench(march=march), []
        for shape, filter_size, attrs in cases:
            weight = _random((*filter_size, 1, shape[3]), seed=1)
            builder = bench.builder()
            layouts = {"groups": shape[3], "data_layout": "NHWC", "kernel_layout": "HWIO"}
            x = builder.param("x", tensor(shape))
            emitted = builder.emit("nn.conv2d", x, builder.const(weight), **layouts, **attrs)
            functions.append((bench.add(builder, emitted), _random(shape), weight))
        source = bench.module.get_source()
        assert "byoc_shared_depthwise" in source
        assert not re.search(r"\btotals\b|byoc_shared_rows|byoc_shared_tile", source)
        for function, image, weight in functions:
            (actual,) = bench.run(function, image)
            _check(function, actual, image, weight)

    check()


def test_a_larger_window_needs_no_more_code() -> None:
    def length(size: int) -> int:
        bench = Bench(march="x86-64-v3")
        builder = bench.builder()
        x = builder.param("x", tensor((1, 64, 64, 32)))
        attrs = {"groups": 32, "data_layout": "NHWC", "kernel_layout": "HWIO"}
        bench.add(builder, builder.emit("nn.conv2d", x, builder.param("w", tensor((size, size, 1, 32))), **attrs))
        source = bench.module.get_source()
        assert "byoc_shared_depthwise" in source
        return len(source)

    assert length(31) < 1.2 * length(13)


def test_what_follows_is_computed_on_the_sums(bench: Bench) -> None:
    builder = bench.builder()
    x, other = builder.param("x", tensor((2, 9, 10, 40))), builder.param("other", tensor((2, 9, 10, 40)))
    weight, bias = builder.const(_random((3, 3, 1, 40), seed=1)), builder.const(_random(40, seed=2))
    attrs = {"groups": 40, "data_layout": "NHWC", "kernel_layout": "HWIO", "padding": (1, 1)}
    sums = builder.emit("nn.conv2d", x, weight, **attrs)
    biased = builder.emit("add", builder.emit("nn.bias_add", sums, bias, axis=3), other)
    function = bench.add(builder, sums, builder.emit("clip", biased, min=0.0, max=6.0))
    image, residual = _random((2, 9, 10, 40)), _random((2, 9, 10, 40), seed=3)
    plain, actual = bench.run(function, image, residual)
    np.testing.assert_array_equal(actual, np.clip(plain + _random(40, seed=2) + residual, 0, 6))
    assert "BYOC_KERNEL void f0_0_" in bench.module.get_source()
    assert "f0_1" not in bench.module.get_source()


@pytest.mark.parametrize(("channels", "filters", "is_depthwise"), [(3, 3, False), (32, 64, True), (32, 32 * 9, False)])
def test_few_channels_and_many_filters_go_another_way(channels: int, filters: int, is_depthwise: bool) -> None:
    bench = Bench()
    types = [tensor((1, 7, 7, channels)), tensor((3, 3, 1, filters))]
    bench.op("nn.conv2d", types, groups=channels, data_layout="NHWC", kernel_layout="HWIO")
    assert ("depthwise" in bench.module.get_source()) == is_depthwise


@pytest.mark.parametrize("is_constant", [True, False])
def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch, is_constant: bool) -> None:
    monkeypatch.setattr("byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS", 1)
    builder: Any = byoc_core.FunctionBuilder("main")
    x = builder.param("x", tensor((2, 13, 29, 40)))
    weight = _random((3, 3, 1, 40), seed=1)
    kernel = builder.const(weight) if is_constant else builder.param("w", tensor(weight.shape))
    attrs = {"groups": 40, "data_layout": "NHWC", "kernel_layout": "HWIO", "padding": (1, 1)}
    result = builder.emit("nn.conv2d", x, kernel, **attrs)
    module = byoc_core.IRModule({"main": builder.finish(result)}, builder.constants)
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    # A filter that is computed is rearranged by a loop of its own.
    assert sum(m.get_source("c").count("byoc_parallel_for(") for m in executable.modules) == 2 - is_constant
    inputs = [_random((2, 13, 29, 40)), *([] if is_constant else [weight])]
    results = [byoc_core.VirtualMachine(executable, num_threads=n)["main"](*inputs) for n in (1, 2, 3, 7)]
    assert len({np.asarray(result).tobytes() for result in results}) == 1
