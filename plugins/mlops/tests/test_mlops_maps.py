"""Operators on maps, beside ONNX Runtime and dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx
import onnxruntime
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import CallError, ExecutionError, FrontendError
from byoc_mlops.importers import DOMAIN
from onnx import TensorProto, helper

TYPES = {int: TensorProto.INT64, float: TensorProto.FLOAT, str: TensorProto.STRING, np.float64: TensorProto.DOUBLE}


def _model(op_type: str, key: type, value: type, **attrs: Any) -> onnx.ModelProto:
    """Return a model of a node with a map as input."""
    element = helper.make_tensor_type_proto(TYPES[value], [])
    map_type = onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=TYPES[key], value_type=element))
    node = helper.make_node(op_type, ["x"], ["y"], name="the_node", domain=DOMAIN, **attrs)
    target = {"TO_FLOAT": float, "TO_INT64": int, "TO_STRING": str}.get(attrs.get("cast_to", ""), value)
    output = helper.make_value_info("y", helper.make_tensor_type_proto(TYPES[target], None))
    graph = helper.make_graph([node], "g", [helper.make_value_info("x", map_type)], [output])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _check(model: onnx.ModelProto, mapping: Mapping[Any, Any], expected: Sequence[Any]) -> None:
    """Check the row of results, on the host and on the backend of the package, and in ONNX Runtime.

    The Python interface of ONNX Runtime takes only maps to float32.
    """
    value = model.graph.input[0].type.map_type.value_type.tensor_type.elem_type
    peers = [_run_onnxruntime(model, mapping)] if value == TensorProto.FLOAT else []
    kind = model.graph.output[0].type.tensor_type.elem_type
    dtype = object if kind == TensorProto.STRING else helper.tensor_dtype_to_np_dtype(kind)
    for backends in ([], ["mlops"]):
        (found,) = onnx_backend.prepare(model, backends=backends).run({"x": mapping})
        for array in (found, *peers):
            assert (array.shape, array.dtype) == ((1, len(expected)), np.dtype(dtype))
            assert array.tolist() == [list(expected)]


def _run_onnxruntime(model: onnx.ModelProto, mapping: Mapping[Any, Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": dict(mapping)})[0]


WORDS = ["b", "", "日本", "a"]


@pytest.mark.parametrize("mapping", [{"a": 1.5, "b": -2.0}, {"": 3.0, "日本": 4.0, "a": 0.5, "b": 1.0}, {"a": 1.0}])
@pytest.mark.parametrize("value", [float, np.float64, int])
def test_texts_are_looked_up_in_a_vocabulary(mapping: dict[str, float], value: type) -> None:
    typed = {key: int(item) if value is int else item for key, item in mapping.items()}
    _check(_model("DictVectorizer", str, value, string_vocabulary=WORDS), typed, [typed.get(word, 0) for word in WORDS])


@pytest.mark.parametrize("mapping", [{7: 1.5, -3: 2.0}, {7: 1.0, -3: 2.0, 0: 4.0}])
def test_integers_are_looked_up_in_a_vocabulary(mapping: dict[int, float]) -> None:
    model = _model("DictVectorizer", int, float, int64_vocabulary=[0, 7, -3])
    _check(model, mapping, [mapping.get(key, 0) for key in (0, 7, -3)])


def test_texts_of_a_vocabulary() -> None:
    model = _model("DictVectorizer", int, str, int64_vocabulary=[5, 1, 9])
    _check(model, {9: "neun", 5: "fünf"}, ["fünf", "", "neun"])


@pytest.mark.parametrize("cast_to", ["TO_FLOAT", "TO_INT64"])
@pytest.mark.parametrize("attrs", [{}, {"map_form": "SPARSE", "max_map": 6}])
@pytest.mark.parametrize("mapping", [{3: 1.5, 0: -2.5, 4: 8.0}, {5: 1.0}])
def test_values_come_in_the_order_of_keys(cast_to: str, attrs: dict[str, Any], mapping: dict[int, float]) -> None:
    places = range(6) if attrs else sorted(mapping)
    cast = int if cast_to == "TO_INT64" else float
    model = _model("CastMap", int, float, cast_to=cast_to, **attrs)
    _check(model, mapping, [cast(mapping.get(key, 0)) for key in places])


@pytest.mark.parametrize(("cast_to", "cast"), [("TO_FLOAT", float), ("TO_INT64", int), ("TO_STRING", str)])
@pytest.mark.parametrize("attrs", [{}, {"map_form": "SPARSE", "max_map": 6}])
def test_texts_come_in_the_order_of_keys(cast_to: str, cast: type, attrs: dict[str, Any]) -> None:
    mapping = {3: "15", 0: "-2", 4: "8"}
    places = range(6) if attrs else sorted(mapping)
    model = _model("CastMap", int, str, cast_to=cast_to, **attrs)
    _check(model, mapping, [cast(mapping[key]) if key in mapping else cast() for key in places])


def test_numbers_become_texts() -> None:
    """As by the operator Cast; ONNX Runtime writes six digits behind the point."""
    model = _model("CastMap", int, float, cast_to="TO_STRING")
    (found,) = onnx_backend.prepare(model, backends=[]).run({"x": {2: 1.5, 1: -3.0}})
    assert [float(text) for text in found[0]] == [-3.0, 1.5]


@pytest.mark.parametrize("key", [-1, 3])
def test_a_key_without_a_place_is_an_error_of_the_call(key: int) -> None:
    model = _model("CastMap", int, float, cast_to="TO_FLOAT", map_form="SPARSE", max_map=3)
    prepared = onnx_backend.prepare(model, backends=[])
    with pytest.raises(ExecutionError, match="an index lies outside axis 0"):
        prepared.run({"x": {key: 1.0}})


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (
            _model("DictVectorizer", str, float, int64_vocabulary=[1]),
            "has a map of another kind of keys than `int64_vocabulary`; got strings",
        ),
        (
            _model("DictVectorizer", int, float, string_vocabulary=["a"]),
            "has a map of another kind of keys than `string_vocabulary`; got integers",
        ),
        (_model("DictVectorizer", int, float), "has not exactly one vocabulary; got 0"),
        (_model("CastMap", str, float), "has a map of another kind of keys than integers; got strings"),
        (
            _model("CastMap", int, float, cast_to="TO_BOOL"),
            "attribute `cast_to` is unknown; got TO_BOOL, expected TO_FLOAT or TO_INT64 or TO_STRING",
        ),
        (
            _model("CastMap", int, float, map_form="LOOSE"),
            "attribute `map_form` is unknown; got LOOSE, expected DENSE or SPARSE",
        ),
        (
            _model("CastMap", int, float, map_form="SPARSE", max_map=0),
            "attribute `max_map` is not positive; got 0",
        ),
    ],
)
def test_what_is_refused(model: onnx.ModelProto, text: str) -> None:
    with pytest.raises(FrontendError) as caught:
        byoc_core.from_onnx(model)
    assert str(caught.value) == f"ONNX model, node `the_node` ({model.graph.node[0].op_type}): {text}"


def test_a_tensor_is_no_map() -> None:
    model = _model("CastMap", int, float)
    model.graph.input[0].type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, [2]))
    with pytest.raises(FrontendError, match=r"node `the_node` \(CastMap\): needs `x` as a map"):
        byoc_core.from_onnx(model)


def test_a_session_takes_maps(tmp_path: Path) -> None:
    model = _model("DictVectorizer", str, float, string_vocabulary=WORDS)
    executable = byoc_core.build(byoc_core.from_onnx(model), ["mlops"])
    executable.save(tmp_path / "model.byoc")
    session = byoc_core.Session(tmp_path / "model.byoc")
    (x,) = session.inputs
    assert (x.form, x.dtype, x.shape, str(x)) == ("map by string", "float32", None, "x: map by string of float32")
    assert session({"a": 2.0, "日本": 1})["y"].tolist() == [[0, 0, 1, 2]]
    session.warm_up()
    for wrong, message in (
        ([1.0], "input `x`: is not a map; got list"),
        ({1: 2.0}, r"input `x`: map has keys of another kind; got \[1\], expected string"),
        ({"a": "b"}, r"input `x`: map has values of another kind; got \['b'\], expected float32"),
    ):
        with pytest.raises(CallError, match=message):
            session(wrong)
