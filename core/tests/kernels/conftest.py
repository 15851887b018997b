"""ONNX Runtime as the oracle of single ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

RunNode = Callable[..., list[Any]]


def _run_node(op_type: str, inputs: Sequence[Any], *, opset: int = 18, num_outputs: int = 1, **attrs: Any) -> list[Any]:
    arrays = [np.asarray(array) for array in inputs]
    names = [f"i{index}" for index in range(len(arrays))]
    outputs = [f"o{index}" for index in range(num_outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, outputs, **attrs)],
        "one_node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, arrays, strict=True)
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(zip(names, arrays, strict=True))))


@pytest.fixture(scope="session")
def run_node() -> RunNode:
    """Return a function running an ONNX node in ONNX Runtime: op type, inputs, attributes -> outputs."""
    return _run_node
