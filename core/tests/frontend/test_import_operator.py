"""Operators of the standard in the place of a foreign operator: ``NodeContext.import_operator``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import Imported, NodeContext, ShapeValue, from_onnx
from byoc_core.ir import IRModule
from byoc_core.transform import evaluate_function
from onnx import TensorProto, helper

pytestmark = pytest.mark.asks_for_plugins

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.fixture(autouse=True)
def _fresh_registry(look_again: Callable[[], None]) -> None:
    """Give each test a registry without registrations."""
    look_again()


def import_by(importer: Callable[[NodeContext], Sequence[Imported]]) -> IRModule:
    """Import a node with this importer, of an input ``(n, 3, 4)``, in a model of operator set 20."""
    byoc_core.register_op("com.example", "Foreign", importer)
    node = helper.make_node("Foreign", ["x"], ["y"], name="the_node", domain="com.example")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 4])]
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.example", 1)]
    return from_onnx(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def run(importer: Callable[[NodeContext], Sequence[Imported]]) -> Any:
    return evaluate_function(import_by(importer), "main", [X])[0]


def test_inputs_and_attributes() -> None:
    def clip(node: NodeContext) -> Sequence[Imported]:
        return node.import_operator("Clip", [node.value(0), None, np.array(7, np.float32)], opset=13)

    def transpose(node: NodeContext) -> Sequence[Imported]:
        return node.import_operator("Transpose", [node.value(0)], {"perm": [1, 0, 2]}, opset=13)

    np.testing.assert_array_equal(run(clip), np.minimum(X, 7))
    np.testing.assert_array_equal(run(transpose), X.transpose(1, 0, 2))


def test_several_outputs() -> None:
    def split(node: NodeContext) -> Sequence[Imported]:
        parts = node.import_operator("Split", [node.value(0), np.array([1, 3])], {"axis": 2}, opset=13, num_outputs=2)
        return parts[1:]

    np.testing.assert_array_equal(run(split), X[..., 1:])


def test_the_operator_set_is_the_given() -> None:
    def axes_of_squeeze(node: NodeContext) -> Sequence[Imported]:
        expanded = node.import_operator("Unsqueeze", [node.value(0)], {"axes": [1]}, opset=11)
        assert node.opset == 20
        return node.import_operator("Unsqueeze", [expanded[0], np.array([0])], opset=13)

    assert run(axes_of_squeeze).shape == (1, 2, 1, 3, 4)


def test_known_shapes_stay_known() -> None:
    def first_size(node: NodeContext) -> Sequence[Imported]:
        (shape,) = node.import_operator("Shape", [node.value(0)], opset=15)
        assert isinstance(shape, ShapeValue)
        (size,) = node.import_operator("Gather", [shape, np.array(0)], opset=13)
        assert isinstance(size, ShapeValue)
        return [size]

    assert run(first_size) == 2


def test_locations_and_errors_name_the_node() -> None:
    def relu(node: NodeContext) -> Sequence[Imported]:
        return node.import_operator("Relu", [node.value(0)], opset=14)

    (binding,) = import_by(relu)["main"].bindings
    assert str(binding.location).endswith("the_node/Relu")

    def unknown(node: NodeContext) -> Sequence[Imported]:
        return node.import_operator("NotInTheStandard", [node.value(0)], opset=14)

    def malformed(node: NodeContext) -> Sequence[Imported]:
        return node.import_operator("Transpose", [node.value(0)], {"axes": [1]}, opset=13)

    messages = []
    for importer in (unknown, malformed):
        with pytest.raises(FrontendError) as caught:
            import_by(importer)
        messages.append(str(caught.value))
    assert messages == [
        "ONNX model, node `the_node` (Foreign), node `NotInTheStandard` (NotInTheStandard): the op is not supported",
        "ONNX model, node `the_node` (Foreign), node `Transpose` (Transpose): has unsupported attributes; got axes",
    ]
