"""Labels of text, and maps by label, beside ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import ExecutionError

from plugins.mlops.tests.ml_nodes import node_model, refusal
from plugins.mlops.tests.random_trees import Forest

X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
LABELS = ["low", "h\u00f6her", ""]


def _check(
    op_type: str, inputs: Sequence[Any], num_outputs: int = 1, *, keys: int | None = None, **attrs: Any
) -> list[Any]:
    """Check the results of a node against ONNX Runtime; ``keys`` is the type of keys of maps."""
    import onnxruntime

    strings = [name for name, x in enumerate(inputs) if x.dtype == object]
    model = node_model(op_type, [np.zeros(x.shape) if x.dtype == object else x for x in inputs], num_outputs, **attrs)
    for index in strings:
        model.graph.input[index].type.tensor_type.elem_type = onnx.TensorProto.STRING
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if keys is not None:
        value = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
        maps = onnx.TypeProto(map_type=onnx.TypeProto.Map(key_type=keys, value_type=value))
        model.graph.output[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(maps))
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    peers = session.run(None, {f"i{index}": x for index, x in enumerate(inputs)})
    for declared, peer in zip(model.graph.output, peers, strict=True):
        if isinstance(peer, np.ndarray):
            kind = 8 if peer.dtype == object else onnx.helper.np_dtype_to_tensor_dtype(peer.dtype)
            declared.type.CopyFrom(onnx.helper.make_tensor_type_proto(kind, peer.shape))
    results = list(onnx_backend.prepare(model).run(list(inputs)))
    for result, peer in zip(results, peers, strict=True):
        if isinstance(peer, np.ndarray) and peer.dtype.kind == "f":
            np.testing.assert_allclose(result, peer, rtol=1e-5, atol=1e-6)
        elif isinstance(peer, np.ndarray):
            assert result.tolist() == peer.tolist()
        else:
            assert result == peer
    return results


def test_trees() -> None:
    forest = Forest(1, 3, weights_per_leaf=(3, 3))
    _check("TreeEnsembleClassifier", [forest.samples(9)], 2, classlabels_strings=LABELS, **forest.named("class"))


@pytest.mark.parametrize("count", [1, 3])
def test_linear_models(count: int) -> None:
    attrs = {"coefficients": X.reshape(-1)[: 3 * count].tolist(), "intercepts": [0.1] * count}
    labels, _ = _check("LinearClassifier", [X], 2, classlabels_strings=LABELS[: max(count, 2)], **attrs)
    assert len(set(labels)) > 1


def test_support_vectors() -> None:
    attrs: Mapping[str, Any] = {
        "vectors_per_class": [1, 1],
        "support_vectors": X[:2].reshape(-1).tolist(),
        "coefficients": [1.0, -1.0],
        "rho": [0.1],
        "kernel_type": "LINEAR",
        "kernel_params": [1.0, 0.0, 3.0],
    }
    _check("SVMClassifier", [X], 2, classlabels_strings=["a", "b"], **attrs)


@pytest.mark.parametrize("default", [{}, {"default_string": "none"}])
def test_numbers_become_strings(default: Mapping[str, Any]) -> None:
    x = np.array([[1, 7], [9, 1]], np.int64)
    _check("LabelEncoder", [x], version=2, keys_int64s=[7, 1], values_strings=["seven", "one"], **default)
    _check("LabelEncoder", [x - 1], version=1, classes_strings=["zero", "one"], **default)


def test_strings_become_numbers() -> None:
    x = np.array(["one", "seven", "eight"], object)
    _check("LabelEncoder", [x], version=2, keys_strings=["seven", "one"], values_int64s=[7, 1], default_int64=-5)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3)])
def test_strings_become_other_values(shape: tuple[int, ...]) -> None:
    x = np.array(["one", "", "h\u00f6her"], object).reshape(shape)
    keys: dict[str, Any] = {"keys_strings": ["h\u00f6her", "one", "one"]}
    _check("LabelEncoder", [x], version=2, **keys, values_strings=["a", "\u00e9", "c"], default_string="?")
    _check("LabelEncoder", [x], version=2, **keys, values_floats=[1.5, -2.0, 0.0], default_float=7.0)
    _check("LabelEncoder", [x], version=1, classes_strings=["one", "h\u00f6her"], default_int64=-3)


@pytest.mark.parametrize("shape", [(3,), (3, 1), (1, 3)])
def test_strings_become_rows(shape: tuple[int, ...]) -> None:
    x = np.array(["one", "none", ""], object).reshape(shape)
    _check("OneHotEncoder", [x], version=1, cats_strings=["", "one", "two", "one"], zeros=1)
    known = np.where(x == "none", "two", x)
    _check("OneHotEncoder", [known], version=1, cats_strings=["", "one", "two"], zeros=0)


def test_unknown_strings_are_errors_without_zeros() -> None:
    model = node_model("OneHotEncoder", [np.zeros(1)], 1, version=1, cats_strings=["one"], zeros=0)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    machine = onnx_backend.prepare(model)
    assert machine.run([np.array(["one"], object)])[0].tolist() == [[1.0]]
    with pytest.raises(ExecutionError, match="index"):
        machine.run([np.array(["x"], object)])


def test_chosen_strings() -> None:
    x = np.array([["a", "b", "c"], ["d", "e", ""]], object)
    _check("ArrayFeatureExtractor", [x, np.array([2, 0], np.int64)])
    _check("ArrayFeatureExtractor", [x[0], np.array([[1, 1]], np.int64)])


@pytest.mark.parametrize("x", [X, X[:1], X[0], X[:0]], ids=["rows", "row", "vector", "none"])
def test_maps(x: np.ndarray[Any, Any]) -> None:
    (found,) = _check("ZipMap", [x], keys=onnx.TensorProto.STRING, version=1, classlabels_strings=LABELS)
    assert [list(row) for row in found] == [LABELS] * (len(x) if x.ndim == 2 else 1)
    _check("ZipMap", [x], keys=onnx.TensorProto.INT64, version=1, classlabels_int64s=[4, -1, 0])


def test_labels_that_do_not_fit() -> None:
    expected = "has another number of labels than columns; got 2, expected (3,)"
    assert refusal("ZipMap", [X], classlabels_int64s=[1, 2]) == expected


def test_categories_are_mapped_in_both_directions() -> None:
    attrs: dict[str, Any] = {"cats_strings": ["low", "h\u00f6her", "", "low"], "cats_int64s": [3, -1, 7, 7]}
    words = np.array([["", "low"], ["h\u00f6her", "none"]], object)
    (numbers,) = _check("CategoryMapper", [words], default_int64=-5, default_string="?", **attrs)
    assert numbers.tolist() == [[7, 7], [-1, -5]]  # of equal keys the last counts
    _check("CategoryMapper", [np.array([[7, 3], [2, -1]])], default_string="?", **attrs)
    _check("CategoryMapper", [np.array([7, 0])], **attrs)
    text = refusal("CategoryMapper", [np.array([1])], cats_strings=["a"], cats_int64s=[1, 2])
    assert text == "has different numbers of strings and integers; got 1 and 2"
