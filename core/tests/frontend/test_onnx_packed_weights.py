"""Weights of four bits, two to a byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import Array


def test_packed_integers_are_read_from_every_field(run: Callable[..., Sequence[Array]]) -> None:
    values = np.array([[-8, -1, 7], [3, 0, -5]])
    for raw in (False, True):
        tensor = helper.make_tensor("q", TensorProto.INT4, values.shape, values.reshape(-1).tolist())
        if raw:
            pairs = np.array(tensor.int32_data, np.uint8).tobytes()
            tensor.ClearField("int32_data")
            tensor.raw_data = pairs
        nodes = [helper.make_node("DequantizeLinear", ["q", "s"], ["d"]), helper.make_node("Add", ["d", "x"], ["y"])]
        scale = numpy_helper.from_array(np.array(0.5, np.float32), "s")
        float_value = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "packed",
            [float_value("x", TensorProto.FLOAT, (3,))],
            [float_value("y", TensorProto.FLOAT, (2, 3))],
            [tensor, scale],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        feeds = {"x": np.array([1, 2, 3], np.float32)}
        (result,), (expected,) = run(from_onnx(model), feeds), run(model, feeds)
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(result, values * 0.5 + feeds["x"])
