"""Quantised tensors: elementwise ops, images, products, attention and a recurrent layer."""

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

BYTES = pytest.mark.parametrize("dtype", ["uint8", "int8"])
DYNAMIC = {3: "rows", 5: "width"}


def _integers(dtype: str, *shape: int, seed: int = 0) -> Array:
    """Return random integers of all magnitudes, of 7 bits if signed bytes.

    Without instructions for four bytes (VNNI), ONNX Runtime adds two products of bytes in 16 bits, with saturation:
    2 * 255 * 64 is the limit.
    """
    info = np.iinfo(dtype)
    low, high = (-64, 64) if dtype == "int8" else (info.min, info.max + 1)
    return rng(seed).integers(low, high, shape).astype(dtype)


def _scale(*numbers: float) -> Array:
    return np.array(numbers if len(numbers) > 1 else numbers[0], np.float32)


def _zero(dtype: str, offset: int = 0) -> Array:
    return np.array(offset + (120 if dtype == "uint8" else -8), dtype)


def _tensor(dtype: str, *shape: int, seed: int = 0, scale: float = 0.02) -> list[Array | None]:
    return [_integers(dtype, *shape, seed=seed), _scale(scale), _zero(dtype, seed)]


def _result(dtype: str, scale: float = 0.03) -> list[Array | None]:
    return [_scale(scale), _zero(dtype, 5)]


def _probabilities(dtype: str) -> list[Array | None]:
    return [_scale(1 / 256), np.array(np.iinfo(dtype).min, dtype)]


@BYTES
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("other", [(3, 5), (5,), (3, 1), ()])
def test_binary_ops(op_type: str, dtype: str, other: tuple[int, ...]) -> None:
    given = [*_tensor(dtype, 3, 5), *_tensor(dtype, *other, seed=1, scale=0.05), *_result(dtype)]
    check_node(op_type, given, dynamic=DYNAMIC)


@BYTES
def test_omitted_zero_points(dtype: str) -> None:
    """ONNX Runtime refuses the model: the oracle are zero points of 0."""
    zero, (left, scale, _) = np.zeros((), dtype), _tensor(dtype, 3, 5)
    full = run_onnxruntime("QLinearAdd", [left, scale, zero, left, scale, zero, _scale(0.05), zero])
    check_results(run_node("QLinearAdd", [left, scale, None, left, scale, None, _scale(0.05)]), full)


@BYTES
def test_activations(dtype: str) -> None:
    given = _tensor(dtype, 3, 5)
    check_node("QLinearSigmoid", [*given, *_probabilities(dtype)], dynamic=DYNAMIC)
    check_node("QLinearLeakyRelu", [*given, *_result(dtype)], dynamic=DYNAMIC)
    check_node("QLinearLeakyRelu", [*given, *_result(dtype)], dynamic=DYNAMIC, alpha=0.3)


@BYTES
@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("version", [11, 13])
def test_softmax(dtype: str, axis: int, version: int) -> None:
    """The attribute `opset` is the version of the standard; the name is taken by a keyword of the tests."""
    given = [*_tensor(dtype, 3, 4, 5, scale=0.05), *_probabilities(dtype)]
    check_node("QLinearSoftmax", given, steps=1, dynamic=DYNAMIC, attributes={"axis": axis, "opset": version})


@BYTES
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(dtype: str, axis: int) -> None:
    scale, zero = _result(dtype)
    parts = [*_tensor(dtype, 3, 5), *_tensor(dtype, 3, 5, seed=2, scale=0.07)]
    check_node("QLinearConcat", [scale, zero, *parts, _integers(dtype, 3, 5, seed=3), scale, zero], axis=axis)


@BYTES
def test_where(dtype: str) -> None:
    condition = rng().integers(0, 2, (3, 5)).astype(bool)
    given = [condition, *_tensor(dtype, 3, 5), *_tensor(dtype, 5, seed=1), *_result(dtype)]
    check_node("QLinearWhere", given, dynamic=DYNAMIC)


def _image(dtype: str, is_last: bool) -> list[Array | None]:
    return _tensor(dtype, *((2, 5, 6, 3) if is_last else (2, 3, 5, 6)), scale=0.05)


@BYTES
@pytest.mark.parametrize("is_last", [False, True])
def test_pooling(dtype: str, is_last: bool) -> None:
    """ONNX Runtime rounds averages otherwise: the integers differ by 1 at most."""
    given: list[Array | None] = [*_image(dtype, is_last), *_result(dtype)]
    keywords: dict[str, Any] = {"channels_last": int(is_last), "steps": 1}
    check_node("QLinearGlobalAveragePool", given, **keywords)
    window: dict[str, Any] = {"kernel_shape": [2, 3], "strides": [2, 1]}
    check_node("QLinearAveragePool", given, dynamic={2: "batch"}, **window, **keywords)
    check_node("QLinearAveragePool", given, pads=[1, 1, 1, 1], **window, **keywords)
    check_node("QLinearAveragePool", given, pads=[0, 1, 1, 1], count_include_pad=1, **window, **keywords)
    check_node("QLinearAveragePool", given, auto_pad="SAME_UPPER", **window, **keywords)


def test_mean() -> None:
    """ONNX Runtime has no kernel for processors: the oracle is the formula."""
    given = [*_tensor("uint8", 3, 4, 5), *_result("uint8")]
    (x, scale, zero, result_scale, result_zero) = (np.asarray(array) for array in given)
    mean = (x.astype(np.float64) - zero).mean((0, 2), keepdims=True) * scale
    wanted = np.clip(np.rint(mean / result_scale) + result_zero, 0, 255).astype(np.uint8)
    check_results(run_node("QLinearReduceMean", given, axes=[0, -1], keepdims=1, dynamic=DYNAMIC), [wanted])
    (flat,) = run_node("QLinearReduceMean", given, axes=[2, 0], keepdims=0)
    check_results([flat], [wanted.reshape(-1)])


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_convolution(is_last: bool, has_bias: bool) -> None:
    weight = [_integers("int8", 4, 3, 3, 2, seed=4), _scale(0.01), np.array(0, np.int8)]
    bias = rng(5).integers(-500, 500, 4).astype(np.int32)
    # With a result scale of 0.2003, no sum lies halfway between two results.
    given = [*_image("uint8", is_last), *weight, *_result("uint8", 0.2003), *([bias] if has_bias else [])]
    attrs: dict[str, Any] = {"pads": [1, 0, 1, 1], "strides": [2, 1], "channels_last": int(is_last)}
    check_node("QLinearConv", given, dynamic={2: "batch"} if has_bias else None, constants={3, 4, 5}, **attrs)


def _operands(dtype: str, weight_dtype: str, is_wide: bool = False) -> list[Array | None]:
    """Return ``A, scale, zero point, B, scale, zero point``."""
    scales = _scale(*rng(6).uniform(0.01, 0.05, 5)) if is_wide else _scale(0.03)
    zeros = _integers(weight_dtype, 5, seed=7) // np.array(8, weight_dtype) if is_wide else _zero(weight_dtype)
    weight = [_integers(weight_dtype, 4, 5, seed=1), scales, zeros.astype(weight_dtype)]
    return [*_tensor(dtype, 3, 4), *weight]


PAIRS = pytest.mark.parametrize(("dtype", "weight_dtype"), [("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
WIDE = pytest.mark.parametrize("is_wide", [False, True])


@PAIRS
@WIDE
@pytest.mark.parametrize("addend", [None, (5,), (3, 5), (1, 5), (3, 1)])
@pytest.mark.parametrize("has_result", [False, True])
def test_gemm(dtype: str, weight_dtype: str, is_wide: bool, addend: tuple[int, ...] | None, has_result: bool) -> None:
    added = None if addend is None else rng(8).integers(-1000, 1000, addend).astype(np.int32)
    result = _result(dtype, 0.1) if has_result else []
    given = [*_operands(dtype, weight_dtype, is_wide), added, *result]
    check_node("QGemm", given, dynamic=DYNAMIC)
    check_node("QGemm", given, alpha=0.5)


def test_gemm_with_transposes() -> None:
    left, scale, zero, right, *rest = _operands("uint8", "int8", is_wide=True)
    assert left is not None
    assert right is not None
    given = [np.ascontiguousarray(left.T), scale, zero, np.ascontiguousarray(right.T), *rest]
    check_node("QGemm", given, transA=1, transB=1)


@PAIRS
@WIDE
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_product_to_floats(dtype: str, weight_dtype: str, is_wide: bool, has_zeros: bool, has_bias: bool) -> None:
    left, scale, zero, right, scales, zeros = _operands(dtype, weight_dtype, is_wide)
    bias = rng(9).standard_normal(5).astype(np.float32) if has_bias else None
    given = [left, right, scale, scales, zero if has_zeros else None, zeros if has_zeros else None, bias]
    check_node("MatMulIntegerToFloat", given, dynamic=DYNAMIC)


def test_product_of_stacks_to_floats() -> None:
    left, right = _integers("uint8", 2, 3, 4), _integers("int8", 2, 4, 5, seed=1)
    scales = rng(6).uniform(0.01, 0.05, (2, 1, 5)).astype(np.float32)
    check_node("MatMulIntegerToFloat", [left, right, _scale(0.02), scales])


@WIDE
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_product_of_dynamic_quantisation(dtype: str, is_wide: bool, has_zeros: bool, has_bias: bool) -> None:
    _, _, _, right, scales, zeros = _operands("uint8", dtype, is_wide)
    bias = rng(9).standard_normal(5).astype(np.float32) if has_bias else None
    x = rng(10).standard_normal((3, 4)).astype(np.float32)
    check_node("DynamicQuantizeMatMul", [x, right, scales, zeros if has_zeros else None, bias], dynamic=DYNAMIC)


def test_product_of_words() -> None:
    check_node("MatMulInteger16", [_integers("int16", 3, 4) // 8, _integers("int16", 4, 5, seed=1) // 8])


HEADS, SIZE, STEPS = 2, 4, 5


@WIDE
@pytest.mark.parametrize("mask", [None, [3, 2, 5], [[1, 0, 1, 1, 0], [1, 1, 1, 0, 1], [0, 1, 0, 1, 1]]])
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(is_wide: bool, mask: Any, unidirectional: int) -> None:
    width = 3 * HEADS * SIZE
    scales = rng(1).uniform(0.001, 0.004, width).astype(np.float32) if is_wide else _scale(0.003)
    zeros = _integers("int8", width, seed=2) // np.int8(16) if is_wide else np.array(4, np.int8)
    weight, bias = _integers("int8", 8, width, seed=3), rng(4).standard_normal(width).astype(np.float32)
    flags = None if mask is None else np.array(mask, np.int32)
    given = [_integers("uint8", 3, STEPS, 8), weight, bias, _scale(0.01), scales, flags, _zero("uint8"), zeros]
    keywords: dict[str, Any] = {"num_heads": HEADS, "unidirectional": unidirectional, "error": 2.0**-10}
    check_node("QAttention", given, dynamic={3: "batch", STEPS: "steps"}, **keywords)
    past = rng(5).standard_normal((2, 3, HEADS, 7, SIZE)).astype(np.float32)
    given[5] = None
    check_node("QAttention", [*given, past], 2, dynamic={3: "batch", STEPS: "steps", 7: "past"}, **keywords)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_conversions(dtype: str) -> None:
    x, scales = rng().standard_normal((3, 4)).astype(np.float32) * 3, _scale(0.1, 0.02, 0.3, 0.05)
    zeros = np.array([1, 2, 3, 4], dtype)
    check_node("QuantizeLinear", [x, scales, zeros], axis=1, dynamic=DYNAMIC)
    check_node("QuantizeLinear", [x, _scale(0.01), zeros[2:3].reshape(())], dynamic=DYNAMIC)
    integers = _integers(dtype, 3, 4)
    check_node("DequantizeLinear", [integers, scales, zeros], axis=1, dynamic=DYNAMIC)
    check_node("DequantizeLinear", [integers, scales[:3], zeros[:3]], axis=0)
    check_node("DequantizeLinear", [integers, _scale(0.01)], dynamic=DYNAMIC)


def test_quantisation_without_zero_point() -> None:
    check_node("QuantizeLinear", [rng().standard_normal((3, 4)).astype(np.float32), _scale(0.01)])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@WIDE
def test_recurrent_layer(direction: str, is_wide: bool) -> None:
    """The oracle is the layer of float32 with the dequantised weights.

    ONNX Runtime quantises inputs and states of each step, in 255 steps of the range: its results are near.
    """
    count = 2 if direction == "bidirectional" else 1
    hidden, inputs, steps, batch = 4, 6, 3, 2
    x = rng().standard_normal((steps, batch, inputs)).astype(np.float32)
    weights = [_integers("int8", count, size, 4 * hidden, seed=size) for size in (inputs, hidden)]
    shape = (count, 4 * hidden) if is_wide else (count,)
    scales = [rng(seed).uniform(0.003, 0.006, shape).astype(np.float32) for seed in (1, 2)]
    zeros = [np.full(shape, 0, np.int8)] * 2
    bias = rng(3).standard_normal((count, 8 * hidden)).astype(np.float32)
    state = [rng(seed).standard_normal((count, batch, hidden)).astype(np.float32) for seed in (4, 5)]
    lengths = np.array([3, 2], np.int32)
    given = [x, *weights, bias, lengths, *state, None, scales[0], zeros[0], scales[1], zeros[1]]
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    results = run_node(
        "DynamicQuantizeLSTM", given, 3, dynamic={steps: "steps", batch: "batch"} if count == 1 else None, **attrs
    )
    wide = [
        (weight * scale.reshape(count, 1, -1)).transpose(0, 2, 1).astype(np.float32)
        for weight, scale in zip(weights, scales, strict=True)
    ]
    check_results(results, run_onnxruntime("LSTM", [x, *wide, bias, lengths, *state], 3, domain="", **attrs))
    check_results(results, run_onnxruntime("DynamicQuantizeLSTM", given, 3, **attrs), error=4 / 255)


def test_ccompiler_takes_quantised_ops() -> None:
    given = [*_tensor("uint8", 3, 5), *_tensor("uint8", 3, 5, seed=1), *_result("uint8")]
    parameters = {1, 2, 4, 5, 6, 7}
    for op_type in ("QLinearAdd", "QLinearMul"):
        check_offload(op_type, given, constants=parameters, steps=1)
    check_offload("QLinearSigmoid", [*given[:3], *_probabilities("uint8")], constants={1, 2, 3, 4}, steps=1)
    image = [*_image("uint8", is_last=True), *_result("uint8")]
    check_offload("QLinearGlobalAveragePool", image, channels_last=1, constants={1, 2, 3, 4}, steps=1)
    operands = _operands("uint8", "int8", is_wide=True)
    check_offload("QGemm", [*operands, None, *_result("uint8", 0.1)], constants={1, 2, 3, 4, 5, 7, 8}, steps=1)
    left, _, _, right, scales, zeros = operands
    given = [left, right, _scale(0.02), scales, _zero("uint8"), zeros]
    check_offload("MatMulIntegerToFloat", given, constants={1, 2, 3, 4, 5})
    x = rng().standard_normal((3, 4)).astype(np.float32)
    check_offload("DynamicQuantizeMatMul", [x, right, scales, zeros], constants={1, 2, 3})


def test_malformed_nodes() -> None:
    tensor, result = _tensor("uint8", 3, 5), _result("uint8")
    assert refusal("QLinearAdd", [tensor[0], _scale(1, 2, 3, 4, 5), tensor[2], *tensor, *result]) == (
        "input 1, a scale, is no scalar; got (5,)"
    )
    assert refusal("QLinearAdd", [*tensor, tensor[0], _scale(1), _zero("int8"), *result]) == (
        "input 5, a zero point, has another dtype; got int8, expected uint8"
    )
    assert refusal("QLinearConcat", [*result, *tensor, tensor[0]], axis=0) == (
        "has an incomplete tensor; got 6 inputs, expected 2, and 3 each"
    )
    assert refusal("QLinearSoftmax", [*tensor, *result], axis=1) == "lacks attribute `opset`"
    stack = _integers("uint8", 2, 3, 4)
    assert refusal("QGemm", [stack, *tensor[1:], *tensor]) == "input 0 is no matrix; got (2, 3, 4)"
    assert refusal("DequantizeLinear", [tensor[0], _scale(1, 2, 3, 4, 5)]) == (
        "has a scale for each index of an unknown axis; got (5,)"
    )
    weights = [_integers("int8", 6, 16), _integers("int8", 1, 4, 16)]
    zero = np.zeros(1, np.int8)
    given = [np.zeros((3, 2, 6), np.float32), *weights, *[None] * 5, _scale(1), zero, _scale(1), zero]
    assert refusal("DynamicQuantizeLSTM", given, 3, hidden_size=4) == (
        "input 1, weights, has the wrong rank; got (6, 16), expected (D, I, 4H)"
    )
    given[1] = weights[1]
    assert refusal("DynamicQuantizeLSTM", given, 3, hidden_size=4) == (
        "input 8 has the wrong rank; got (), expected (D,) or (D, 4H)"
    )
