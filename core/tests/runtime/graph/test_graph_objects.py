"""Objects of graph modules: equal parts of a document are a single object, and parts only for planning are dropped."""

from __future__ import annotations

import gc
import json

import numpy as np
import pytest
from byoc_core.runtime.graph import load_graph
from byoc_core.runtime.graph.encoding import decode_document
from byoc_core.runtime.graph.function_plan import PlannedNode
from byoc_core.runtime.hooks import LoadContext

pytestmark = pytest.mark.interpreter

AXES: list[dict[str, object]] = [
    {"axis": 1},
    {"axis": True},
    {"axis": 1.0},
    {"axis": [1]},
    {"axis": [True]},
    {"axis": {"dim": "n"}},
]


def payload(attrs: list[dict[str, object]], op: str = "softmax") -> bytes:
    types = [{"dtype": "float32", "shape": ["n", 4]}]
    nodes = [{"op": op, "inputs": [n], "attrs": item, "outputs": types} for n, item in enumerate(attrs)]
    main = {
        "name": "main",
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["n", 4]}],
        "constants": [],
        "nodes": nodes,
        "outputs": [{"name": "y", "value": len(nodes)}],
    }
    return json.dumps({"schema": "byoc.graph", "version": 1, "functions": [main]}).encode()


def test_equal_types_and_attributes_are_one_object() -> None:
    function = decode_document(payload(AXES + AXES)).functions["main"]
    first, again = function.nodes[: len(AXES)], function.nodes[len(AXES) :]
    assert len({id(node.outputs[0]) for node in function.nodes}) == 1
    flat = [(one.attrs is other.attrs) for one, other in zip(first, again, strict=True)]
    assert flat == [True] * 5 + [False]  # what is nested is read anew


def test_attributes_that_are_equal_in_python_alone_stay_apart() -> None:
    nodes = decode_document(payload(AXES)).functions["main"].nodes
    assert [repr(node.attrs["axis"]) for node in nodes[:5]] == ["1", "True", "1.0", "(1,)", "(True,)"]


def test_the_plan_of_known_sizes_is_dropped() -> None:
    static = payload([{}] * 20, "nn.relu").replace(b'"n"', b"3")
    gc.collect()
    before = sum(type(item) is PlannedNode for item in gc.get_objects())
    module = load_graph(static, LoadContext())
    assert sum(type(item) is PlannedNode for item in gc.get_objects()) == before
    out = np.empty((3, 4), np.float32)
    module.get_function("main")(np.full((3, 4), -1, np.float32), out)
    assert not out.any()
