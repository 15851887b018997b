"""A model with a batch dimension, floats and integers among the outputs; as an ONNX file, and compiled for the host."""

from __future__ import annotations

from pathlib import Path

import byoc_core
import onnx
import pytest
from byoc_core.artifact import Executable
from onnx import TensorProto, helper

__all__ = ["executable", "onnx_file"]


@pytest.fixture
def onnx_file(tmp_path: Path) -> Path:
    """``y = relu(x @ w)``, ``places = argmax(y)``, over a batch of ``n`` and features of ``k``."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["places"], axis=1, keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "k"]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, ["k", 8]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8]),
        helper.make_tensor_value_info("places", TensorProto.INT64, ["n"]),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def executable(onnx_file: Path) -> Executable:
    """The model, compiled for the host."""
    return byoc_core.build(byoc_core.from_onnx(onnx_file), backends=[])
