"""Maps as inputs, and sequences of maps as results of importers of plugins, also through control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import CallError, FrontendError
from byoc_core.frontend.onnx import Imported, NodeContext
from byoc_core.runtime.maps import pack_map, unpack_map, unpack_maps
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.asks_for_plugins

X = np.arange(6, dtype=np.float32).reshape(2, 3)
STRINGS = """<opset_import: ["": 18, "maps": 1]>
g (float[n, 3] x, bool c) => (seq(map(string, float[])) y) {
    y = If (c) <
        then_branch = a () => (seq(map(string, float[])) p) { p = maps.Rows(x) },
        else_branch = b () => (seq(map(string, float[])) q) { z = Neg(x) q = maps.Rows(z) }
    >
}"""
INTEGERS = """<opset_import: ["": 18, "maps": 1]>
g (float[n, 3] x) => (seq(map(int64, float[])) y) { z = maps.Rows(x) y = Identity(z) }"""


@pytest.fixture
def register(look_again: Callable[[], None]) -> Callable[[Sequence[int] | Sequence[str]], None]:
    look_again()

    def add(keys: Sequence[int] | Sequence[str]) -> None:
        @byoc_core.register_op("maps", "Rows")
        def import_rows(node: NodeContext) -> Sequence[Imported]:
            return [node.map_sequence(keys, node.value(0))]

    return add


def test_keys_of_strings(register: Callable[..., None]) -> None:
    register(["a", "\u00e9", ""])
    model = onnx_backend.prepare(onnx.parser.parse_model(STRINGS), backends=[])
    (found,) = model.run([X, np.array(True)])
    assert found == [{"a": 0.0, "\u00e9": 1.0, "": 2.0}, {"a": 3.0, "\u00e9": 4.0, "": 5.0}]
    (negated,) = model.run([X, np.array(False)])
    assert negated[1] == {"a": -3.0, "\u00e9": -4.0, "": -5.0}


def test_keys_of_integers(register: Callable[..., None]) -> None:
    register([3, -1, 7])
    module = byoc_core.from_onnx(onnx.parser.parse_model(INTEGERS))
    assert module["main"].output_names == ("y.keys", "y.values")
    (found,) = onnx_backend.prepare(onnx.parser.parse_model(INTEGERS), backends=[]).run([X])
    assert found == [{3: 0.0, -1: 1.0, 7: 2.0}, {3: 3.0, -1: 4.0, 7: 5.0}]
    (nothing,) = onnx_backend.prepare(onnx.parser.parse_model(INTEGERS), backends=[]).run([X[:0]])
    assert list(nothing) == []


def _map_type(key: int, value: int, shape: Sequence[int] = ()) -> onnx.TypeProto:
    element = onnx.helper.make_tensor_type_proto(value, shape)
    return onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=key, value_type=element))


def _branches_of_maps(map_type: onnx.TypeProto) -> onnx.ModelProto:
    """Return a model that returns one of two maps."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (bool c, float x, float k) => (float y) { y = If (c) <
            then_branch = a () => (float p) { p = Identity(x) }, else_branch = b () => (float q) { q = Identity(k) }> }
    """)
    for value in (*model.graph.input[1:], *model.graph.output):
        value.type.CopyFrom(map_type)
    return model


@pytest.mark.parametrize(
    ("key", "value", "maps", "form", "names"),
    [
        (7, 1, ({3: 1.5, -1: 2.0}, {}), "map", ("x.keys", "x.values")),
        (8, 7, ({"a": 1, "é": -2}, {"": 3}), "map by string", ("x.keys.bytes", "x.keys.lengths", "x.values")),
        (7, 8, ({3: "é", -1: ""}, {0: "a"}), "map of strings", ("x.keys", "x.values.bytes", "x.values.lengths")),
        (
            *(8, 8, ({"a": "x", "": "é"}, {"b": "b"}), "map of strings by string"),
            ("x.keys.bytes", "x.keys.lengths", "x.values.bytes", "x.values.lengths"),
        ),
    ],
)
def test_maps_are_inputs_and_outputs(
    key: int, value: int, maps: tuple[Any, Any], form: str, names: tuple[str, ...]
) -> None:
    model = _branches_of_maps(_map_type(key, value))
    main = byoc_core.from_onnx(model)["main"]
    assert main.input_names[1 : 1 + len(names)] == names
    session = byoc_core.Session(model, [])
    assert [item.form for item in session.inputs] == ["tensor", form, form]
    for condition in (True, False):
        found = session(np.array(condition), *maps)["y"]
        assert found == maps[0 if condition else 1]
    with pytest.raises(CallError, match="input `x`: is not a map; got list"):
        session(np.array(True), [], maps[1])


def test_values_of_maps_are_scalars() -> None:
    with pytest.raises(FrontendError) as caught:
        byoc_core.from_onnx(_branches_of_maps(_map_type(7, 1, [2])))
    assert str(caught.value) == "ONNX model, input `x`: is a map of values other than scalars"


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.text(max_size=3), max_size=4))
def test_packing_texts_by_integers_loses_nothing(mapping: dict[int, str]) -> None:
    arrays = pack_map(mapping, "int64", "string")
    assert [array.dtype.name for array in arrays] == ["int64", "uint8", "int64"]
    assert unpack_map(*arrays) == mapping


@given(st.dictionaries(st.text(max_size=3), st.floats(width=32, allow_nan=False), max_size=4))
def test_packing_numbers_by_texts_loses_nothing(mapping: dict[str, float]) -> None:
    arrays = pack_map(mapping, "string", "float32")
    assert [array.dtype.name for array in arrays] == ["uint8", "int64", "float32"]
    assert unpack_map(*arrays) == mapping


@pytest.mark.parametrize(
    ("mapping", "keys", "values", "text"),
    [
        ({1: 2.0}, "string", "float32", "map: has keys of another kind; got [1], expected string"),
        ({"a": 2.0}, "int64", "float32", "map: has keys of another kind; got ['a'], expected int64"),
        ({1.5: 2.0}, "int64", "float32", "map: has keys of another kind; got [1.5], expected int64"),
        ({300: 2.0}, "uint8", "float32", "map: has keys of another kind; got [300], expected uint8"),
        ({1: "a"}, "int64", "float32", "map: has values of another kind; got ['a'], expected float32"),
        ({1: [2.0]}, "int64", "float32", "map: has values of another kind; got [[2.0]], expected float32"),
        ({1: None}, "int64", "string", "map: has values of another kind; got [None], expected string"),
    ],
)
def test_maps_of_another_kind(mapping: Any, keys: str, values: str, text: str) -> None:
    with pytest.raises(CallError) as caught:
        pack_map(mapping, keys, values)
    assert str(caught.value) == text


def test_arrays_that_are_no_map() -> None:
    with pytest.raises(CallError, match=r"map: has keys that do not fit the values; got \(\(2,\), \(3,\)\)"):
        unpack_map(np.arange(2), np.arange(3))
    with pytest.raises(CallError, match="map: is another number of arrays; got 1, expected 2 to 4"):
        unpack_map(np.arange(2))


def test_maps_are_no_tensor(register: Callable[..., None]) -> None:
    register([1, 2, 3])
    text = INTEGERS.replace("Identity(z)", "Neg(z)")
    with pytest.raises(FrontendError, match="needs `z` as a tensor; got a sequence of maps"):
        byoc_core.from_onnx(onnx.parser.parse_model(text))


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(CallError, match=r"have keys that do not fit the values; got \(\(2,\), \(2, 3\)\)"):
        unpack_maps(np.arange(2), X)
    with pytest.raises(CallError, match="are another number of arrays; got 1, expected 2 or 3"):
        unpack_maps(X)
