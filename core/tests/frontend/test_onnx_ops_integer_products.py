"""Products of quantised integers, at every changing opset, against ONNX Runtime.

Scales are powers of two, so the scaled sums and the compared results are exact. Weights with a sign have seven bits: on
x86-64 without VNNI, ONNX Runtime adds pairs of products of uint8 and int8 in 16 bits, with saturation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import IRModule

from core.tests.frontend.conftest import Array, Case

NEWEST = 26

Cases = list[dict[str, Any]]


def _bytes(*shape: int, seed: int = 0, signed: bool = False) -> Any:
    low, high = (-64, 64) if signed else (0, 200)
    return np.random.default_rng(seed).integers(low, high, shape).astype(np.int8 if signed else np.uint8)


def _case(*inputs: npt.ArrayLike | None, constants: tuple[int, ...] = (), **attrs: object) -> dict[str, Any]:
    arrays = [None if item is None else np.asarray(item) for item in inputs]
    return {"inputs": arrays, "attrs": attrs, "constants": constants}


def _f32(*values: float) -> Any:
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def _conv_integer(opset: int) -> Cases:
    x, w = _bytes(2, 4, 6, 5), _bytes(6, 4, 3, 2, seed=1)
    return [
        _case(x, w),
        _case(x, w, np.uint8(7), constants=(1, 2), pads=(1, 0, 2, 1), strides=(2, 1), dilations=(1, 2)),
        _case(x, w, np.uint8(7), np.uint8(100), constants=(1, 2, 3), auto_pad="SAME_UPPER"),
        _case(x, _bytes(6, 2, 3, 3, seed=1), np.uint8(7), np.array([9], np.uint8), group=2, pads=(1, 1, 1, 1)),
    ]


def _matmul_integer(opset: int) -> Cases:
    a, b = _bytes(3, 4), _bytes(4, 5, seed=1, signed=True)
    stack = _bytes(2, 3, 4)
    return [
        _case(a, b),
        _case(a, b, np.uint8(90), np.int8(-3), constants=(1, 2, 3)),
        _case(a, b, np.array([90], np.uint8), np.arange(-2, 3, dtype=np.int8), constants=(1, 3)),
        _case(stack, b, np.uint8(90), np.int8(-3)),
        _case(stack, _bytes(2, 4, 5, seed=1), np.uint8(90), np.uint8(30)),
    ]


def _quantised_conv(opset: int) -> Cases:
    x, w, wide = _bytes(2, 4, 6, 5), _bytes(6, 4, 3, 2, seed=1, signed=True), np.arange(6, dtype=np.int32) * 1000
    one = (_f32(0.5), np.uint8(100))
    target = (_f32(64.0), np.uint8(120))
    each = _f32(0.25, 0.5, 1, 2, 0.125, 0.25)
    known = (1, 2, 3, 4, 5, 6, 7)
    return [
        _case(x, *one, w, _f32(0.25), np.int8(0), *target, constants=known),
        _case(x, *one, w, _f32(0.25), np.int8(0), *target, wide, constants=(*known, 8), pads=(1, 1, 0, 0)),
        _case(x, *one, w, each, np.zeros(6, np.int8), *target, constants=known, strides=(2, 2)),
        _case(
            x, *one, _bytes(4, 1, 3, 3, seed=2, signed=True), _f32(0.25), np.int8(0), *target, constants=known, group=4
        ),
    ]


def _quantised_matmul(opset: int) -> Cases:
    a, b = _bytes(3, 4), _bytes(4, 5, seed=1)
    target = (_f32(64.0), np.uint8(120))
    each = _f32(0.25, 0.5, 1, 2, 0.125)
    return [
        _case(a, _f32(0.5), np.uint8(100), b, _f32(0.25), np.uint8(90), *target),
        _case(a, _f32(0.5), np.uint8(100), b, each, np.arange(85, 90, dtype=np.uint8), *target, constants=(3, 4, 5)),
        _case(_bytes(2, 3, 4), _f32(0.5), np.uint8(100), b, _f32(0.25), np.uint8(90), *target, constants=(3,)),
    ]


_CASES: dict[str, Callable[[int], Cases]] = {
    "ConvInteger": _conv_integer,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _quantised_conv,
    "QLinearMatMul": _quantised_matmul,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("opset", [10, 21, NEWEST])
@pytest.mark.parametrize("op_type", _CASES)
def test_products_agree_with_onnxruntime(
    op_type: str, opset: int, dynamic: bool, check_case: Callable[..., IRModule], make_case: type[Case]
) -> None:
    for case in _CASES[op_type](opset):
        if dynamic and any(len(array.shape) > 2 and "conv" in op_type.lower() for array in case["inputs"][1:]):
            case["constants"] = tuple({*case["constants"], 1, 3} & set(range(len(case["inputs"]))))
        if dynamic and "auto_pad" in case["attrs"]:
            continue  # needs known sizes
        check_case(op_type, opset, make_case(**case), dynamic=dynamic)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_scales_do_not_narrow_the_sums(
    dtype: str, node_model: Callable[..., onnx.ModelProto], make_case: type[Case], run: Callable[..., Sequence[Array]]
) -> None:
    """Sums of 64 products exceed the range of float16; scales are powers of two, so nothing rounds."""
    a, b = _bytes(3, 64), _bytes(64, 5, seed=1)
    scales = [np.array(scale).astype(to_numpy(dtype)) for scale in (2.0**-6, 2.0**-8, 1.0)]
    zero = np.array(0, np.uint8)
    case = make_case([a, scales[0], zero, b, scales[1], zero, scales[2], zero])
    feeds = {f"i{index}": np.asarray(array) for index, array in enumerate(case.inputs)}
    (result,) = run(from_onnx(node_model("QLinearMatMul", 21, case)), feeds)
    real = a.astype(np.float64) @ b.astype(np.float64) * 2.0**-14
    assert real.max() * 2.0**14 > 65504
    np.testing.assert_array_equal(result, np.rint(real).astype(np.uint8))
