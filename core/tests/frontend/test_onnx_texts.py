"""ONNX's TfIdfVectorizer, and chains of operators on texts, beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import FrontendError
from onnx import TensorProto, helper

WORDS = ["a", "b", "c", "d\u00e9", "", "#"]


def _model(dtype: int, rank: int, **attrs: Any) -> onnx.ModelProto:
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], "v", **attrs)
    x = helper.make_tensor_value_info("x", dtype, [f"n{axis}" for axis in range(rank)])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _run_onnxruntime(model: onnx.ModelProto, x: npt.NDArray[Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


GRAMS: dict[str, Any] = {
    "ngram_counts": [0, 3, 7],
    "ngram_indexes": [0, 3, 2, 1, 4, 7, 6],  # three single items, two pairs, two triples
}
POOL = [0, 1, 3, 0, 1, 2, 2, 0, 1, 0, 2, 2, 1]
WEIGHTS = [0.5, 2.0, -1.0, 0.1, 3.0, 1.5, 0.25]


@pytest.mark.parametrize("dtype", [TensorProto.INT32, TensorProto.INT64, TensorProto.STRING])
@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("lengths", [(1, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("max_skip", [0, 4])
def test_counts_are_those_of_onnxruntime(dtype: int, mode: str, lengths: tuple[int, int], max_skip: int) -> None:
    rng = np.random.default_rng(max_skip)
    attrs = {**GRAMS, "mode": mode, "min_gram_length": lengths[0], "max_gram_length": lengths[1]}
    attrs["max_skip_count"] = max_skip
    if dtype == TensorProto.STRING:
        attrs["pool_strings"] = [WORDS[number] for number in POOL]
    else:
        attrs["pool_int64s"] = POOL
    for weights in ({}, {"weights": WEIGHTS}) if mode != "TF" else ({},):
        for shape in ((3, 5), (6,)):
            x: npt.NDArray[Any] = rng.integers(0, 5, shape)
            x = np.array(WORDS, object)[x] if dtype == TensorProto.STRING else x.astype(f"int{32 << (dtype == 7)}")
            model = _model(dtype, len(shape), **attrs, **weights)
            (found,) = onnx_backend.prepare(model, backends=[]).run([x])
            expected = _run_onnxruntime(model, x)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_array_equal(found, expected)


def _texts(**attrs: Any) -> onnx.ModelProto:
    """Return a pipeline of texts as exported by skl2onnx."""
    nodes = [
        helper.make_node("StringNormalizer", ["x"], ["n"], case_change_action="LOWER", locale="C"),
        helper.make_node(
            "Tokenizer", ["n"], ["t"], domain="com.microsoft", mark=0, mincharnum=1, pad_value="#", tokenexp="[a-z]+"
        ),
        helper.make_node("TfIdfVectorizer", ["t"], ["y"], **attrs),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.STRING, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=9)


@pytest.mark.parametrize("expression", ["[a-z]+", "a|bc"])
def test_a_pipeline_is_a_single_op_and_needs_no_other_package(expression: str) -> None:
    pytest.importorskip("byoc_mlops")  # imports the tokenizer
    attrs = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "mode": "TF"}
    model = _texts(
        **attrs, ngram_counts=[0, 2], ngram_indexes=[0, 1, 2, 3], pool_strings=["a", "bc", "a", "bc", "#", "#"]
    )
    model.graph.node[1].attribute[3].s = expression.encode()
    assert model.graph.node[1].attribute[3].name == "tokenexp"
    x = np.array(["A bc,a", "", "BC a bc", "z"], object)
    executable = byoc_core.build(byoc_core.from_onnx(model), backends=[])
    assert [row["op"] for row in executable.report_data["ops"]] == ["strings.ngram_counts"]
    found = byoc_core.Session(executable.to_bytes(), allow_native=True).run(None, {"x": x})[0]
    np.testing.assert_array_equal(found, _run_onnxruntime(model, x))


PLAIN: dict[str, Any] = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"mode": "X"}, "attribute `mode` is unknown; got X, expected TF, IDF, TFIDF"),
        ({"min_gram_length": 0}, "has lengths or skips of n-grams out of range; got (0, 1, 0)"),
        ({"max_skip_count": -1}, "has lengths or skips of n-grams out of range; got (1, 1, -1)"),
        ({"ngram_indexes": [-1]}, "attribute `ngram_indexes` has no columns; got (-1,), expected columns of 0 or more"),
        ({"ngram_indexes": [0]}, "attribute `ngram_indexes` has the wrong size; got 1"),
        ({"ngram_counts": [3]}, "attribute `ngram_counts` does not fit the pool; got (3,), expected rising positions"),
        ({"ngram_counts": [0, 1]}, "attribute `ngram_counts` does not fit the pool; got (0, 1), expected 2-grams"),
        ({"mode": "IDF", "weights": [1.0]}, "attribute `weights` has the wrong size; got 1, expected 2"),
        (
            {"mode": "IDF", "weights": [1.0, 2.0], "ngram_indexes": [0, 0]},
            "attribute `weights` has several weights for a column",
        ),
    ],
)
def test_malformed_nodes(attrs: dict[str, Any], message: str) -> None:
    given = {**PLAIN, "ngram_counts": [0], "ngram_indexes": [0, 1], "pool_int64s": [4, 5], **attrs}
    with pytest.raises(FrontendError) as caught:
        byoc_core.from_onnx(_model(TensorProto.INT64, 1, **given))
    assert message in str(caught.value)


def test_three_axes_are_refused() -> None:
    attrs = {**PLAIN, "ngram_counts": [0], "ngram_indexes": [0], "pool_int64s": [4]}
    with pytest.raises(FrontendError, match=r"needs another rank"):
        byoc_core.from_onnx(_model(TensorProto.INT64, 3, **attrs))
