"""Convolutions of volumes as convolutions of images: equal numbers for all strides, filters, paddings and layouts."""

from __future__ import annotations

import re
from random import Random

import byoc_core
import numpy as np
import pytest
from byoc_ccompiler.regions import prepare_regions
from byoc_ccompiler.registry import FAMILIES
from byoc_core import VirtualMachine
from byoc_core.dims import Dim, symbol
from byoc_core.errors import CallError, ExecutionError
from byoc_core.ir import Function, IRModule, tensor
from byoc_core.ops import FunctionBuilder
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import PORTABLE, Bench


def _ops(bench: Bench, function: Function) -> list[str]:
    module = prepare_regions([function], bench.constants, FAMILIES)
    return [binding.op.name for binding in module[function.name].bindings]


def _draw(rng: Random, bench: Bench, number: int) -> tuple[Function, list[NDArray]]:
    """Return a convolution of whole numbers, whose sums are exact in any order, with ops behind it, and its inputs."""
    taps, strides = [rng.randint(1, 3) for _ in "DHW"], [rng.choice((1, 1, 2)) for _ in "DHW"]
    dilation = [rng.choice((1, 1, 2)) for _ in "DHW"]
    padding = [rng.randint(0, 2) for _ in "DHWDHW"]
    sizes = [rng.randint((tap - 1) * gap + 1, 6) for tap, gap in zip(taps, dilation, strict=True)]
    groups = rng.choice((1, 1, 1, 2))
    channels, out_channels, batch = groups * rng.randint(1, 4), groups * rng.randint(1, 4), rng.randint(1, 3)
    data_layout, kernel_layout = rng.choice(("NCDHW", "NDHWC")), rng.choice(("OIDHW", "DHWIO"))
    dims = {"N": batch, "C": channels, **dict(zip("DHW", sizes, strict=True))}
    filter_dims = {"O": out_channels, "I": channels // groups, **dict(zip("DHW", taps, strict=True))}
    draw = np.random.default_rng(number)
    weight = draw.integers(-4, 5, [filter_dims[letter] for letter in kernel_layout]).astype("float32")
    image = draw.integers(-4, 5, [dims[letter] for letter in data_layout]).astype("float32")
    symbols = {letter: symbol(f"{letter.lower()}{number}") for letter in rng.sample("NDHW", rng.randint(0, 2))}
    shape: list[Dim] = [symbols.get(letter, dims[letter]) for letter in data_layout]
    builder = bench.builder()
    attrs = {"strides": tuple(strides), "padding": tuple(padding), "dilation": tuple(dilation), "groups": groups}
    layouts = {"data_layout": data_layout, "kernel_layout": kernel_layout}
    x = builder.param("x", tensor(tuple(shape), "float32"))
    result = builder.emit("nn.conv3d", x, builder.const(weight), **attrs, **layouts)
    if rng.random() < 0.5:
        bias = builder.const(draw.integers(-4, 5, out_channels).astype("float32"))
        result = builder.emit("nn.bias_add", result, bias, axis=data_layout.index("C"))
    if rng.random() < 0.5:
        other = builder.emit("nn.conv3d", x, builder.const(-weight), **attrs, **layouts)
        result = builder.emit("add", *rng.sample([result, builder.emit("nn.relu", other)], 2))
    return bench.add(builder, builder.emit("nn.relu", result)), [image]


@pytest.mark.parametrize("march", ["native", PORTABLE])
def test_random_convolutions_of_volumes(march: str) -> None:
    seen = set[bool]()

    @settings(max_examples=3, deadline=None)
    @given(st.randoms(use_true_random=True))
    def check(rng: Random) -> None:
        bench = Bench(march=march)
        # Several at a time: a run of the C compiler costs more than a convolution.
        cases = [_draw(rng, bench, number) for number in range(16)]
        for function, inputs in cases:
            (actual,), (expected,) = bench.run(function, *inputs), bench.reference(function, *inputs)
            np.testing.assert_array_equal(actual, expected, err_msg=str(function))
            seen.add("nn.conv3d" in _ops(bench, function))

    check()
    assert False in seen


@pytest.mark.parametrize(
    ("shape", "attrs", "is_of_images"),
    [
        (("n", 6, "d", "h", "w"), {"padding": (1,) * 6}, True),
        ((1, 6, 7, 8, 9), {"strides": (2, 2, 2)}, True),
        ((1, 6, "d", 8, 9), {"strides": (1, 2, 2), "dilation": (2, 1, 1)}, True),
        ((1, 6, "d", 8, 9), {"strides": (2, 1, 1)}, False),
        ((1, 12, 7, 8, 9), {"groups": 2}, True),
    ],
)
def test_which_become_convolutions_of_images(
    shape: tuple[int | str, ...], attrs: dict[str, object], is_of_images: bool
) -> None:
    bench = Bench()
    builder = bench.builder()
    x = builder.param("x", tensor(shape, "float32"))
    function = bench.add(builder, builder.emit("nn.conv3d", x, builder.const(np.ones((4, 6, 3, 3, 3), "f4")), **attrs))
    assert ("nn.conv2d" in _ops(bench, function)) == is_of_images
    assert ("nn.conv3d" in _ops(bench, function)) != is_of_images


@pytest.mark.parametrize("filter_shape", [(4, 8, 9, 1, 1), (1, 8, 3, 3, 3)])
def test_many_taps_along_the_depth_and_few_products_stay(filter_shape: tuple[int, ...]) -> None:
    bench = Bench()
    builder = bench.builder()
    x = builder.param("x", tensor((1, 8, 12, 6, 6)))
    function = bench.add(builder, builder.emit("nn.conv3d", x, builder.const(np.ones(filter_shape, "f4"))))
    assert "nn.conv3d" in _ops(bench, function)


def test_filters_for_each_channel_alone_stay() -> None:
    bench = Bench()
    builder = bench.builder()
    x, weight = builder.param("x", tensor((1, 4, 3, 3, 3))), builder.const(np.ones((4, 1, 2, 2, 2), "f4"))
    assert "nn.conv3d" in _ops(bench, bench.add(builder, builder.emit("nn.conv3d", x, weight, groups=4)))


def test_a_filter_given_by_the_caller_stays() -> None:
    bench = Bench()
    builder = bench.builder()
    x, weight = builder.param("x", tensor((1, 2, 3, 3, 3))), builder.param("w", tensor((2, 2, 2, 2, 2)))
    function = bench.add(builder, builder.emit("nn.conv3d", x, weight))
    assert "nn.conv3d" in _ops(bench, function)


def test_a_residual_block_has_transposes_at_its_borders_and_ops_in_the_kernels_of_its_convolutions() -> None:
    bench = Bench()
    builder = bench.builder()
    x = builder.param("x", tensor((1, 4, 5, 6, 7)))
    rng = np.random.default_rng(0)
    weights = [builder.const(rng.standard_normal((4, 4, 3, 3, 3)).astype("float32")) for _ in range(2)]
    bias = builder.const(rng.standard_normal(4).astype("float32"))
    inner = builder.emit("nn.conv3d", x, weights[0], padding=(1,) * 6)
    inner = builder.emit("nn.relu", builder.emit("nn.bias_add", inner, bias, axis=1))
    outer = builder.emit("nn.conv3d", inner, weights[1], padding=(1,) * 6)
    function = bench.add(builder, builder.emit("nn.relu", builder.emit("add", outer, x)))
    ops = _ops(bench, function)
    assert ops.count("permute_dims") == 2
    computing = [op for op in ops if op in ("nn.conv2d", "nn.bias_add", "add", "nn.relu", "concat")]
    assert computing == ["concat", "nn.conv2d", "nn.bias_add", "nn.relu", "concat", "nn.conv2d", "add", "nn.relu"]
    # No reshape parts a convolution from the ops in its kernel.
    assert ops[ops.index("nn.conv2d") :][:3] == ["nn.conv2d", "nn.bias_add", "nn.relu"]
    image = rng.standard_normal((1, 4, 5, 6, 7)).astype("float32")
    (actual,), (expected,) = bench.run(function, image), bench.reference(function, image)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("attrs", "depth", "padded", "window"),
    [
        ({}, 2, 2, 3),
        ({"dilation": (2, 1, 1)}, 4, 4, 5),
        ({"padding": (1, 0, 0, 0, 0, 0)}, 1, 2, 3),
        ({"data_layout": "NDHWC"}, 2, 2, 3),
    ],
)
def test_a_depth_smaller_than_the_window_is_an_error(
    attrs: dict[str, object], depth: int, padded: int, window: int
) -> None:
    bench = Bench()
    builder = bench.builder()
    sizes = {"N": 1, "C": 4, "H": 4, "W": 4}
    dims: dict[str, Dim] = {**sizes, "D": symbol("d")}
    layout = str(attrs.get("data_layout", "NCDHW"))
    x = builder.param("x", tensor(tuple(dims[letter] for letter in layout), "float32"))
    weight = builder.const(np.ones((4, 4, 3, 3, 3), "f4"))
    function = bench.add(builder, builder.emit("nn.conv3d", x, weight, **attrs))
    assert "nn.conv2d" in _ops(bench, function)
    shapes = [[{**sizes, "D": size}[letter] for letter in layout] for size in (depth, depth + 1)]
    small, large = (np.ones(shape, np.float32) for shape in shapes)
    message = f"axis 2 of the padded image (N, C, D, H, W) is too small; got {padded}, expected {window} or more"
    with pytest.raises(ExecutionError, match=re.escape(f"op `nn.conv3d`: {message}")):
        bench.run(function, small)
    (actual,), (expected,) = bench.run(function, large), bench.reference(function, large)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_result_of_a_negative_depth_is_named(depth: int) -> None:
    builder = FunctionBuilder("main")
    x = builder.param("x", tensor((1, 4, "d", 4, 4), "float32"))
    result = builder.bind("nn.conv3d", [x, builder.const(np.ones((4, 4, 3, 3, 3), "f4"))], {}).result
    module = IRModule({"main": builder.finish(result)}, builder.constants)
    vm = VirtualMachine(byoc_core.build(module, ["ccompiler"]), machine="python")
    with pytest.raises(CallError) as caught:
        vm["main"](np.ones((1, 4, depth, 4, 4), np.float32))
    assert str(caught.value) == f"function `main`, result `output0`: size d-2 is negative; got {depth - 2}"
