"""Kernels of normalisation, convolution and resizing: precision, and against ONNX Runtime if inputs round.

Sums of length K are compared with the bound ``gamma_K * sum|a||b|`` (Higham, Accuracy and Stability, ch. 3), once for
each of the two results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from byoc_core.ops import default_ops
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray

pytestmark = pytest.mark.lowest

RunNode = Callable[..., list[Any]]
_UNIT = 2.0**-24


def _gamma(length: int) -> float:
    return length * _UNIT / (1 - length * _UNIT)


def _random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _call(name: str, *inputs: NDArray, **attrs: object) -> Any:
    return KERNELS[name](*inputs, **default_ops()[name].normalise_attrs(attrs))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution_is_the_adjoint_of_convolution(rank: int, groups: int) -> None:
    """``<conv(x), y> = <x, conv_transpose(y)>`` with the same filter, in float64."""
    size = (9, 8, 7)[:rank]
    strides, padding = (2, 1, 2)[:rank], (1, 0, 1, 1, 2, 0)[: 2 * rank]
    x = _random(1, 2, 4, *size).astype(np.float64)
    weight = _random(2, 6, 4 // groups, *[3] * rank).astype(np.float64)
    attrs = {"strides": strides, "padding": padding, "groups": groups}
    forward = _call(f"nn.conv{rank}d", x, weight, **attrs)
    y = _random(3, *forward.shape).astype(np.float64)
    reached = _call(f"nn.conv{rank}d_transpose", y, weight, **attrs)
    extra = tuple(wanted - found for wanted, found in zip(size, reached.shape[2:], strict=True))
    backward = _call(f"nn.conv{rank}d_transpose", y, weight, **attrs, output_padding=extra)
    assert backward.shape == x.shape
    assert backward.dtype == np.float64
    magnitude = float(np.sum(np.abs(forward) * np.abs(y)) + np.sum(np.abs(x) * np.abs(backward)))
    assert abs(float(np.sum(forward * y) - np.sum(x * backward))) <= 1e-12 * magnitude


@pytest.mark.parametrize("name", ["linear", "cubic"])
@pytest.mark.parametrize("mode", ["half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"])
def test_interpolation_at_places_that_round(name: str, mode: str, run_node: RunNode) -> None:
    x = _random(1, 1, 2, 5, 6)
    goal = np.array([1, 1, 1.7, 0.6], np.float32)
    (expected,) = run_node("Resize", [x, goal[:0], goal], opset=19, mode=name, coordinate_transformation_mode=mode)
    scales = tuple(float(scale) for scale in goal[2:])
    attrs = {"axes": (2, 3), "sizes": expected.shape[2:], "scales": scales, "method": name, "coordinates": mode}
    result = _call("nn.resize", x, **attrs)
    assert result.shape == expected.shape
    # ONNX Runtime rounds places to float32: some roundings of numbers up to 9. Weights change by up to 2 per step.
    places, taps = 8 * 9 * _UNIT, 2 if name == "linear" else 4
    assert np.abs(result - expected).max() <= (2 * taps * 2 * places + 2 * _gamma(2 * taps)) * 2 * np.abs(x).max()


def test_resize_of_float64_is_computed_in_float64() -> None:
    x = np.linspace(0, 1, 5)
    result = _call("nn.resize", x, axes=(0,), sizes=(9,), method="linear", coordinates="align_corners")
    np.testing.assert_allclose(result, np.linspace(0, 1, 9), rtol=2**-50)


def test_quantize_limits_values_and_gives_zero_for_nan() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e30, 0.5, 1.5, -0.5], np.float64)
    result = _call("quantize", x, np.array(1.0), np.array(0, np.int8))
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, [0, 127, -128, 127, 0, 2, 0])


def test_attention_with_shared_keys_is_attention_with_repeated_keys() -> None:
    query, key, value = (_random(seed, 2, heads, 5, 8).astype(np.float64) for seed, heads in ((1, 6), (2, 2), (3, 2)))
    repeated = [np.repeat(operand, 3, axis=1) for operand in (key, value)]
    for causal in (False, True):
        shared = _call("nn.attention", query, key, value, causal=causal)
        alone = _call("nn.attention", query, *repeated, causal=causal)
        np.testing.assert_allclose(shared, alone, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(shared[:, :, 0], repeated[1][:, :, 0], rtol=1e-12)  # the first step sees itself only


def test_attention_with_an_offset_is_the_end_of_attention_over_all_steps() -> None:
    query, key, value = (_random(seed, 2, 3, 7, 8).astype(np.float64) for seed in (1, 2, 3))
    everything = _call("nn.attention", query, key, value, causal=True)
    for steps in range(8):
        last = _call("nn.attention", query[:, :, 7 - steps :], key, value, causal=True, offset=7 - steps)
        np.testing.assert_allclose(last, everything[:, :, 7 - steps :], rtol=1e-12, atol=1e-14)


def test_a_step_that_sees_no_key_gives_nan_or_zeros() -> None:
    query, key, value = (_random(seed, 1, 2, 3, 4) for seed in (1, 2, 3))
    result, weights = _call(
        "nn.attention", query, key, value, causal=True, offset=-2, scores="weights", zero_unseen=True
    )
    np.testing.assert_array_equal(result[:, :, :2], 0)
    np.testing.assert_array_equal(weights[:, :, :2], 0)
    np.testing.assert_array_equal(result[:, :, 2], value[:, :, 0])
    assert np.isnan(_call("nn.attention", query, key, value, causal=True, offset=-2)[:, :, :2]).all()
    for zero_unseen in (False, True):
        nothing = _call("nn.attention", query, key[:, :, :0], value[:, :, :0], zero_unseen=zero_unseen)
        np.testing.assert_array_equal(nothing, np.zeros((1, 2, 3, 4)))


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotation_keeps_lengths_and_what_it_does_not_turn(interleaved: bool) -> None:
    x = _random(1, 2, 3, 4, 10).astype(np.float64)
    angle = _random(2, 2, 4, 3).astype(np.float64)
    result = _call("nn.rotary_embedding", x, np.cos(angle), np.sin(angle), interleaved=interleaved)
    np.testing.assert_array_equal(result[..., 6:], x[..., 6:])
    np.testing.assert_allclose(np.square(result).sum(axis=-1), np.square(x).sum(axis=-1), rtol=1e-12)


def test_log_softmax_of_large_values_does_not_overflow() -> None:
    x = np.array([1e4, 1e4, -1e4])
    np.testing.assert_allclose(_call("nn.log_softmax", x, axis=0), [-np.log(2), -np.log(2), -2e4 - np.log(2)])


@pytest.mark.parametrize("name", ["nn.group_norm", "nn.instance_norm", "nn.rms_norm"])
def test_norms_of_half_precision_compute_in_float32(name: str) -> None:
    x = np.full((1, 4, 64), 300.0, np.float16)  # its square overflows
    attrs = {"groups": 2} if name == "nn.group_norm" else {}
    parameters = [np.ones(64, np.float16)] if name == "nn.rms_norm" else [np.ones(4, np.float16)] * 2
    result = _call(name, x, *parameters, **attrs)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, np.full(x.shape, 1 if name == "nn.rms_norm" else parameters[0][0]))


@pytest.mark.parametrize("name", ["nn.group_norm", "nn.instance_norm", "nn.rms_norm", "nn.lrn", "nn.log_softmax"])
def test_float32_differs_from_float64_by_rounding_only(name: str) -> None:
    x = _random(1, 2, 6, 40)
    given: dict[str, dict[str, Any]] = {"nn.group_norm": {"groups": 3}, "nn.lrn": {"size": 5, "alpha": 0.3}}
    attrs = given.get(name, {})
    count = {"nn.rms_norm": 1, "nn.lrn": 0, "nn.log_softmax": 0}.get(name, 2)
    parameters = [np.ones(40 if name == "nn.rms_norm" else 6, np.float32)] * count
    narrow = _call(name, x, *parameters, **attrs)
    wide = _call(name, x.astype(np.float64), *(p.astype(np.float64) for p in parameters), **attrs)
    assert (narrow.dtype, wide.dtype) == (np.float32, np.float64)
    assert np.abs(narrow - wide).max() <= _gamma(80 + 8) * (1 + np.abs(wide).max())
    assert np.any(narrow != wide)
