"""Models of quantised ops as spelled by ONNX, compiled alone, against the host and ONNX Runtime.

Scales are powers of two, so scaled sums and compared results are exact. With ONNX Runtime, weights have seven bits: on
x86-64 without VNNI, ONNX Runtime adds pairs of products of uint8 and int8 in 16 bits, with saturation.
"""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

NDArray = npt.NDArray[Any]


def _bytes(seed: int, shape: tuple[int, ...], dtype: str) -> NDArray:
    limits = np.iinfo(dtype)
    drawn: NDArray = np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return drawn


def _narrowed(array: NDArray, bits: int) -> Any:
    """Return int8 weights of fewer bits, and other arrays unchanged."""
    return array >> 8 - bits if array.dtype == np.int8 and array.ndim > 1 else array


X = _bytes(0, (2, 4, 9, 8), "uint8")
ROWS = _bytes(1, (5, 24), "uint8")
FILTER = _bytes(2, (10, 4, 3, 3), "int8")
MATRIX = _bytes(3, (24, 20), "int8")
CHANNEL_SCALES = (2.0 ** -np.arange(8, 18)).astype(np.float32)
SCALE, OUT = (np.float32(0.5), np.uint8(131)), (np.float32(16), np.uint8(120))
ROW_SCALE = (np.float32(2.0**-6), np.int8(0))

MODELS: dict[str, tuple[str, NDArray, list[Any], dict[str, Any]]] = {
    "QLinearConv": (
        "QLinearConv",
        X,
        [*SCALE, FILTER, CHANNEL_SCALES, np.zeros(10, np.int8), *OUT, np.arange(-5000, 5000, 1000).astype(np.int32)],
        {"pads": [1, 1, 1, 1], "strides": [1, 2]},
    ),
    "QLinearMatMul": ("QLinearMatMul", ROWS, [*SCALE, MATRIX, *ROW_SCALE, *OUT], {}),
    "ConvInteger": ("ConvInteger", X, [FILTER, np.uint8(131)], {"pads": [2, 1, 0, 1], "dilations": [2, 1]}),
    "MatMulInteger": ("MatMulInteger", ROWS, [MATRIX, np.uint8(131)], {}),
}
"""Ops, their first operands, and the other, constant operands."""


@pytest.mark.parametrize("bits", [7, 8])
@pytest.mark.parametrize("name", MODELS)
def test_quantised_ops_are_byte_products(name: str, bits: int) -> None:
    op, operands, constants, attrs = MODELS[name]
    constants = [_narrowed(array, bits) for array in constants]
    names = [f"c{index}" for index in range(len(constants))]
    node = onnx.helper.make_node(op, ["x", *names], ["y"], **attrs)
    kind = onnx.helper.np_dtype_to_tensor_dtype(operands.dtype)
    weights = [onnx.numpy_helper.from_array(np.asarray(a), n) for a, n in zip(constants, names, strict=True)]
    inputs = [onnx.helper.make_tensor_value_info("x", kind, operands.shape)]
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    data = onnx.shape_inference.infer_shapes(model).SerializeToString()
    executable = byoc_core.build(byoc_core.from_onnx(data), ["ccompiler"])
    assert executable.report_data["offloaded_share"] == 1.0
    assert "vec_tile_bytes" in executable.modules[0].get_source()
    actual = byoc_core.VirtualMachine(executable)["main"](operands)
    host = byoc_core.VirtualMachine(byoc_core.build(byoc_core.from_onnx(data), []))["main"](operands)
    np.testing.assert_array_equal(actual, host)
    if bits == 7:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(actual, session.run(None, {"x": operands})[0])
