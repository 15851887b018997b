"""The interface of a graph module to the engine: operand types, compiled functions, settings; and the saved parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pytest
from byoc_core.errors import ArtifactError, PluginError
from byoc_core.runtime.graph import GraphEngine, GraphModule, KernelEngine, check_graph, load_graph, save_graph
from byoc_core.runtime.graph.document import GraphDocument, GraphFunction, GraphNode
from byoc_core.runtime.graph.encoding import encode_document
from byoc_core.runtime.graph.payload import MAX_SAVED_NBYTES, MAX_STATE_NBYTES
from byoc_core.runtime.hooks import LoadContext
from byoc_core.runtime.module import TensorSpec

from core.tests.runtime.graph.engines import DOCUMENT, DOUBLE, DoublingEngine, Program, tensor

pytestmark = pytest.mark.interpreter

CONTEXT = LoadContext(source="test")


def call(module: GraphModule) -> list[float]:
    x, y = np.arange(3, dtype="float32"), np.empty(3, "float32")
    module.get_function("double")(x, y)
    found: list[float] = y.tolist()
    return found


def test_an_engine_sees_the_types_of_operands_and_results_of_bodies_too() -> None:
    body = GraphFunction(
        "body",
        (TensorSpec("a", "float32", tensor("k").shape),),
        (),
        (GraphNode("add", (0, 0), (tensor("k"),)),),
        (("b", 1),),
    )
    twice = replace(DOUBLE, nodes=(GraphNode("toy.twice", (0,), (tensor("n"),), {}, body),))
    engine = DoublingEngine()
    GraphModule(GraphDocument({"double": twice}), {}, engine)
    whole = ("toy.twice", ("float32[n]",), ("float32[n]",))
    assert engine.asked == [whole, ("add", ("float32[k]", "float32[k]"), ("float32[k]",))]


def test_a_function_is_prepared_once_and_what_came_of_it_is_public() -> None:
    module = GraphModule(DOCUMENT, {}, DoublingEngine(3))
    assert isinstance(module.engine, DoublingEngine)
    assert module.engine.state == {"factor": 3}
    assert module.find_prepared("double") == Program("double", is_restored=False)
    assert call(module) == [0, 6, 12]


def test_what_has_been_prepared_is_not_prepared_again() -> None:
    program = Program("mine", is_restored=False)
    module = GraphModule(DOCUMENT, {}, DoublingEngine(), prepared={"double": program})
    assert module.find_prepared("double") is program


def test_settings_and_programs_travel_in_the_payload() -> None:
    payload = save_graph(GraphModule(DOCUMENT, {}, DoublingEngine(3)))
    check_graph(payload, DoublingEngine)
    module = load_graph(payload, CONTEXT, DoublingEngine)
    assert module.engine.state == {"factor": 3}
    assert module.find_prepared("double") == Program("double", is_restored=True)
    assert call(module) == [0, 6, 12]
    assert save_graph(module) == payload


def test_an_engine_that_keeps_nothing_has_the_document_as_its_payload() -> None:
    module = GraphModule(DOCUMENT, {})
    assert module.engine.state == {}
    assert module.find_prepared("double") is None
    assert save_graph(module) == encode_document(DOCUMENT)
    loaded = load_graph(save_graph(module), CONTEXT, KernelEngine)  # the class, which `from_state` makes an engine of
    assert call(loaded) == [0, 2, 4]


def test_a_payload_without_settings_gives_the_engine_without_settings() -> None:
    module = load_graph(encode_document(DOCUMENT), CONTEXT, DoublingEngine)
    assert module.find_prepared("double") == Program("double", is_restored=False)
    assert call(module) == [0, 2, 4]


def refusal(payload: bytes, engine: GraphEngine | type[GraphEngine] | None) -> str:
    with pytest.raises(ArtifactError) as loading:
        load_graph(payload, CONTEXT, engine)
    with pytest.raises(ArtifactError) as checking:
        check_graph(payload, engine)
    assert str(checking.value) == str(loading.value)
    return str(loading.value)


class SomeError(DoublingEngine):
    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        raise KeyError("factor")


def test_settings_that_the_engine_does_not_have_are_refused() -> None:
    payload = save_graph(GraphModule(DOCUMENT, {}, DoublingEngine(3)))
    assert refusal(payload, DoublingEngine(2)) == (
        "engine state: differs from the state of the engine; got {'factor': 3}, expected {'factor': 2}"
    )
    assert (
        refusal(payload, None) == "engine state: differs from the state of the engine; got {'factor': 3}, expected {}"
    )
    assert refusal(payload, KernelEngine) == "engine state: does not belong to this engine; got 'factor'"
    odd = payload.replace(b'"factor":3', b'"factor":[]')
    assert refusal(odd, DoublingEngine) == "engine state, factor: is no integer; got []"
    assert refusal(payload, SomeError) == "engine state: cannot be read: 'factor'"


def test_programs_that_the_engine_did_not_save_are_refused() -> None:
    payload = save_graph(GraphModule(DOCUMENT, {}, DoublingEngine()))
    assert b'"saved":{"double":"ZG91Ymxl"}' in payload
    odd = payload.replace(b"ZG91Ymxl", b"ZG91Ymxm")
    where = "graph function `double`: the saved bytes do not fit the engine: "
    assert refusal(odd, DoublingEngine) == f"{where}is another program"
    assert refusal(payload, KernelEngine()) == f"{where}the engine saves no bytes for functions"


def test_a_function_that_the_engine_refuses_is_an_error_of_the_artifact() -> None:
    long = replace(DOUBLE, nodes=DOUBLE.nodes * 2)
    payload = encode_document(GraphDocument({"double": long}))
    check_graph(payload, DoublingEngine)  # which prepares nothing
    with pytest.raises(ArtifactError) as caught:
        load_graph(payload, CONTEXT, DoublingEngine)
    assert str(caught.value) == "graph function `double`: is refused by the engine: has more than one node"


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        ({"x": (1, 2)}, "holds a value other than plain JSON: (1, 2)"),
        ({"x": [float("nan")]}, "holds a value other than plain JSON: nan"),
        ({"x": {1: 2}}, "has a name other than text: 1"),
        ({"x": 2**63}, "holds an integer of more than 64 bits"),
        ({"x": [[[[[[[[1]]]]]]]]}, "is nested more than 8 levels deep"),
        ({"x": "y" * MAX_STATE_NBYTES}, "has 65544 bytes as JSON, more than 65536"),
    ],
)
def test_settings_that_a_payload_cannot_hold(
    state: dict[str, Any], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = GraphModule(DOCUMENT, {}, DoublingEngine())
    monkeypatch.setattr(DoublingEngine, "state", state)
    with pytest.raises(PluginError) as caught:
        save_graph(module)
    assert str(caught.value) == f"engine `doubling`, state: {problem}. Return a dict of plain JSON values."


def test_more_bytes_of_a_function_than_a_payload_may_hold() -> None:
    program = Program("x" * (MAX_SAVED_NBYTES + 1), is_restored=False)
    with pytest.raises(PluginError) as caught:
        save_graph(GraphModule(DOCUMENT, {}, DoublingEngine(), prepared={"double": program}))
    text = "saves too many bytes; got 16777217, expected at most 16777216"
    assert str(caught.value) == f"engine `doubling`, function `double`: {text}"
