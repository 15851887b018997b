"""The ONNX ops of neural networks, at every changing opset, against ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule
from onnx.reference import ReferenceEvaluator

from core.tests.frontend.conftest import Array, Case

NEWEST = 26  # the newest opset of the oracle
NEWEST_OF = {"GlobalLpPool": 21, "Upsample": 9}  # the oracle lacks a later version, or there is none

Cases = list[dict[str, Any]]


def _ints(*shape: int, seed: int = 0, low: int = -4, high: int = 5, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def _floats(*shape: int, low: float = -3.0, high: float = 3.0, seed: int = 1) -> Any:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def _case(
    *inputs: npt.ArrayLike | None,
    constants: tuple[int, ...] = (),
    outputs: int = 1,
    exact: bool = True,
    **attrs: object,
) -> dict[str, Any]:
    arrays = [None if item is None else np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants, "num_outputs": outputs, "exact": exact}


def _group_norm(opset: int) -> Cases:
    size = 3 if opset < 21 else 6
    stash: dict[str, Any] = {} if opset < 21 else {"stash_type": 1}
    parameters = [_floats(size), _floats(size, seed=2)]
    return [
        _case(_floats(2, 6, 4, 5), *parameters, num_groups=3, constants=(1, 2), exact=False),
        _case(_floats(2, 6, 5), *parameters, num_groups=3, epsilon=1e-2, exact=False, **stash),
    ]


def _instance_norm(opset: int) -> Cases:
    parameters = [_floats(3), _floats(3, seed=2)]
    return [
        _case(_floats(2, 3, 4, 5), *parameters, constants=(1, 2), exact=False),
        _case(_floats(2, 3, 7), *parameters, epsilon=1e-2, exact=False),
    ]


def _lrn(opset: int) -> Cases:
    x = _floats(2, 7, 3, 4)
    return [_case(x, size=size, exact=False) for size in (1, 3, 5, 15)] + [
        _case(x, size=3, alpha=0.5, beta=0.5, bias=2.0, exact=False)
    ]


def _log_softmax(opset: int) -> Cases:
    x = _floats(3, 4, 5)
    return [_case(x, exact=False), *(_case(x, axis=axis, exact=False) for axis in (0, 1, 2))]


def _mean_variance(opset: int) -> Cases:
    x = _floats(2, 3, 4, 5)
    return [_case(x, exact=False), _case(x, axes=(0, 1, 2, 3), exact=False)]


def _rms_norm(opset: int) -> Cases:
    x = _floats(2, 3, 8)
    return [
        _case(x, _floats(8), exact=False),
        _case(x, _floats(3, 8), axis=1, epsilon=1e-3, exact=False),
        _case(x, _floats(8), stash_type=1, axis=-1, constants=(1,), exact=False),
    ]


def _conv_transpose(opset: int) -> Cases:
    x, w, b = _ints(2, 4, 5, 6), _ints(4, 3, 3, 2, seed=1), _ints(3, seed=2)
    return [
        _case(x, w, constants=(1,)),
        _case(x, w, b, constants=(1, 2), pads=(1, 0, 2, 1), strides=(2, 3), dilations=(1, 2), kernel_shape=(3, 2)),
        _case(x, w, constants=(1,), strides=(3, 2), output_padding=(2, 1)),
        _case(x, _ints(4, 3, 3, 2, seed=1), group=2, constants=(1,), strides=(2, 2)),
        _case(x, w, constants=(1,), auto_pad="VALID"),
        _case(x, w, constants=(1,), auto_pad="SAME_UPPER", strides=(2, 2)),
        _case(x, w, constants=(1,), auto_pad="SAME_LOWER", strides=(2, 2)),
        _case(x, w, constants=(1,), output_shape=(10, 11), strides=(2, 2)),
        _case(_ints(2, 4, 9), _ints(4, 3, 3, seed=1), constants=(1,), strides=(2,), pads=(1, 1)),
        _case(_ints(1, 2, 3, 4, 5), _ints(2, 3, 2, 3, 2, seed=1), constants=(1,), strides=(2, 1, 2)),
    ]


def _conv_of_other_ranks(opset: int) -> Cases:
    line, volume = _ints(2, 4, 9), _ints(2, 4, 5, 6, 7)
    return [
        _case(line, _ints(6, 4, 3, seed=1), _ints(6, seed=2), constants=(1, 2), pads=(1, 2), strides=(2,)),
        _case(line, _ints(4, 1, 3, seed=1), constants=(1,), group=4, dilations=(2,)),
        _case(volume, _ints(6, 2, 3, 2, 3, seed=1), constants=(1,), group=2, pads=(1, 0, 1, 2, 1, 0)),
        _case(volume, _ints(6, 4, 1, 2, 3, seed=1), _ints(6, seed=2), constants=(1, 2), strides=(2, 3, 1)),
        _case(line, _ints(6, 4, 3, seed=1), constants=(1,), auto_pad="SAME_UPPER"),
    ]


def _max_pool_of_other_ranks(opset: int) -> Cases:
    line, volume = _ints(2, 3, 9), _ints(2, 3, 5, 6, 7)
    return [
        _case(line, kernel_shape=(3,), strides=(2,), pads=(1, 1)),
        _case(volume, kernel_shape=(2, 3, 2), strides=(2, 1, 2), pads=(1, 1, 0, 0, 1, 1)),
    ]


def _average_pool_of_other_ranks(opset: int) -> Cases:
    line, volume = _ints(2, 3, 9, low=-64, high=64), _ints(2, 3, 5, 6, 7, low=-64, high=64)
    attrs: dict[str, Any] = {"kernel_shape": (2, 3, 2), "strides": (2, 1, 2), "pads": (1, 1, 0, 0, 1, 1)}
    return [
        _case(line, kernel_shape=(3,), strides=(2,), pads=(1, 1), exact=False),
        _case(volume, exact=False, **attrs),
        _case(volume, exact=False, count_include_pad=1, **attrs),
    ]


def _lp_pool(opset: int) -> Cases:
    x = _ints(2, 3, 9, 8)
    cases = [
        _case(x, kernel_shape=(3, 2), exact=False),
        _case(x, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 0, 1), p=1, exact=False),
        _case(_ints(2, 3, 9), kernel_shape=(3,), p=3, exact=False),
        _case(_ints(1, 2, 4, 5, 6), kernel_shape=(2, 2, 3), exact=False),
    ]
    if opset >= 18:
        cases.append(_case(x, kernel_shape=(2, 2), strides=(2, 3), dilations=(2, 1), ceil_mode=1, exact=False))
    return cases


def _global_lp_pool(opset: int) -> Cases:
    return [_case(_ints(2, 3, 4, 4), p=p, exact=False) for p in (1, 2, 3)] + [_case(_ints(2, 3, 8), exact=False)]


def _upsample(opset: int) -> Cases:
    x, scales = _ints(1, 2, 3, 4), (1.0, 1.0, 2.0, 3.0)
    modes = ("nearest", "linear")
    if opset < 9:
        return [_case(x, scales=scales, mode=mode, exact=mode == "nearest") for mode in modes]
    values = np.array(scales, np.float32)
    return [_case(x, values, constants=(1,), mode=mode, exact=mode == "nearest") for mode in modes]


def _f32(*values: float) -> Any:
    return np.array(values, np.float32)


def _i64(*values: int) -> Any:
    return np.array(values, np.int64)


def _resize_before_11() -> Cases:
    goals = [_f32(1, 1, 2, 4), _f32(1, 1, 0.5, 0.5), _f32(1, 1, 2, 0.5)]
    x = _floats(1, 2, 4, 6)
    nearest = [_case(x, goal, constants=(1,), mode="nearest") for goal in goals]
    bytes_ = [_case(x, goal, constants=(1,), mode="linear") for goal in goals for x in _integer_images("int8", "uint8")]
    return nearest + [_case(x, goal, constants=(1,), mode="linear", exact=False) for goal in goals] + bytes_


def _integer_images(*dtypes: str) -> list[Any]:
    return [_ints(1, 2, 4, 6, low=-100 * (dtype != "uint8"), high=101, dtype=dtype) for dtype in dtypes]


def _resize(opset: int) -> Cases:
    """Positions between elements are exact in float32, the dtype of the oracle's computation."""
    if opset < 11:
        return _resize_before_11()
    x, odd = _floats(1, 2, 4, 6), _floats(1, 2, 5, 6)
    cases = []
    roundings = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    coordinates = ["half_pixel", "pytorch_half_pixel", "asymmetric"] + (["half_pixel_symmetric"] if opset >= 19 else [])
    for goal in (_f32(1, 1, 2, 4), _f32(1, 1, 0.5, 0.5)):
        for mode in coordinates:
            attrs: dict[str, Any] = {"constants": (1, 2), "coordinate_transformation_mode": mode}
            cases.append(_case(x, _f32(), goal, mode="linear", exact=False, **attrs))
            cases.append(_case(x, _f32(), goal, mode="cubic", exact=False, **attrs))
            cases += [_case(odd, _f32(), goal, mode="nearest", nearest_mode=name, **attrs) for name in roundings]
            images = _integer_images("int8", "uint8", "int32")
            cases += [_case(image, _f32(), goal, mode="linear", **attrs) for image in images]
        attrs = {"constants": (1, 2), "mode": "cubic", "exact": False}
        cases.append(_case(x, _f32(), goal, cubic_coeff_a=-0.5, exclude_outside=1, **attrs))
    for sizes in (_i64(1, 2, 9, 11), _i64(1, 2, 3, 1)):
        attrs = {"constants": (1, 2, 3), "coordinate_transformation_mode": "align_corners"}
        inputs = [odd, _f32(), _f32(), sizes]
        cases += [_case(*inputs, mode=method, exact=False, **attrs) for method in ("linear", "cubic")]
        cases += [_case(*inputs, mode="nearest", nearest_mode=name, **attrs) for name in roundings]
    cases.append(_case(odd, _f32(), _f32(), _i64(1, 2, 9, 4), constants=(1, 2, 3), mode="nearest"))
    volume = _floats(1, 2, 3, 4, 5)
    cases.append(_case(volume, _f32(), _f32(1, 1, 2, 0.5, 4), constants=(1, 2), mode="linear", exact=False))
    if opset >= 18:
        attrs = {"constants": (3,), "axes": (2, 3), "mode": "linear", "exact": False}
        cases.append(_case(x, None, None, _i64(8, 3), **attrs))
        for policy in ("not_larger", "not_smaller"):
            cases.append(_case(x, None, None, _i64(8, 24), keep_aspect_ratio_policy=policy, **attrs))
    return cases


def _recurrence(num_gates: int, num_states: int, *variants: dict[str, Any]) -> Callable[[int], Cases]:
    steps, batch, inputs, hidden = 4, 3, 5, 2

    def cases(opset: int) -> Cases:
        found = []
        for direction in ("forward", "reverse", "bidirectional"):
            count = 2 if direction == "bidirectional" else 1
            x = _floats(steps, batch, inputs, low=-1, high=1)
            w = _floats(count, num_gates * hidden, inputs, low=-1, high=1, seed=2)
            r = _floats(count, num_gates * hidden, hidden, low=-1, high=1, seed=3)
            b = _floats(count, 2 * num_gates * hidden, low=-1, high=1, seed=4)
            states = [_floats(count, batch, hidden, low=-1, high=1, seed=5 + index) for index in range(num_states)]
            lengths = np.full(batch, steps, np.int32)
            attrs: dict[str, Any] = {"hidden_size": hidden, "outputs": 1 + num_states, "exact": False}
            if direction != "forward":
                attrs["direction"] = direction
            found.append(_case(x, w, r, constants=(1, 2), **attrs))
            for variant in ({}, *variants):
                more = {name: value * count if name == "activations" else value for name, value in variant.items()}
                found.append(_case(x, w, r, b, None, *states, constants=(1, 2, 3), **attrs, **more))
            found.append(_case(x, w, r, b, lengths, constants=(1, 2, 3, 4), **attrs))
            uneven = np.array([2, 4, 1], np.int32)
            found.append(_case(x, w, r, b, uneven, *states, constants=(1, 2, 3), **attrs))
        return found

    return cases


def _einsum(opset: int) -> Cases:
    a, b, c = _ints(2, 3, 4), _ints(2, 4, 5, seed=1), _ints(5, 6, seed=2)
    return [
        _case(a, b, equation="bij,bjk->bik"),
        _case(a, b, c, equation="bij, bjk, kl -> bil", constants=(1,)),
        _case(a, b, equation="...ij,...jk->...ik"),
        _case(_ints(3, 4), _ints(4, 5, seed=1), equation="ij,jk"),
        _case(a, equation="bij->jb"),
        _case(a, equation="bij->b"),
        _case(_ints(4, 4), equation="ii->i"),
        _case(_ints(2, 4, 3, 5), _ints(2, 6, 3, 5, seed=1), equation="bqhd,bkhd->bhqk"),
    ]


def _quantize(opset: int) -> Cases:
    x = np.array([[-300.0, -1.5, -0.5, 0.0], [0.5, 1.5, 2.5, 300.0]], np.float32)
    cases = [_case(x, np.float32(0.5)), _case(x, np.float32(0.25), np.array(-3, np.int8), constants=(1, 2))]
    if opset >= 13:
        zeros = np.array([0, 10, 20, 30], np.uint8)
        cases.append(_case(x, _f32(1, 0.5, 0.25, 2), zeros, axis=-1))
        cases.append(_case(x, _f32(1, 0.5), axis=0))
    if opset >= 21:
        long = np.arange(-9, 9, dtype=np.float32).reshape(2, 9) / 4
        scales = np.array([[1, 0.5, 0.25, 2, 1], [2, 1, 0.5, 0.25, 1]], np.float32)
        cases.append(_case(long, scales, axis=1, block_size=2))
        cases.append(_case(long, scales, np.arange(10, dtype=np.int16).reshape(2, 5), axis=-1, block_size=2))
    return cases


def _dequantize(opset: int) -> Cases:
    x = _ints(3, 4, low=-100, high=100, dtype="int8")
    cases = [
        _case(x, np.float32(0.3)),
        _case(x, np.float32(0.3), np.array(-3, np.int8), constants=(1, 2)),
        _case(x.astype(np.int32), np.float32(0.3)),
    ]
    if opset >= 13:
        cases.append(_case(x, _f32(1, 0.5, 0.25, 0.3), np.array([0, 10, 20, 30], np.int8), axis=-1))
    if opset >= 21:
        scales, zeros = _floats(2, 4), _ints(2, 4, dtype="int8")
        cases.append(_case(x, scales, zeros, axis=0, block_size=2))
        cases.append(
            _case(
                x.astype(ml_dtypes.int4),
                scales,
                zeros.astype(ml_dtypes.int4),
                axis=0,
                block_size=2,
                constants=(0, 1, 2),
            )
        )
    return cases


def _dynamic_quantize(opset: int) -> Cases:
    ranges = ((-3.0, 5.0), (1.0, 4.0), (-4.0, -1.0))
    return [_case(_floats(3, 4, low=low, high=high), outputs=3) for low, high in ranges] + [
        _case(np.zeros((2, 2), np.float32), outputs=3)
    ]


def _attention(opset: int) -> Cases:
    """Means of numbers up to 3, by weights with twice the relative error of the scores.

    The scores are sums of 8 products of these numbers, over the root of 8.
    """
    terms = 3 * (1 + 2 * 8 * 3 * 3 / math.sqrt(8))
    return [case | {"terms": terms} for case in _attention_cases(opset)]


def _attention_cases(opset: int) -> Cases:
    q, k, v = _floats(2, 4, 3, 8), _floats(2, 4, 5, 8, seed=2), _floats(2, 4, 5, 6, seed=3)
    flat = [_floats(2, 3, 32), _floats(2, 5, 16, seed=2), _floats(2, 5, 16, seed=3)]
    allowed = np.tril(np.ones((3, 5), bool), 1)
    return [
        _case(q, k, v, exact=False),
        _case(q, k, v, _floats(3, 5, seed=4), exact=False, scale=0.5),
        _case(q, k, v, allowed, exact=False),
        _case(q, k[:, :2], v[:, :2], exact=False),
        _case(q, q, q, exact=False, is_causal=1),
        _case(q, k, v, exact=False, is_causal=1),
        _case(*flat, exact=False, q_num_heads=4, kv_num_heads=2),
        _case(q, k, v, exact=False, softcap=0.5, softmax_precision=1),
        *_attention_with_cache(),
        *(_case(q, k, v, exact=False, outputs=4, qk_matmul_output_mode=mode) for mode in (0, 1, 3)),
        _case(q, k, v, exact=False, outputs=4, qk_matmul_output_mode=1, softcap=0.5),
        _case(q, k, v, allowed, exact=False, outputs=4, qk_matmul_output_mode=3, is_causal=1),
        _case(q, k, v, _floats(3, 5, seed=4), exact=False, outputs=4, qk_matmul_output_mode=2),
        *(_attention_with_lengths() if opset >= 24 else []),
    ]


def _attention_with_cache() -> Cases:
    q, k, v = _floats(2, 4, 3, 8), _floats(2, 2, 3, 8, seed=2), _floats(2, 2, 3, 6, seed=3)
    flat = [_floats(2, 3, 32), _floats(2, 3, 16, seed=2), _floats(2, 3, 12, seed=3)]
    past = [_floats(2, 2, 4, 8, seed=5), _floats(2, 2, 4, 6, seed=6)]
    nothing = [array[:, :, :0] for array in past]
    hidden = np.tril(np.ones((3, 7), bool), 2)
    hidden[1] = False  # a step that sees nothing gives zeros
    return [
        _case(q, k, v, None, *past, exact=False, outputs=3),
        _case(q, k, v, None, *past, exact=False, outputs=3, is_causal=1),
        _case(q, k, v, hidden, *past, exact=False, outputs=3, is_causal=1, softcap=2.0),
        _case(q, k, v, None, *nothing, exact=False, outputs=3, is_causal=1),
        _case(*flat, None, *past, exact=False, outputs=3, q_num_heads=4, kv_num_heads=2, is_causal=1),
        _case(q, k, v, exact=False, outputs=3),
    ]


def _attention_with_lengths() -> Cases:
    """The cache is outside: each text of the batch has a separate number of keys, some fewer than queries."""
    q, k, v = _floats(2, 4, 3, 8), _floats(2, 2, 5, 8, seed=2), _floats(2, 2, 5, 6, seed=3)
    allowed = np.tril(np.ones((2, 1, 3, 5), bool), 1)
    return [
        _case(q, k, v, None, None, None, np.array(lengths), exact=False, is_causal=causal)
        for lengths in ([3, 5], [2, 4], [0, 5])
        for causal in (0, 1)
    ] + [
        _case(q, k, v, allowed, None, None, np.array([4, 3]), exact=False),
        _case(q, k, v, _floats(3, 5, seed=4), None, None, np.array([4, 3]), exact=False, is_causal=1),
    ]


def _rotary(opset: int) -> Cases:
    x, cos, sin = _floats(2, 3, 4, 8), _floats(10, 4, low=-1, high=1), _floats(10, 4, low=-1, high=1, seed=2)
    places = np.array([[0, 1, 2, 3], [5, 6, 7, 9]])
    return [
        _case(x, cos, sin, places, exact=False),
        _case(x, cos, sin, places, exact=False, interleaved=1),
        _case(x, cos[places], sin[places], exact=False),
        _case(x, cos[:, :2], sin[:, :2], places, exact=False, rotary_embedding_dim=4),
        _case(_floats(2, 4, 24), cos, sin, places, exact=False, num_heads=3),
    ]


def _attention_of_the_reference_only() -> Cases:
    """Windows, and masks with fewer columns than keys: ONNX Runtime has neither."""
    q, k, v = _floats(2, 4, 6, 8), _floats(2, 4, 6, 8, seed=2), _floats(2, 4, 6, 6, seed=3)
    past = [_floats(2, 4, 4, 8, seed=5), _floats(2, 4, 4, 6, seed=6)]
    windows: list[dict[str, Any]] = [
        {"left_window_size": 2},
        {"right_window_size": 1},
        {"left_window_size": 1, "right_window_size": 2},
    ]
    return [_case(q, k, v, exact=False, is_causal=causal, **window) for window in windows for causal in (0, 1)] + [
        _case(q, k, v, None, *past, exact=False, outputs=3, left_window_size=3, is_causal=1),
        _case(q, k, v, None, None, None, np.array([6, 4]), exact=False, left_window_size=2, is_causal=1),
        _case(q, k, v, _floats(6, 4), exact=False),
        _case(q, k, v, _floats(2, 1, 6, 4) > 0, exact=False, is_causal=1),
    ]


_CASES: dict[str, Callable[[int], Cases]] = {
    "Attention": _attention,
    "AveragePool": _average_pool_of_other_ranks,
    "Conv": _conv_of_other_ranks,
    "ConvTranspose": _conv_transpose,
    "DequantizeLinear": _dequantize,
    "DynamicQuantizeLinear": _dynamic_quantize,
    "Einsum": _einsum,
    "GRU": _recurrence(3, 1, {"linear_before_reset": 1}),
    "GlobalLpPool": _global_lp_pool,
    "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm,
    "LRN": _lrn,
    "LSTM": _recurrence(4, 2, {"activations": ["Sigmoid", "Tanh", "Tanh"]}),
    "LogSoftmax": _log_softmax,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool_of_other_ranks,
    "MeanVarianceNormalization": _mean_variance,
    "QuantizeLinear": _quantize,
    "RMSNormalization": _rms_norm,
    "RNN": _recurrence(1, 1, {"activations": ["Relu"]}),
    "Resize": _resize,
    "RotaryEmbedding": _rotary,
    "Upsample": _upsample,
}


def _newest(op_type: str) -> int:
    return NEWEST_OF.get(op_type, NEWEST)


def test_op_equals_onnx_runtime(
    op_type: str, opset: int, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for arguments in _CASES[op_type](opset):
        check_case(op_type, opset, make_case(**arguments))


@pytest.mark.parametrize("op_type", sorted(_CASES))
def test_op_imports_with_dynamic_sizes(
    op_type: str, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    """All sizes are symbols, except for sizes used by padding."""
    for arguments in _CASES[op_type](_newest(op_type)):
        attrs = arguments["attrs"]
        if op_type == "ConvTranspose" and ("output_shape" in attrs or attrs.get("auto_pad", "").startswith("SAME")):
            continue
        if op_type in ("GRU", "LSTM", "RNN") and 4 in arguments["constants"]:
            continue  # whether all sequences are as long as the longest is unknown
        if "keep_aspect_ratio_policy" in attrs:
            continue
        check_case(op_type, _newest(op_type), make_case(**arguments), dynamic=True)


def test_one_block_is_one_scale(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    """ONNX Runtime does not support a single block, so a scalar is the oracle."""
    x, scale = _floats(9), np.array(0.25, np.float32)
    (expected,) = run(node_model("QuantizeLinear", 21, make_case([x, scale])), {"i0": x, "i1": scale})
    model = node_model("QuantizeLinear", 21, make_case([x, scale.reshape(1)], {"axis": 0, "block_size": 9}))
    (result,) = run(from_onnx(model), {"i0": x, "i1": scale.reshape(1)})
    np.testing.assert_array_equal(result, expected)


def test_attention_equals_the_reference_evaluator(
    node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    """In float64: in float32 the reference rounds factors."""
    for arguments in _attention_of_the_reference_only():
        case = make_case(**arguments)
        arrays = [
            array.astype(np.float64) if array is not None and array.dtype == np.float32 else array
            for array in case.inputs
        ]
        model = node_model("Attention", 25, replace(case, inputs=arrays))
        feeds = {f"i{index}": array for index, array in enumerate(arrays) if array is not None}
        expected = ReferenceEvaluator(model).run(None, feeds)
        for result, wanted in zip(run(from_onnx(model), feeds), expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=2**-46, atol=2**-48)
