"""Depthwise convolutions with pointwise convolutions around them in a single kernel: the bits of separate kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_core
import numpy as np
import pytest
from byoc_core.ir import Function, Value, tensor

from plugins.ccompiler.tests.bench import PORTABLE, Bench, Builder, assert_sum

Case = tuple[tuple[int, int, int, int], int, int, tuple[int, int], dict[str, Any]]
LARGE = "byoc_ccompiler.chains._LARGE_NBYTES"


def _random(shape: int | Sequence[int], dtype: str = "float32", seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


# The image, channels between, channels of the result (0: no last convolution), the filter, what else is said of it.
CASES: dict[str, Case] = {
    "padded": ((2, 9, 11, 7), 40, 13, (3, 3), {"padding": (1, 1)}),
    "not padded": ((1, 12, 23, 16), 33, 64, (3, 3), {}),
    "strided": ((1, 13, 14, 5), 33, 24, (3, 3), {"strides": (2, 2), "padding": (0, 0, 1, 1)}),
    "even and strided": ((3, 8, 14, 5), 32, 24, (3, 3), {"strides": (2, 2), "padding": (1, 1)}),
    "strides beyond the filter": ((1, 11, 14, 5), 17, 24, (2, 1), {"strides": (3, 2)}),
    "5 by 5": ((1, 14, 28, 3), 24, 70, (5, 5), {"padding": (2, 2)}),
    "one tap": ((1, 5, 6, 4), 20, 1, (1, 1), {}),
    "dilated": ((1, 15, 16, 6), 18, 8, (3, 3), {"dilation": (2, 3), "padding": (2, 2)}),
    "padding beyond the filter": ((1, 2, 3, 1), 16, 5, (2, 2), {"padding": (4, 3)}),
    "many channels": ((1, 7, 7, 11), 529, 19, (3, 3), {"padding": (1, 1)}),
    "one pixel": ((1, 3, 3, 8), 16, 16, (3, 3), {}),
    "one column": ((1, 31, 3, 8), 16, 16, (3, 3), {}),
    "one row": ((1, 1, 40, 8), 16, 16, (1, 3), {"padding": (0, 1)}),
    "long sums": ((1, 9, 8, 530), 600, 20, (3, 3), {"padding": (1, 1)}),
    "two convolutions": ((2, 9, 13, 6), 40, 0, (3, 3), {"padding": (1, 1)}),
    "many rows": ((1, 77, 5, 6), 16, 7, (3, 3), {"padding": (1, 1)}),
    "empty batch": ((0, 5, 5, 6), 16, 7, (3, 3), {}),
}

WITHOUT_FIRST = ("padded", "strided", "many channels")
"""Cases with the depthwise convolution also at the start of a chain."""


def _weights(case: Case, dtype: str) -> dict[str, Any]:
    (_, _, _, channels), between, last, filter_size, _ = case
    return {
        "expand": _random((1, 1, channels, between), dtype, 1),
        "taps": _random((*filter_size, 1, between), dtype, 2),
        "project": _random((1, 1, between, last), dtype, 3),
        "bias": _random((between,), dtype, 4),
    }


def _emit(builder: Builder, image: Value, case: Case, dtype: str, *, first: bool = True) -> list[Any]:
    """Return the results of the convolutions of a case, in order, each with the following ops."""
    _, between, last, _, attrs = case
    weights = _weights(case, dtype)
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    bias = builder.const(weights["bias"])
    values = []
    if first:
        sums = builder.emit("nn.conv2d", image, builder.const(weights["expand"]), **layout)
        image = builder.emit("clip", builder.emit("nn.bias_add", sums, bias, axis=3), min=0.0, max=6.0)
        values.append(image)
    sums = builder.emit("nn.conv2d", image, builder.const(weights["taps"]), groups=between, **attrs, **layout)
    values.append(builder.emit("nn.relu", builder.emit("nn.bias_add", sums, bias, axis=3)))
    if last:
        values.append(builder.emit("nn.conv2d", values[-1], builder.const(weights["project"]), **layout))
    return values


def _add(bench: Bench, case: Case, dtype: str, *, first: bool, all_results: bool) -> Function:
    builder = bench.builder()
    shape = case[0] if first else (*case[0][:3], case[1])
    values = _emit(builder, builder.param("x", tensor(shape, dtype)), case, dtype, first=first)
    function: Function = bench.add(builder, *(values if all_results else values[-1:]))
    return function


@pytest.mark.parametrize(
    ("dtype", "march"),
    [
        ("float32", "generic"),
        ("float32", "x86-64-v3"),
        ("float32", "native"),
        ("float64", "native"),
        ("float32", PORTABLE),
    ],
)
def test_geometries(monkeypatch: pytest.MonkeyPatch, dtype: str, march: str) -> None:
    monkeypatch.setattr(LARGE, 0)
    bench = Bench(march=march)
    functions = []
    for name, case in CASES.items():
        for first in (True, False) if name in WITHOUT_FIRST else (True,):
            chain = _add(bench, case, dtype, first=first, all_results=False)
            # A value that is wanted outside is written by a kernel of its own.
            steps = _add(bench, case, dtype, first=first, all_results=True)
            functions.append((chain, steps, case[0] if first else (*case[0][:3], case[1])))
    for chain, steps, shape in functions:
        assert (len(bench.calls(chain)) > 1) == (shape[0] == 0)
        assert len(bench.calls(steps)) > 1
        image = _random(shape, dtype)
        (actual,) = bench.run(chain, image)
        np.testing.assert_array_equal(actual, bench.run(steps, image)[-1])


@pytest.mark.parametrize("march", ["generic", "x86-64-v3", "native", PORTABLE])
def test_the_first_convolution_of_a_network(monkeypatch: pytest.MonkeyPatch, march: str) -> None:
    """In an image of few channels, in any order, one by one or in a batch (then it stays alone)."""
    monkeypatch.setattr(LARGE, 0)
    bench = Bench(march=march)
    forms: list[tuple[Any, str, dict[str, Any]]] = [
        ((1, 3, 29, 37), "NCHW", {"padding": (1, 1), "strides": (2, 2)}),
        ((1, 29, 37, 3), "NHWC", {"padding": (0, 1, 2, 1), "strides": (2, 3)}),
        ((1, 20, 25, 2), "NHWC", {"strides": (3, 2)}),
        ((3, 20, 25, 2), "NHWC", {"padding": (1, 1), "strides": (2, 2)}),
    ]
    functions = []
    for shape, layout, attrs in forms:
        channels = shape[layout.index("C")]
        pair = []
        for all_results in (False, True):
            builder = bench.builder()
            x = builder.param("x", tensor(shape))
            image = builder.emit("permute_dims", x, axes=(0, 2, 3, 1)) if layout == "NCHW" else x
            weight = builder.const(_random((3, 3, channels, 24), seed=7))
            first = builder.emit("nn.conv2d", image, weight, data_layout="NHWC", kernel_layout="HWIO", **attrs)
            first = builder.emit("nn.relu", first)
            case = (None, 24, 7, (3, 3), {"padding": (1, 1)})
            rest = _emit(builder, first, ((*shape[:3], channels), *case[1:]), "float32", first=False)
            pair.append(bench.add(builder, *([first, *rest] if all_results else rest[-1:])))
        functions.append((*pair, shape))
    for chain, steps, shape in functions:
        assert (len(bench.calls(chain)) > 1) == (shape[0] > 1)
        image = _random(shape)
        (actual,) = bench.run(chain, image)
        np.testing.assert_array_equal(actual, bench.run(steps, image)[-1])


def test_a_block_with_a_residual_is_one_kernel(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LARGE, 0)
    case = ((2, 9, 11, 24), 40, 24, (3, 3), {"padding": (1, 1)})
    results = {}
    for all_results in (False, True):
        builder = bench.builder()
        image = builder.param("x", tensor(case[0]))
        *values, last = _emit(builder, image, case, "float32")
        last = builder.emit("add", last, image)
        results[all_results] = bench.add(builder, *([*values, last] if all_results else [last]))
    x = _random(case[0])
    (actual,) = bench.run(results[False], x)
    np.testing.assert_array_equal(actual, bench.run(results[True], x)[-1])
    assert "f0_1" not in bench.module.get_source()


def test_chains_read_and_write_rows_that_lie_apart(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LARGE, 0)
    layout = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
    for first in (True, False):
        builder = bench.builder()
        x = builder.param("x", tensor((1, 9, 10, 48)))
        left, right = builder.bind("split", [x], {"sections": (24, 24), "axis": 3}).results
        image = left
        if first:
            image = builder.emit("nn.conv2d", image, builder.const(_random((1, 1, 24, 24), seed=1)), **layout)
        taps = builder.const(_random((3, 3, 1, 24), seed=2))
        image = builder.emit("nn.conv2d", image, taps, groups=24, padding=(1, 1), **layout)
        image = builder.emit("nn.conv2d", image, builder.const(_random((1, 1, 24, 40), seed=3)), **layout)
        bench.add(builder, builder.emit("concat", image, right, axis=3))
    array = _random((1, 9, 10, 48), seed=5)
    sizes = Bench()
    sizes.constants.update({digest: np.abs(weight) for digest, weight in bench.constants.items()})
    for function in bench.functions:
        # The convolutions, and the copy of the other half.
        assert len(bench.calls(function)) == 2
        (actual,) = bench.run(function, array)
        (wide,) = bench.reference(function, array, wide=True)
        (magnitude,) = sizes.reference(function, np.abs(array), wide=True)
        np.testing.assert_array_equal(actual[..., 40:], array[..., 24:])
        assert_sum(actual, wide, magnitude, 24 + 9 + 24)


def test_what_two_read_ends_a_chain(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """For instance a squeeze and excitation before the last convolution."""
    monkeypatch.setattr(LARGE, 0)
    case = ((1, 9, 11, 24), 40, 0, (3, 3), {"padding": (1, 1)})
    functions = []
    for all_results in (False, True):
        builder = bench.builder()
        values = _emit(builder, builder.param("x", tensor(case[0])), case, "float32")
        scaled = builder.emit("multiply", values[-1], builder.emit("mean", values[-1], axis=(1, 2), keepdims=True))
        weight = builder.const(_random((1, 1, 40, 8), seed=9))
        last = builder.emit("nn.conv2d", scaled, weight, data_layout="NHWC", kernel_layout="HWIO")
        functions.append(bench.add(builder, *([*values, last] if all_results else [last])))
    x = _random(case[0])
    (actual,) = bench.run(functions[0], x)
    np.testing.assert_array_equal(actual, bench.run(functions[1], x)[-1])
    source = bench.module.get_source()
    assert source.count("/* nn.conv2d, nn.bias_add, clip, nn.conv2d, nn.bias_add, nn.relu */") == 1
    assert "BYOC_KERNEL void f0_1_" in source


def test_what_is_small_or_of_unknown_size_is_not_joined(bench: Bench) -> None:
    case = ((2, 9, 11, 24), 40, 24, (3, 3), {"padding": (1, 1)})
    for shape in (case[0], ("n", 900, 900, 24)):
        builder = bench.builder()
        bench.add(builder, _emit(builder, builder.param("x", tensor(shape)), case, "float32")[-1])
    source = bench.module.get_source()
    for function in bench.functions:
        assert f"BYOC_KERNEL void {function.name}_2" in source


@pytest.mark.parametrize("name", ["padded", "strided", "5 by 5", "many rows"])
def test_the_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(LARGE, 0)
    monkeypatch.setattr("byoc_core.authoring.csource_parallel.PARALLEL_WORK_PS", 1)
    case = CASES[name]
    builder: Any = byoc_core.FunctionBuilder("main")
    result = _emit(builder, builder.param("x", tensor(case[0])), case, "float32")[-1]
    module = byoc_core.IRModule({"main": builder.finish(result)}, builder.constants)
    executable = byoc_core.build(module, backends=["ccompiler"], fallback="error")
    assert sum(m.get_source("c").count("byoc_parallel_for(") for m in executable.modules) == 1
    image = _random(case[0])
    results = [byoc_core.VirtualMachine(executable, num_threads=n)["main"](image) for n in (1, 2, 3, 7)]
    assert len({np.asarray(found).tobytes() for found in results}) == 1
