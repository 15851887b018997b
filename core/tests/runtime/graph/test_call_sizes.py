"""The sizes of a call: symbols known from calls, their sizes, and attributes at these sizes."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.dims import parse_dim
from byoc_core.errors import CallError, IRTypeError
from byoc_core.runtime.graph import attrs_at, bind_sizes, call_symbols
from byoc_core.runtime.graph.document import GraphFunction, GraphNode

from core.tests.runtime.graph.engines import tensor
from core.tests.vm.programs import spec

pytestmark = pytest.mark.interpreter


RESHAPE = GraphNode("reshape", (0,), (tensor("n*m"),), {"shape": (parse_dim("n*m"),), "scale": 2.0})
FLATTEN = GraphFunction("flatten", (spec("x", "n", "m"),), (), (RESHAPE,), (("y", 1),))


def zeros(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.zeros(shape, "float32")


def test_sizes_of_a_call() -> None:
    assert call_symbols(FLATTEN) == ("m", "n")
    assert bind_sizes(FLATTEN, [zeros(2, 3), zeros(6)]) == {"n": 2, "m": 3}
    assert attrs_at(RESHAPE, {"n": 2, "m": 3}) == {"shape": (6,), "scale": 2.0}


def test_outputs_tell_sizes_too() -> None:
    broadcast = GraphNode("broadcast_to", (0,), (tensor("k", 4),), {"shape": tensor("k", 4).shape})
    returning = GraphFunction("f", (spec("x", 4),), (), (broadcast,), (("y", 1),))
    assert returning.signature.new_symbols == {"k"}
    assert call_symbols(returning) == ()  # it returns its results
    assert bind_sizes(returning, [zeros(4)]) == {}
    filling = GraphFunction("f", (spec("x", 4), spec("like", "k + 1")), (), (broadcast,), (("y", 2),))
    assert call_symbols(filling) == ("k",)
    assert bind_sizes(filling, [zeros(4), zeros(8), zeros(7, 4)]) == {"k": 7}


def test_what_no_shape_determines_is_not_among_the_symbols() -> None:
    product = GraphFunction("f", (spec("x", "n*m"),), (), (), (("y", 0),))
    assert call_symbols(product) == ()
    assert bind_sizes(product, [zeros(6), zeros(6)]) == {}


def test_shapes_that_contradict_each_other() -> None:
    with pytest.raises(CallError) as caught:
        bind_sizes(FLATTEN, [zeros(2, 3), zeros(5)])
    assert str(caught.value) == (
        "arguments, argument 1 `y`: axis 0 has the wrong size; got [5], expected [m*n] with m = 3, n = 2"
    )


def test_an_attribute_of_a_size_that_is_not_given() -> None:
    with pytest.raises(IRTypeError) as caught:
        attrs_at(RESHAPE, {"n": 2})
    assert str(caught.value) == "dim: the size of m in m*n is not known"
