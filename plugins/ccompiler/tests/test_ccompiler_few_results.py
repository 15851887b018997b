"""Convolutions with few output channels of images with channels first: products and loops without transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import Constant, Function, tensor
from byoc_core.runtime.module import NDArray
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.ccompiler.tests.bench import MEANING, PORTABLE, Bench, assert_sum, evaluate_with_kernels, sizes_of


def _numbers(*shape: int, seed: int = 0) -> NDArray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _convolution(bench: Bench, image: tuple[int, ...], filter_: NDArray, **attrs: Any) -> Function:
    builder = bench.builder()
    x = builder.param("x0", tensor(image))
    return bench.add(builder, builder.emit(f"nn.conv{len(image) - 2}d", x, filter_, **attrs))


def _check(bench: Bench, function: Function, *, seed: int = 1) -> None:
    """Check sums against gamma_K times the sums of magnitudes."""
    image = _numbers(*sizes_of(function.params[0]), seed=seed)
    (actual,) = bench.run(function, image)
    (oracle,) = bench.reference(function, image, wide=True)
    magnitudes = {digest: np.abs(array) for digest, array in bench.constants.items()}
    (magnitude,) = evaluate_with_kernels(function, [np.abs(image)], magnitudes, wide=True)
    filter_ = function.bindings[0].operands[1]
    assert isinstance(filter_, Constant)
    assert_sum(actual, oracle, magnitude, bench.constants[filter_.digest].size // actual.shape[1])


@pytest.mark.parametrize("march", ["generic", "native", PORTABLE])
def test_forms(march: str) -> None:
    bench = Bench(march=march)
    forms = (
        ((2, 5, 40), (3, 5, 1)),
        ((1, 7, 6, 9), (8, 7, 1, 1)),
        ((3, 4, 3, 4, 5), (1, 4, 1, 1, 1)),
        ((1, 1, 1, 1), (2, 1, 1, 1)),
        ((2, 6, 70), (1, 6, 3)),
    )
    functions = [_convolution(bench, image, _numbers(*filter_)) for image, filter_ in forms]
    padded = {"padding": (1, 2, 1, 2), "dilation": (1, 2)}
    functions.append(_convolution(bench, (1, 3, 9, 65), _numbers(1, 3, 3, 3), **padded))
    functions.append(_convolution(bench, (1, 6, 4, 4), _numbers(1, 1, 6, 3), kernel_layout="HWIO"))
    for function in functions:
        _check(bench, function)
    assert "permute_dims" not in bench.module.get_source()


def test_wider_or_other_convolutions_have_the_channels_last(bench: Bench) -> None:
    functions = [
        _convolution(bench, (1, 32, 8, 40), _numbers(9, 32, 1, 1)),
        _convolution(bench, (1, 32, 8, 40), _numbers(2, 32, 3, 3)),
        _convolution(bench, (1, 32, 9, 40), _numbers(4, 32, 1, 1), strides=(2, 2)),
    ]
    for function in functions:
        _check(bench, function)
        assert any("permute_dims" in kernel for kernel in bench.calls(function))


def test_windows_keep_the_channels_first_if_the_input_channels_are_few(bench: Bench) -> None:
    forms = {(32, 3): True, (33, 3): False, (33, 1): True, (488, 1): True}
    functions = [
        _convolution(bench, (1, channels, 6, 40), _numbers(1, channels, window, window)) for channels, window in forms
    ]
    for function, keeps in zip(functions, forms.values(), strict=True):
        _check(bench, function)
        has_transposes = any("permute_dims" in kernel for kernel in bench.calls(function))
        assert has_transposes != keeps


def test_a_bias_and_an_activation_follow(bench: Bench) -> None:
    builder = bench.builder()
    x = builder.param("x0", tensor((1, 16, 6, 7)))
    sums = builder.emit("nn.conv2d", x, _numbers(3, 16, 1, 1))
    function = bench.add(builder, builder.emit("nn.relu", builder.emit("nn.bias_add", sums, _numbers(3), axis=1)))
    image = _numbers(1, 16, 6, 7, seed=1)
    (actual,) = bench.run(function, image)
    (oracle,) = bench.reference(function, image, wide=True)
    np.testing.assert_allclose(actual, oracle, atol=20 * 2.0**-24 * 16 * 16)


@settings(max_examples=15 if MEANING == 0 else 200, deadline=None)
@given(st.data())
def test_images_of_any_rank(data: st.DataObject) -> None:
    bench = Bench()
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    batch, channels, results = (data.draw(st.integers(1, most)) for most in (3, 20, 8))
    filter_ = _numbers(results, channels, *[1] * len(sizes), seed=data.draw(st.integers(0, 99)))
    _check(bench, _convolution(bench, (batch, channels, *sizes), filter_), seed=data.draw(st.integers(0, 99)))
