"""Kernels of linear algebra, convolution, pooling, normalisation, movement and reduction against ONNX Runtime.

Sums of length K are compared with the bound ``gamma_K * sum|a||b|`` (Higham, Accuracy and Stability, ch. 3), once for
each of the two results; pure movements of elements are compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from byoc_core.errors import ExecutionError
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from hypothesis import assume, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.lowest

RunNode = Callable[..., list[Any]]
_UNIT = 2.0**-24


def _gamma(length: int) -> float:
    return length * _UNIT / (1 - length * _UNIT)


def _assert_sum_close(result: NDArray, expected: NDArray, magnitude: NDArray, length: int) -> None:
    assert isinstance(result, np.ndarray)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    error = np.abs(result.astype(np.float64) - expected.astype(np.float64))
    assert np.all(error <= 2 * _gamma(length) * magnitude.astype(np.float64) * (1 + 2 * _gamma(length)))


def _random(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("left", "right"),
    [((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 3))],
)
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], run_node: RunNode) -> None:
    x, y = _random(1, *left), _random(2, *right)
    result = KERNELS["matmul"](x, y)
    _assert_sum_close(result, run_node("MatMul", [x, y])[0], np.matmul(np.abs(x), np.abs(y)), left[-1])


def test_dense_is_gemm_with_a_transposed_weight(run_node: RunNode) -> None:
    x, w = _random(1, 6, 10), _random(2, 7, 10)
    expected = run_node("Gemm", [x, w], transB=1)[0]
    _assert_sum_close(KERNELS["nn.dense"](x, w), expected, np.abs(x) @ np.abs(w).T, 10)


@pytest.mark.parametrize("axis", [1, -1, 0])
def test_bias_add(axis: int) -> None:
    x, b = _random(1, 3, 3, 3), _random(2, 3)
    shape = [1, 1, 1]
    shape[axis] = 3
    np.testing.assert_array_equal(KERNELS["nn.bias_add"](x, b, axis=axis), x + b.reshape(shape))


def test_half_precision_products_accumulate_in_float32() -> None:
    x = np.full((1, 4096), 1.0, np.float16)
    w = np.full((1, 4096), 0.0625, np.float16)
    result = KERNELS["nn.dense"](x, w)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float16
    assert result.item() == 256.0
    brain = KERNELS["matmul"](x.astype(ml_dtypes.bfloat16), w.T.astype(ml_dtypes.bfloat16))
    assert isinstance(brain, np.ndarray)
    assert brain.dtype == ml_dtypes.bfloat16


_CONVS = [
    {},
    {"padding": (1, 1, 1, 1)},
    {"strides": (2, 3), "padding": (1, 0, 2, 1)},
    {"dilation": (2, 1), "padding": (2, 1, 2, 1)},
    {"groups": 2},
    {"groups": 4, "padding": (1, 1, 1, 1), "strides": (2, 2)},
]


@pytest.mark.parametrize("attrs", _CONVS, ids=str)
@pytest.mark.parametrize("data_layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("kernel_layout", ["OIHW", "IOHW", "HWIO"])
def test_conv2d(attrs: dict[str, Any], data_layout: str, kernel_layout: str, run_node: RunNode) -> None:
    full = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1, **attrs}
    x, w = _random(1, 2, 4, 9, 8), _random(2, 8, 4 // full["groups"], 3, 2)
    onnx_attrs = {
        "strides": full["strides"],
        "pads": full["padding"],
        "dilations": full["dilation"],
        "group": full["groups"],
    }
    expected = run_node("Conv", [x, w], **onnx_attrs)[0]
    magnitude = run_node("Conv", [np.abs(x), np.abs(w)], **onnx_attrs)[0]
    data = x.transpose(0, 2, 3, 1) if data_layout == "NHWC" else x
    kernel = {"OIHW": w, "IOHW": w.transpose(1, 0, 2, 3), "HWIO": w.transpose(2, 3, 1, 0)}[kernel_layout]
    result = np.asarray(
        KERNELS["nn.conv2d"](data, kernel, **full, data_layout=data_layout, kernel_layout=kernel_layout)
    )
    assert result.flags.c_contiguous
    if data_layout == "NHWC":
        result = result.transpose(0, 3, 1, 2)
    _assert_sum_close(result, expected, magnitude, w[0].size)


def test_depthwise_conv2d_and_its_multiplier(run_node: RunNode) -> None:
    x = _random(1, 3, 6, 7, 7)
    for multiplier in (1, 2):
        w = _random(2, 6 * multiplier, 1, 3, 3)
        expected = run_node("Conv", [x, w], group=6, pads=(1, 1, 1, 1))[0]
        magnitude = run_node("Conv", [np.abs(x), np.abs(w)], group=6, pads=(1, 1, 1, 1))[0]
        result = KERNELS["nn.conv2d"](
            x,
            w,
            strides=(1, 1),
            padding=(1, 1, 1, 1),
            dilation=(1, 1),
            groups=6,
            data_layout="NCHW",
            kernel_layout="OIHW",
        )
        _assert_sum_close(result, expected, magnitude, 9)


def test_conv2d_unfolds_large_batches_in_parts(run_node: RunNode) -> None:
    x, w = _random(1, 40, 8, 66, 66), _random(2, 4, 8, 3, 3)
    attrs = {"strides": (1, 1), "padding": (0, 0, 0, 0), "dilation": (1, 1), "groups": 1}
    result = KERNELS["nn.conv2d"](x, w, **attrs, data_layout="NCHW", kernel_layout="OIHW")
    magnitude = run_node("Conv", [np.abs(x), np.abs(w)])[0]
    _assert_sum_close(result, run_node("Conv", [x, w])[0], magnitude, 72)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pooling_equals_onnx_runtime(run_node: RunNode, data: st.DataObject) -> None:
    draw = data.draw
    pool = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    dilation = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
    strides = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    padding = tuple(draw(st.integers(0, pool[axis % 2] - 1)) for axis in range(4))
    ceil_mode = draw(st.booleans())
    include = draw(st.booleans())
    layout = draw(st.sampled_from(["NCHW", "NHWC"]))
    x = _random(draw(st.integers(0, 99)), 2, 3, draw(st.integers(5, 9)), draw(st.integers(5, 9)))
    attrs = {"kernel_shape": pool, "strides": strides, "pads": padding, "ceil_mode": int(ceil_mode)}
    own = {"pool_size": pool, "strides": strides, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    image = x.transpose(0, 2, 3, 1) if layout == "NHWC" else x

    expected = run_node("MaxPool", [x], dilations=dilation, **attrs)[0]
    result = np.asarray(KERNELS["nn.max_pool2d"](image, **own, layout=layout))
    np.testing.assert_array_equal(result.transpose(0, 3, 1, 2) if layout == "NHWC" else result, expected)

    expected = run_node("AveragePool", [x], opset=19, dilations=dilation, count_include_pad=int(include), **attrs)[0]
    result = np.asarray(KERNELS["nn.avg_pool2d"](image, **own, count_include_pad=include, layout=layout))
    magnitude = np.full(expected.shape, np.abs(x).max())
    if layout == "NHWC":
        result = result.transpose(0, 3, 1, 2)
    _assert_sum_close(result, expected, magnitude, pool[0] * pool[1] + 1)


def test_max_pool_of_integers_and_padding() -> None:
    x = np.full((1, 1, 2, 2), -7, np.int8)
    result = KERNELS["nn.max_pool2d"](
        x,
        pool_size=(2, 2),
        strides=(1, 1),
        padding=(1, 1, 1, 1),
        dilation=(1, 1),
        ceil_mode=False,
        layout="NCHW",
    )
    np.testing.assert_array_equal(result, np.full((1, 1, 3, 3), -7))


def test_batch_norm(run_node: RunNode) -> None:
    x = _random(1, 2, 3, 4, 5)
    gamma, beta, mean = (_random(seed, 3) for seed in (2, 3, 4))
    variance = np.abs(_random(5, 3)) + np.float32(0.1)
    (expected,) = run_node("BatchNormalization", [x, gamma, beta, mean, variance], epsilon=1e-3)
    result = KERNELS["nn.batch_norm"](x, gamma, beta, mean, variance, axis=1, epsilon=1e-3)
    column = (3, 1, 1)
    factor = np.abs(gamma / np.sqrt(variance + 1e-3)).reshape(column)
    magnitude = (np.abs(x) + np.abs(mean).reshape(column)) * factor + np.abs(beta).reshape(column)
    _assert_sum_close(result, expected, magnitude, 6)


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_norm(axis: int, run_node: RunNode) -> None:
    x = _random(1, 4, 6, 8)
    shape = x.shape[axis % 3 :]
    gamma, beta = _random(2, *shape), _random(3, *shape)
    (expected,) = run_node("LayerNormalization", [x, gamma, beta], axis=axis, epsilon=1e-5)
    axes = tuple(range(axis % 3, 3))
    result = KERNELS["nn.layer_norm"](x, gamma, beta, axes=axes, epsilon=1e-5)
    wide = x.astype(np.float64)
    spread = np.sqrt(wide.var(axis=axes, keepdims=True) + 1e-5)
    centred = np.abs(wide - wide.mean(axis=axes, keepdims=True)) + np.abs(wide).mean(axis=axes, keepdims=True)
    _assert_sum_close(result, expected, centred / spread * np.abs(gamma) + np.abs(beta), int(np.prod(shape)) + 8)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis: int, run_node: RunNode) -> None:
    x = _random(1, 3, 5, 7) * np.float32(20)
    result = KERNELS["nn.softmax"](x, axis=axis)
    (expected,) = run_node("Softmax", [x], axis=axis)
    # The exponent's argument carries a rounding error of its own size.
    magnitude = expected * (1 + np.abs(x).max())
    _assert_sum_close(result, expected, magnitude, x.shape[axis] + 4)


def test_softmax_of_large_values_does_not_overflow() -> None:
    x = np.array([1e4, 1e4, -1e4], np.float32)
    np.testing.assert_array_equal(KERNELS["nn.softmax"](x, axis=0), [0.5, 0.5, 0.0])


def test_movement_equals_onnx_runtime(run_node: RunNode) -> None:
    x = _random(1, 2, 3, 4)
    indices = np.array([[0, -1], [1, 2]])

    def check(result: NDArray | tuple[NDArray, ...], expected: list[Any]) -> None:
        parts = result if isinstance(result, tuple) else (result,)
        for part, wanted in zip(parts, expected, strict=True):
            np.testing.assert_array_equal(part, wanted)
            assert part.dtype == wanted.dtype

    def ints(*values: int) -> Any:
        return np.array(values, np.int64)

    check(KERNELS["reshape"](x, shape=(4, -1)), run_node("Reshape", [x, ints(4, -1)]))
    check(KERNELS["permute_dims"](x, axes=(2, 0, 1)), run_node("Transpose", [x], perm=(2, 0, 1)))
    check(KERNELS["permute_dims"](x, axes=None), run_node("Transpose", [x]))
    check(KERNELS["broadcast_to"](x[:, :1], shape=(5, 2, 3, 4)), run_node("Expand", [x[:, :1], ints(5, 2, 3, 4)]))
    check(KERNELS["concat"](x, x[:, :1], axis=1), run_node("Concat", [x, x[:, :1]], axis=1))
    check(KERNELS["split"](x, sections=(1, 3), axis=-1), run_node("Split", [x, ints(1, 3)], axis=-1, num_outputs=2))
    check(KERNELS["take"](x, indices, axis=1, mode="fast"), run_node("Gather", [x, indices], axis=1))
    check(
        KERNELS["nn.pad"](x, pad_width=(1, 0, 0, 2, 0, 1), pad_value=2.5),
        run_node("Pad", [x, ints(1, 0, 0, 0, 2, 1), np.float32(2.5)]),
    )


@given(
    st.integers(0, 7),
    st.integers(-9, 9) | st.just(2**63 - 1) | st.just(-(2**63) + 1),
    st.integers(-9, 9) | st.just(2**63 - 1) | st.just(-(2**63) + 1),
    st.sampled_from([-3, -2, -1, 1, 2, 3]),
)
@settings(max_examples=60, deadline=None)
def test_strided_slice_equals_onnx_runtime(run_node: RunNode, size: int, begin: int, end: int, stride: int) -> None:
    assume(
        stride > 0 or end < 2**62
    )  # ONNX Runtime reads the largest end with a negative stride as "through the first"
    x = np.arange(size, dtype=np.float32)
    inputs = [x, *(np.array([value], np.int64) for value in (begin, end, 0, stride))]
    result = KERNELS["strided_slice"](x, axes=(0,), begin=(begin,), end=(end,), strides=(stride,), mode="clip")
    np.testing.assert_array_equal(result, run_node("Slice", inputs)[0])


def test_take_clips_or_refuses_what_lies_outside() -> None:
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(KERNELS["take"](x, np.array([9, -9]), axis=1, mode="clip"), [[2, 0], [5, 3]])
    with pytest.raises(ExecutionError) as caught:
        KERNELS["take"](x, np.array([0, 3]), axis=1, mode="fast")
    assert str(caught.value) == "op `take`: an index lies outside axis 1; got 3, expected -3 to 2"


@pytest.mark.parametrize("axis", [None, (0,), (1, 2), (-1,), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axis: tuple[int, ...] | None, keepdims: bool, run_node: RunNode) -> None:
    x = _random(1, 3, 4, 5)
    axes = [] if axis is None else [np.array(axis, np.int64)]
    attrs = {"keepdims": int(keepdims), "noop_with_empty_axes": int(axis == ())}
    for name, op_type in (("sum", "ReduceSum"), ("mean", "ReduceMean"), ("max", "ReduceMax")):
        (expected,) = run_node(op_type, [x, *axes], **attrs)
        result = KERNELS[name](x, axis=axis, keepdims=keepdims)
        if name == "max":
            np.testing.assert_array_equal(result, expected)
        else:
            magnitude = np.sum(np.abs(x), axis=axis, keepdims=keepdims)
            _assert_sum_close(result, expected, magnitude, 61)


def test_reductions_of_integers_and_of_nothing() -> None:
    x = np.array([[100, 100], [-3, 5]], np.int8)
    result = KERNELS["sum"](x, axis=(1,), keepdims=False)
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, [-56, 2])
    nothing = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(KERNELS["sum"](nothing, axis=(1,), keepdims=False), [0, 0])
    np.testing.assert_array_equal(KERNELS["mean"](nothing, axis=(1,), keepdims=False), [np.nan, np.nan])
    np.testing.assert_array_equal(KERNELS["max"](nothing, axis=(1,), keepdims=False), [-np.inf, -np.inf])
    np.testing.assert_array_equal(
        KERNELS["max"](nothing.astype(np.int8), axis=None, keepdims=False), np.array(-128, np.int8)
    )
    assert np.asarray(KERNELS["max"](nothing.astype(ml_dtypes.bfloat16), axis=None, keepdims=True)).shape == (1, 1)


@pytest.mark.parametrize("keepdims", [False, True])
def test_argmax(keepdims: bool, run_node: RunNode) -> None:
    x = np.array([[1, 5, 5], [7, 2, 7]], np.float32)
    for axis in (0, 1, -1):
        (expected,) = run_node("ArgMax", [x], axis=axis, keepdims=int(keepdims))
        result = KERNELS["argmax"](x, axis=axis, keepdims=keepdims)
        assert isinstance(result, np.ndarray)
        assert result.dtype == np.int64
        np.testing.assert_array_equal(result, expected)
