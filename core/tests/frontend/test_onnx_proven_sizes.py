"""Sizes computed at run time and proven by weights: known to later ops, and checked in each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from byoc_core import VirtualMachine, build, parse
from byoc_core.errors import ExecutionError, FrontendError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir import TensorType
from onnx import TensorProto, helper, numpy_helper

from core.tests.frontend.conftest import run_onnxruntime

Shape = tuple[int, ...]

MODELS: list[tuple[str, Shape, int, list[Shape | None], dict[str, Any]]] = [
    ("Conv", (2, 3, 5), 1, [None, (4, 3, 2)], {}),
    ("Conv", (1, 6, 5, 4), 1, [None, (4, 3, 2, 2), (4,)], {"group": 2}),
    ("Conv", (1, 2, 3, 4, 3), 1, [None, (2, 2, 2, 2, 2)], {}),
    ("ConvTranspose", (1, 3, 4, 5), 1, [None, (3, 2, 2, 2)], {}),
    ("ConvTranspose", (1, 4, 5), 1, [None, (4, 2, 3)], {"group": 2}),
    ("MatMul", (2, 4, 5), 2, [None, (5, 3)], {}),
    ("MatMul", (2, 5), 1, [None, (5,)], {}),
    ("MatMul", (5, 3), 0, [(2, 5), None], {}),
    ("MatMul", (2, 5, 3), 1, [(4, 5), None], {}),
    ("Gemm", (4, 5), 1, [None, (5, 3), (3,)], {}),
    ("Gemm", (4, 5), 1, [None, (3, 5)], {"transB": 1}),
    ("Gemm", (5, 4), 0, [None, (5, 3)], {"transA": 1}),
    ("BatchNormalization", (2, 3, 4), 1, [None, (3,), (3,), (3,), (3,)], {}),
    ("InstanceNormalization", (2, 3, 4), 1, [None, (3,), (3,)], {}),
]
"""Operators: the operand's shape, the axis of the proven size, the shapes of the weights (``None``: the operand)."""

IDS = [f"{op}-{len(shape)}-{axis}-{number}" for number, (op, shape, axis, _, _) in enumerate(MODELS)]


def _model(index: int) -> onnx.ModelProto:
    """Return a model reshaping a vector to a shape given by another input, before the operator."""
    op, shape, _, weights, attrs = MODELS[index]
    rng, names, stored = np.random.default_rng(index), [], []
    for number, weight in enumerate(weights):
        names.append(f"w{number}" if weight else "image")
        if weight:
            stored.append(numpy_helper.from_array(rng.uniform(0.5, 2, weight).astype("float32"), names[-1]))
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["image"]),
        helper.make_node(op, names, ["y"], **attrs),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["elements"]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [len(shape)]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _feeds(shape: Shape) -> dict[str, np.ndarray[Any, Any]]:
    x = np.random.default_rng(7).standard_normal(int(np.prod(shape))).astype("float32")
    return {"x": x, "shape": np.array(shape, "int64")}


@pytest.mark.parametrize("index", range(len(MODELS)), ids=IDS)
def test_a_weight_makes_a_computed_size_known(index: int) -> None:
    _, shape, axis, weights, _ = MODELS[index]
    model = _model(index)
    module = from_onnx(model)
    ops = ("nn.conv", "matmul", "nn.dense", "nn.batch_norm", "nn.instance_norm")
    (binding,) = (binding for binding in module["main"].bindings if binding.op.name.startswith(ops))
    type_ = binding.operands[weights.index(None)].type
    assert isinstance(type_, TensorType)
    # All other sizes are symbols.
    assert [dim for dim in type_.shape or () if isinstance(dim, int)] == [shape[axis]]
    feeds = _feeds(shape)
    (expected,) = run_onnxruntime(model, feeds)
    actual = VirtualMachine(build(module, []))["main"](*feeds.values())
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize("index", range(len(MODELS)), ids=IDS)
def test_another_size_is_an_error(index: int, change: int) -> None:
    op, shape, axis, _, _ = MODELS[index]
    call = VirtualMachine(build(from_onnx(_model(index)), []))["main"]
    other = (*shape[:axis], shape[axis] + change, *shape[axis + 1 :])
    # The operator, its output and the wrong value.
    name = rf"`{op}_y_input_image`" if op != "Gemm" or axis else rf"`{op}_y_input"
    with pytest.raises(ExecutionError, match=rf"`reshape`, {name}.*of size \d+ into shape"):
        call(*_feeds(other).values())


def test_the_error_names_the_node_of_any_spelling() -> None:
    """Names of ONNX are any texts; names of values are identifiers."""
    weight = numpy_helper.from_array(np.ones((4, 3, 1), "float32"), "w")
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["/block.1/5ü"]),
        helper.make_node("Conv", ["/block.1/5ü", "w"], ["a"], name="/block.1/conv"),
        helper.make_node("Conv", ["/block.1/5ü", "w"], ["b"], name="/block.1/conv"),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["elements"]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [3]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializer=[weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = from_onnx(model)
    assert parse(str(module), constants=module.constants) == module  # two values of one name are told apart
    call = VirtualMachine(build(module, []))["main"]
    with pytest.raises(ExecutionError, match="`Conv_block_1_conv_input_block_1_5"):
        call(np.zeros(16, np.float32), np.array([1, 4, 4], "int64"))


def test_a_size_known_to_differ_is_refused_during_import() -> None:
    weight = numpy_helper.from_array(np.ones((4, 3, 1), "float32"), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, "w"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        initializer=[weight],
    )
    with pytest.raises(FrontendError, match=r"input channels\) has size 3; expected 2"):
        from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
