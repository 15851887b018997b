"""Divisions of sizes: symbolic also for dividends below zero, with ONNX's truncation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from byoc_core.ir import IRModule, TensorType
from onnx import TensorProto, helper, numpy_helper

pytestmark = pytest.mark.lowest


def _model(subtrahend: int, divisor: int, times: int = 1) -> onnx.ModelProto:
    """Return a model of the shape of ``x``, and of zeros of the size ``(n - subtrahend) / divisor + 4``."""
    constants = {"zero": [0], "a": [subtrahend], "b": [divisor], "four": [4]}
    chain = []
    for index in range(times):
        chain += [
            helper.make_node("Sub", [f"n{index}", "a"], [f"d{index}"]),
            helper.make_node("Div", [f"d{index}", "b"], [f"n{index + 1}"]),
        ]
    graph = helper.make_graph(
        [
            helper.make_node("Shape", ["x"], ["s"]),
            helper.make_node("Gather", ["s", "zero"], ["n0"]),
            *chain,
            helper.make_node("Add", [f"n{times}", "four"], ["size"]),
            helper.make_node("ConstantOfShape", ["size"], ["z"]),
            helper.make_node("Identity", [f"n{times}"], ["y"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1]), onnx.ValueInfoProto(name="z")],
        [numpy_helper.from_array(np.array(values), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _sizes(module: IRModule) -> list[str]:
    type_ = module["main"].result_types[1]
    assert isinstance(type_, TensorType)
    return list(map(str, type_.shape or ()))


@pytest.mark.parametrize(
    ("subtrahend", "divisor", "size"),
    [
        (1, 16, "max(((n+15)//16)-1, 0)+4"),
        (3, 2, "max(((n+1)//2)-2, 0)+min(0, n-((n+1)//2)-1)+4"),
        (7, 2, None),
    ],
)
def test_a_difference_divided_is_a_size(
    subtrahend: int, divisor: int, size: str | None, check_model: Callable[..., IRModule]
) -> None:
    for n in (0, 1, 2, 3, 5, 8, 17, 18):
        module = check_model(_model(subtrahend, divisor), {"x": np.zeros((n, 2), np.float32)})
    assert "as_size" not in {binding.op.name for binding in module["main"].bindings}
    assert size is None or _sizes(module) == [size]


@pytest.mark.parametrize("subtrahend", [1, 3])
def test_a_chain_of_divisions_has_a_short_size(subtrahend: int, check_model: Callable[..., IRModule]) -> None:
    for n in (0, 1, 2, 30, 300):
        module = check_model(_model(subtrahend, 2, 12), {"x": np.zeros((n, 2), np.float32)})
    (size,) = _sizes(module)
    assert len(size) < 300
