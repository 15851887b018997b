"""Convolution with activations, images with channels last, and normalisation of groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plugins.msops.tests.ms_nodes import (
    Array,
    check_node,
    check_offload,
    check_results,
    refusal,
    rng,
    run_node,
    run_onnxruntime,
)

pytestmark = pytest.mark.asks_for_plugins

DYNAMIC = {2: "batch", 8: "height", 9: "width"}


def _floats(*shape: int, seed: int = 0) -> Array:
    return rng(seed).standard_normal(shape).astype(np.float32)


def _last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


X, WEIGHT, BIAS = _floats(2, 6, 8, 9), _floats(4, 3, 3, 3, seed=1), _floats(4, seed=2)
WINDOW: dict[str, Any] = {"pads": [1, 0, 1, 1], "strides": [2, 1], "group": 2, "kernel_shape": [3, 3]}
ACTIVATIONS: list[tuple[str, list[float]]] = [
    ("Relu", []),
    ("Tanh", []),
    ("Sigmoid", []),
    ("HardSwish", []),
    ("HardSigmoid", [0.3, 0.6]),
    ("Clip", [-0.5, 0.75]),
]


@pytest.mark.parametrize(("activation", "parameters"), ACTIVATIONS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution_with_an_activation(activation: str, parameters: list[float], has_bias: bool) -> None:
    given = [X, WEIGHT, *([BIAS] if has_bias else [])]
    attrs: dict[str, Any] = {"activation": activation, **({"activation_params": parameters} if parameters else {})}
    check_node("FusedConv", given, dynamic=DYNAMIC, **WINDOW, **attrs)


def test_leaky_relu() -> None:
    """ONNX Runtime takes a single parameter."""
    check_node("FusedConv", [X, WEIGHT], activation="LeakyRelu", activation_params=[0.2], **WINDOW)


@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution_with_an_addend(has_bias: bool) -> None:
    addend = _floats(2, 4, 4, 8, seed=3)
    given = [X, WEIGHT, BIAS if has_bias else None, addend]
    check_node("FusedConv", given, activation="Relu", dynamic={2: "batch"}, **WINDOW)


def test_variants_of_convolution() -> None:
    check_node("FusedConv", [X, WEIGHT], group=2)
    check_node("FusedConv", [X, WEIGHT], group=2, auto_pad="SAME_UPPER", strides=[2, 2], activation="Relu")
    check_node("FusedConv", [X[..., 0], WEIGHT[..., 0]], group=2, dilations=[2], activation="Relu")


def test_convolution_with_channels_last() -> None:
    """ONNX Runtime has no kernel for processors: the oracle are channels first."""
    (expected,) = run_onnxruntime("FusedConv", [X, WEIGHT, BIAS], **WINDOW)
    given = [_last(X), _last(WEIGHT), BIAS]
    check_results(run_node("NhwcConv", given, dynamic=DYNAMIC, **WINDOW), [_last(expected)])
    addend = _floats(*expected.shape, seed=3)
    (expected,) = run_onnxruntime("FusedConv", [X, WEIGHT, BIAS, addend], activation="Relu", **WINDOW)
    results = run_node("NhwcFusedConv", [*given, _last(addend)], activation="Relu", **WINDOW)
    check_results(results, [_last(expected)])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    "attrs", [{}, {"pads": [0, 1, 1, 1]}, {"dilations": [2, 1]}, {"auto_pad": "SAME_LOWER"}, {"ceil_mode": 1}]
)
def test_max_pooling_with_channels_last(dtype: str, attrs: dict[str, Any]) -> None:
    info = np.iinfo(dtype)
    x = rng().integers(info.min, info.max + 1, (2, 8, 9, 6)).astype(dtype)
    sizes = None if "auto_pad" in attrs else DYNAMIC
    check_node("NhwcMaxPool", [x], kernel_shape=[2, 3], strides=[2, 2], dynamic=sizes, **attrs)


def _group_norm(x: Array, gamma: Array, beta: Array, groups: int, has_activation: int) -> Array:
    """Return the norm of an image with channels first, in float64."""
    wide = x.astype(np.float64).reshape(x.shape[0], groups, -1)
    normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    result = normal.reshape(x.shape) * gamma[:, np.newaxis, np.newaxis] + beta[:, np.newaxis, np.newaxis]
    return np.asarray(result / (1 + np.exp(-result)) if has_activation else result)


@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("activation", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_group_norm(is_last: bool, activation: int, dtype: str) -> None:
    """ONNX Runtime has no kernel for processors: the oracle is the formula."""
    x, gamma, beta = X.astype(dtype), _floats(6, seed=1), _floats(6, seed=2)
    attrs: dict[str, Any] = {"groups": 3, "activation": activation, "channels_last": int(is_last)}
    placed = _last if is_last else np.asarray
    bound = 2.0**-8 if dtype == "float16" else None  # parameters are rounded to halves
    given = [placed(x), gamma, beta]
    expected = _group_norm(x, gamma, beta, 3, activation)
    check_results(run_node("GroupNorm", given, dynamic=DYNAMIC, **attrs), [placed(expected.astype(dtype))], bound)
    skip, bias = _floats(2, 6, seed=3).astype(dtype), _floats(6, seed=4).astype(dtype)
    total = x + skip[:, :, np.newaxis, np.newaxis] + bias[:, np.newaxis, np.newaxis]
    expected = _group_norm(total, gamma, beta, 3, activation)
    results = run_node("SkipGroupNorm", [*given, skip, bias], 2, dynamic=DYNAMIC, **attrs)
    check_results(results, [placed(expected.astype(dtype)), placed(total)], bound)
    (plain,) = run_node("SkipGroupNorm", [*given, placed(x)], **attrs)
    check_results([plain], [placed(_group_norm(x + x, gamma, beta, 3, activation).astype(dtype))], bound)


def test_ccompiler_takes_images() -> None:
    check_offload("FusedConv", [X, WEIGHT, BIAS], constants={1, 2}, activation="Relu", **WINDOW)
    check_offload("NhwcConv", [_last(X), _last(WEIGHT), BIAS], constants={1, 2}, **WINDOW)
    x = rng().integers(0, 256, (2, 8, 9, 6)).astype(np.uint8)
    check_offload("NhwcMaxPool", [x], kernel_shape=[2, 3])
    check_offload("GroupNorm", [_last(X), _floats(6), _floats(6)], groups=3, activation=1)


def test_malformed_nodes() -> None:
    assert refusal("FusedConv", [X, WEIGHT], activation="Gelu", **WINDOW).startswith(
        "attribute `activation` is unknown; got Gelu, expected Clip, "
    )
    assert refusal("FusedConv", [X, WEIGHT], activation="Clip", activation_params=[0.5], **WINDOW) == (
        "lacks parameters of the activation Clip; got ['min'], expected ['min', 'max']"
    )
    given = [_last(X), _floats(6), _floats(6)]
    assert refusal("GroupNorm", given, groups=3, activation=2) == (
        "attribute `activation` is unknown; got 2, expected 0 or 1"
    )
