"""ONNX quantisation to 8-bit floats: the arithmetic of the standard, and refusals."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import to_numpy
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.module import NDArray
from byoc_core.transform import evaluate_function
from hypothesis import given
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper, numpy_helper

_TARGETS = {"float8_e4m3fn": TensorProto.FLOAT8E4M3FN, "float8_e5m2": TensorProto.FLOAT8E5M2}
_LARGEST = {"float8_e4m3fn": 448.0, "float8_e5m2": 57344.0}
_SHAPE = (2, 3, 4)


def _model(op: str, dtype: str, scale: npt.ArrayLike, zero: npt.ArrayLike | None = 0.0, **attrs: Any) -> ModelProto:
    narrow = _TARGETS[dtype]
    given, made = (TensorProto.FLOAT, narrow) if op == "QuantizeLinear" else (narrow, TensorProto.FLOAT)
    constants = [numpy_helper.from_array(np.asarray(scale, np.float32), "scale")]
    if zero is not None:
        constants.append(helper.make_tensor("zero", narrow, np.shape(zero), np.ravel(zero)))
    node = helper.make_node(op, ["x", "scale"] + ["zero"] * (zero is not None), ["y"], **attrs)
    inputs = [helper.make_tensor_value_info("x", given, _SHAPE)]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", made, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _run(model: ModelProto, x: NDArray) -> Any:
    (result,) = evaluate_function(from_onnx(model), "main", [x])
    return result


def _placed(scale: npt.ArrayLike) -> Any:
    """Return a scale, or a scale for each index of axis 1, shaped for broadcasting."""
    array = np.asarray(scale, np.float32)
    return array[:, np.newaxis] if array.size > 1 else array


_SCALES = st.sampled_from([0.5, [0.25], [0.5, 3.0, 1e-3]])
_NUMBERS = st.lists(st.floats(width=32), min_size=24, max_size=24)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("dtype", _TARGETS)
@given(scale=_SCALES, zero=st.sampled_from([0.0, 2.0]), values=_NUMBERS)
def test_a_quotient_is_rounded_once_and_saturates(
    dtype: str, saturate: int, scale: npt.ArrayLike, zero: float, values: list[float]
) -> None:
    x = np.reshape(np.array(values, np.float32), _SHAPE)
    found = _run(_model("QuantizeLinear", dtype, scale, np.full(np.shape(scale), zero), saturate=saturate), x)
    with np.errstate(all="ignore"):
        quotient = x / _placed(scale) + np.float32(zero)
    beyond = abs(quotient) > _LARGEST[dtype]
    expected = KERNELS["cast"](quotient, dtype=dtype).astype(np.float64)
    if saturate:
        expected = np.where(beyond, np.copysign(_LARGEST[dtype], quotient), expected)
    assert found.dtype == to_numpy(dtype)
    np.testing.assert_array_equal(found.astype(np.float64), expected)


@pytest.mark.parametrize("dtype", _TARGETS)
@given(scale=_SCALES, zero=st.sampled_from([0.0, 2.0]), bits=st.binary(min_size=24, max_size=24))
def test_each_8_bit_float_is_multiplied_by_its_scale(
    dtype: str, scale: npt.ArrayLike, zero: float, bits: bytes
) -> None:
    x = np.frombuffer(bits, to_numpy(dtype)).reshape(_SHAPE)
    found = _run(_model("DequantizeLinear", dtype, scale, np.full(np.shape(scale), zero)), x)
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) - np.float32(zero)) * _placed(scale)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_the_dtype_may_be_an_attribute() -> None:
    model = _model("QuantizeLinear", "float8_e5m2", 1.0, None, output_dtype=TensorProto.FLOAT8E5M2)
    found = _run(model, np.full(_SHAPE, 1e9, np.float32))
    assert found.dtype == to_numpy("float8_e5m2")
    assert (found.astype(np.float64) == _LARGEST["float8_e5m2"]).all()


@pytest.mark.parametrize("op", ["QuantizeLinear", "DequantizeLinear"])
@pytest.mark.parametrize(
    ("scale", "zero", "attrs", "text"),
    [
        ([[[1.0] * 2] * 3] * 2, None, {"axis": 2, "block_size": 2}, "blocks of 8-bit floats with a shared scale"),
        ([1.0, 2.0, 3.0], [0.0] * 3, {"axis": 3}, "names no axis of a tensor of rank 3; got 3"),
        ([1.0, 2.0], [0.0] * 2, {"axis": 1}, "the number of scales differs from the size of axis 1; got 2, expected 3"),
    ],
    ids=["blocks", "axis", "number of scales"],
)
def test_what_is_not_of_the_standard_or_not_imported_is_said(
    op: str, scale: npt.ArrayLike, zero: npt.ArrayLike | None, attrs: dict[str, Any], text: str
) -> None:
    if op == "QuantizeLinear" and zero is None:
        attrs = {**attrs, "output_dtype": TensorProto.FLOAT8E4M3FN}
    with pytest.raises(FrontendError) as caught:
        from_onnx(_model(op, "float8_e4m3fn", scale, zero, **attrs))
    assert text in str(caught.value)


def test_a_tensor_that_is_quantised_and_restored_runs_as_a_model() -> None:
    constants = [numpy_helper.from_array(np.asarray([0.5, 2.0, 1.0], np.float32), "scale")]
    constants.append(helper.make_tensor("zero", TensorProto.FLOAT8E4M3FN, [3], [0.0] * 3))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"]),
    ]
    inputs, outputs = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, _SHAPE)] for name in "xy")
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.random.default_rng(0).standard_normal(_SHAPE, np.float32) * 300
    found = byoc_core.VirtualMachine(byoc_core.build(from_onnx(model), []))["main"](x)
    factor = _placed([0.5, 2.0, 1.0])
    steps = np.clip(x / factor, -448, 448).astype(to_numpy("float8_e4m3fn"))
    np.testing.assert_array_equal(found, steps.astype(np.float32) * factor)
