"""Sizes of pooling windows rounded up, beside sizes of convolutions: a residual network adds both."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from byoc_core.ir import IRModule, TensorType
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.lowest


def test_a_pool_with_sizes_rounded_up_has_the_sizes_of_a_convolution(check_model: Callable[..., IRModule]) -> None:
    graph = helper.make_graph(
        [
            helper.make_node("AveragePool", ["x"], ["p"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
            helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
            helper.make_node("Add", ["p", "c"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, "h", "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * 4)],
        [numpy_helper.from_array(np.ones((1, 1, 3, 3), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    for height, width in ((2, 3), (4, 4), (7, 8)):
        x = np.arange(height * width, dtype=np.float32).reshape(1, 1, height, width)
        module = check_model(model, {"x": x})
    type_ = module["main"].result_types[0]
    assert isinstance(type_, TensorType)
    assert list(map(str, type_.shape or ())) == ["n", "1", "(h+1)//2", "(w+1)//2"]
