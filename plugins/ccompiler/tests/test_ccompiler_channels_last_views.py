"""Windows over parts of the channels: images made of slices, and results written into slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from byoc_ccompiler.backend import byoc_layouts
from byoc_ccompiler.kernels import winograd
from byoc_ccompiler.kernels.winograd_plan import make_plan
from byoc_core.backend import CompileContext
from byoc_core.ir import Value, tensor

from plugins.ccompiler.tests.bench import Bench, Builder

SHAPE = (2, 9, 11, 36)


def _random(shape: int | Sequence[int], seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _winograd(builder: Builder, x: Value) -> Any:
    weight = builder.const(_random((40, 36, 3, 3), seed=1))
    return builder.emit("nn.conv2d", x, weight, padding=(1, 1), data_layout="NHWC")


def _depthwise(builder: Builder, x: Value) -> Any:
    weight = builder.const(_random((36, 1, 3, 3), seed=1))
    return builder.emit("nn.conv2d", x, weight, padding=(1, 1), groups=36, data_layout="NHWC")


def _max_pool(builder: Builder, x: Value) -> Any:
    return builder.emit("nn.max_pool2d", x, pool_size=(3, 3), strides=(1, 1), padding=(1, 1), layout="NHWC")


def _avg_pool(builder: Builder, x: Value) -> Any:
    return builder.emit("nn.avg_pool2d", x, pool_size=(3, 3), strides=(1, 1), padding=(1, 1), layout="NHWC")


@pytest.mark.parametrize("anchor", [_winograd, _depthwise, _max_pool, _avg_pool])
def test_slices_change_no_bit(monkeypatch: pytest.MonkeyPatch, anchor: Callable[[Builder, Value], Any]) -> None:
    monkeypatch.setattr(winograd, "choose_plan", lambda geometry, unit, option: make_plan(geometry, unit, 4))
    bench = Bench()
    builder = bench.builder()
    parts = [builder.param(name, tensor(SHAPE)) for name in "xy"]
    plain = bench.add(builder, *(anchor(builder, part) for part in parts))
    builder = bench.builder()
    both = builder.param("both", tensor((*SHAPE[:3], 2 * SHAPE[3])))
    slices = builder.bind("split", [both], {"sections": (SHAPE[3], SHAPE[3]), "axis": 3}).results
    joined = builder.emit("concat", *(anchor(builder, part) for part in slices), axis=3)
    sliced = bench.add(builder, joined)
    images = [_random(SHAPE, seed) for seed in (2, 3)]
    expected = np.concatenate(bench.run(plain, *images), axis=3)
    (actual,) = bench.run(sliced, np.concatenate(images, axis=3))
    np.testing.assert_array_equal(actual, expected)
    source = bench.module.get_source()
    assert len(bench.calls(plain)) == len(bench.calls(sliced)) == 2
    # Neither the slices nor their union are copied.
    assert "/* split */" not in source
    assert "/* concat */" not in source


def test_parameters_may_bear_the_names_that_kernels_use() -> None:
    for name in ("start_h", "divisor", "powf", "o_w", "item", "total", "tap", "from", "to", "is_inside"):
        bench = Bench()
        builder = bench.builder()
        x = builder.param(name, tensor((1, 9, 9, 32)))
        other = {"pool_size": (3, 3), "p": 3, "layout": "NHWC"}
        function = bench.add(
            builder, builder.emit("nn.lp_pool2d", x, **other), _avg_pool(builder, x), _depthwise_32(builder, x)
        )
        image = _random((1, 9, 9, 32))
        for actual, expected in zip(
            bench.run(function, image), bench.reference(function, image, wide=True), strict=True
        ):
            np.testing.assert_allclose(actual, expected, rtol=0, atol=40 * 2.0**-24 * np.abs(expected).max())


def _depthwise_32(builder: Builder, x: Value) -> Any:
    weight = builder.const(_random((32, 1, 3, 3), seed=1))
    return builder.emit("nn.conv2d", x, weight, padding=(1, 1), groups=32, data_layout="NHWC")


def _compute(builder: Builder, image: Value, kind: str) -> Any:
    if kind == "convolution":
        return builder.emit("nn.conv2d", image, builder.const(_random((32, 32, 3, 3), seed=1)), padding=(1, 1))
    if kind == "pooling":
        return builder.emit("nn.max_pool2d", image, pool_size=(3, 3), padding=(1, 1))
    return builder.emit("nn.relu", builder.emit("add", image, image))


@pytest.mark.parametrize("kind", ["convolution", "pooling", "sum"])
def test_images_cross_borders_channels_last_without_a_copy(bench: Bench, kind: str) -> None:
    """An image read and returned with channels last is computed by one kernel, without a transpose."""
    builder = bench.builder()
    image = builder.emit("permute_dims", builder.param("x", tensor((1, 12, 12, 32))), axes=(0, 3, 1, 2))
    turned = bench.add(builder, builder.emit("permute_dims", _compute(builder, image, kind), axes=(0, 2, 3, 1)))
    builder = bench.builder()
    plain = bench.add(builder, _compute(builder, builder.param("x", tensor((1, 32, 12, 12))), kind))
    assert len(bench.calls(turned)) == 1
    x = _random((1, 12, 12, 32), seed=2)
    (expected,) = bench.run(plain, np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    (actual,) = bench.run(turned, x)
    np.testing.assert_array_equal(actual, expected.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("op", "attrs", "expected"),
    [
        ("nn.conv2d", {}, [(0, 2, 3, 1)]),
        ("nn.conv2d", {"data_layout": "NHWC"}, []),
        ("nn.max_pool2d", {"pool_size": (2, 2)}, [(0, 2, 3, 1), None]),
        ("nn.relu", {}, []),
    ],
)
def test_orders_of_ops(op: str, attrs: dict[str, Any], expected: list[Any]) -> None:
    builder = Bench().builder()
    x = builder.param("x", tensor((1, 8, 8, 8)))
    operands = [x, builder.const(_random((8, 8, 1, 1)))] if op == "nn.conv2d" else [x]
    function = builder.finish(builder.emit(op, *operands, **attrs))
    stated = byoc_layouts(function, CompileContext("ccompiler")) or []
    assert [orders.operands[0] for orders in stated] == expected
    assert [orders.results for orders in stated] == [(order,) for order in expected]
