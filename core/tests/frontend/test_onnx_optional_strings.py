"""Optional strings and optional sequences of strings, against the package ``onnx``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import ByocError
from onnx import TensorProto, helper

from core.tests.frontend.string_models import (
    TENSORS,
    TEXTS,
    assert_same,
    draw_texts,
)


def _optional(element: onnx.TypeProto, op: str, result: onnx.TypeProto) -> onnx.ModelProto:
    """Return a model of an operator on an optional input."""
    graph = helper.make_graph(
        [helper.make_node(op, ["o"], ["y"])],
        "g",
        [helper.make_value_info("o", helper.make_optional_type_proto(element))],
        [helper.make_value_info("y", result)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


SCALAR = helper.make_tensor_type_proto(TensorProto.STRING, [])
LIST = helper.make_sequence_type_proto(TEXTS)


@pytest.mark.parametrize(
    ("element", "value"),
    [(TEXTS, draw_texts(2, 3)), (SCALAR, np.array("ä", object)), (LIST, TENSORS), (LIST, [])],
)
def test_optional_inputs(element: onnx.TypeProto, value: Any) -> None:
    flag = helper.make_tensor_type_proto(TensorProto.BOOL, [])
    has = onnx_backend.prepare(_optional(element, "OptionalHasElement", flag), backends=[])
    assert [bool(has.run({"o": given})[0]) for given in (value, None)] == [True, False]
    get = onnx_backend.prepare(_optional(element, "OptionalGetElement", element), backends=[])
    assert_same(get.run({"o": value})[0], value)
    with pytest.raises(ByocError, match="an index lies outside axis 0"):
        get.run({"o": None})
    same = onnx_backend.prepare(_optional(element, "Identity", helper.make_optional_type_proto(element)), backends=[])
    assert_same(same.run({"o": value})[0], value)
    assert same.run({"o": None})[0] is None


def _branches(
    element: onnx.TypeProto, present: onnx.NodeProto, feeds: Sequence[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """Return a model whose branches return a present and an absent optional value."""
    optional = helper.make_value_info("o", helper.make_optional_type_proto(element))
    then = helper.make_graph([present, helper.make_node("Optional", ["p"], ["o"])], "t", [], [optional])
    other = helper.make_graph([helper.make_node("Optional", [], ["o"], type=element)], "e", [], [optional])
    graph = helper.make_graph(
        [
            helper.make_node("If", ["c"], ["v"], then_branch=then, else_branch=other),
            helper.make_node("OptionalHasElement", ["v"], ["h"]),
        ],
        "g",
        [helper.make_value_info("c", helper.make_tensor_type_proto(TensorProto.BOOL, [])), *feeds],
        [
            helper.make_value_info("v", helper.make_optional_type_proto(element)),
            helper.make_value_info("h", helper.make_tensor_type_proto(TensorProto.BOOL, [])),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize("condition", [True, False])
def test_optional_strings_of_branches(condition: bool) -> None:
    """The strings are moved before, so the absent value stands for numbers in a pool."""
    x = helper.make_value_info("x", TEXTS)
    model = _branches(TEXTS, helper.make_node("Transpose", ["x"], ["p"]), [x])
    value, has = onnx_backend.prepare(model, backends=[]).run({"c": np.array(condition), "x": draw_texts(2, 3)})
    assert bool(has) == condition
    assert_same(value, draw_texts(2, 3).T if condition else None)


@pytest.mark.parametrize("condition", [True, False])
def test_optional_lists_of_branches(condition: bool) -> None:
    x = helper.make_value_info("x", TEXTS)
    model = _branches(LIST, helper.make_node("SequenceConstruct", ["x", "x"], ["p"]), [x])
    value, has = onnx_backend.prepare(model, backends=[]).run({"c": np.array(condition), "x": draw_texts(2, 3)})
    assert bool(has) == condition
    assert_same(value, [draw_texts(2, 3)] * 2 if condition else None)


def test_an_optional_list_of_branches_is_read() -> None:
    """The rank of the tensors is that of the present list."""
    model = _branches(
        LIST, helper.make_node("SequenceConstruct", ["x", "x"], ["p"]), [helper.make_value_info("x", TEXTS)]
    )
    model.graph.node.append(helper.make_node("OptionalGetElement", ["v"], ["l"]))
    model.graph.node.append(helper.make_node("SequenceAt", ["l", "i"], ["y"]))
    model.graph.input.append(helper.make_tensor_value_info("i", TensorProto.INT64, []))
    model.graph.output.append(helper.make_value_info("y", TEXTS))
    prepared = onnx_backend.prepare(model, backends=[])
    feeds = {"c": np.array(True), "x": draw_texts(2, 3), "i": np.array(1)}
    assert_same(prepared.run(feeds)[2], draw_texts(2, 3))
    with pytest.raises(ByocError, match="an index lies outside axis 0"):
        prepared.run({**feeds, "c": np.array(False)})


@pytest.mark.parametrize("element", [TEXTS, LIST])
def test_an_output_that_is_never_present(element: onnx.TypeProto) -> None:
    graph = helper.make_graph(
        [helper.make_node("Optional", [], ["o"], type=element), helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [helper.make_value_info("x", TEXTS)],
        [helper.make_value_info("o", helper.make_optional_type_proto(element)), helper.make_value_info("y", TEXTS)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    results = onnx_backend.prepare(model, backends=[]).run({"x": draw_texts(2, 3)})
    assert_same(list(results), [None, draw_texts(2, 3)])
