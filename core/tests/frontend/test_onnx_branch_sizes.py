"""Branches with results of different sizes, chosen at run time: the sizes are chosen by the condition too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from byoc_core import VirtualMachine, build
from byoc_core.frontend.onnx import from_onnx
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import run_imported, run_onnxruntime

Node = onnx.NodeProto


def _branch(name: str, nodes: Sequence[Node]) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=nodes[-1].output[0])])


def _model(then_nodes: Sequence[Node], else_nodes: Sequence[Node], sizes: Sequence[str | int]) -> onnx.ModelProto:
    nodes = [
        helper.make_node(
            "If", ["c"], ["y"], then_branch=_branch("t", then_nodes), else_branch=_branch("e", else_nodes)
        ),
        helper.make_node("Mul", ["y", "two"], ["z"]),
        helper.make_node("Shape", ["z"], ["s"]),
    ]
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes))
    outputs = [onnx.ValueInfoProto(name=name) for name in ("z", "s")]
    constants = [
        numpy_helper.from_array(np.array(2, np.float32), "two"),
        numpy_helper.from_array(np.array([0, 1]), "i"),
    ]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


_BRANCHES: dict[str, tuple[list[Node], list[Node]]] = {
    "an axis": ([helper.make_node("Identity", ["x"], ["a"])], [helper.make_node("Concat", ["x", "x"], ["b"], axis=0)]),
    "both axes": ([helper.make_node("Neg", ["x"], ["a"])], [helper.make_node("Transpose", ["x"], ["b"])]),
    "a known size": (
        [helper.make_node("Gather", ["x", "i"], ["a"], axis=1)],
        [helper.make_node("ReduceSum", ["x"], ["b"])],
    ),
}


@pytest.mark.parametrize("sizes", [[2, 3], ["n", "m"]], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", _BRANCHES)
def test_sizes_are_chosen_by_the_condition(name: str, sizes: list[Any]) -> None:
    model = _model(*_BRANCHES[name], sizes)
    module = from_onnx(model)
    run = VirtualMachine(build(module, []))["main"]
    x: npt.NDArray[Any] = np.arange(6, dtype=np.float32).reshape(2, 3)
    for condition in (np.array(True), np.array(False)):
        feeds = {"c": condition, "x": x}
        expected = run_onnxruntime(model, feeds)
        for results in (run(condition, x), run_imported(module, feeds)):
            for result, wanted in zip(results, expected, strict=True):
                np.testing.assert_array_equal(np.asarray(result), wanted)
