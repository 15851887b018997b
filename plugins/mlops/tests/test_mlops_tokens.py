"""The tokenizer of ONNX Runtime, beside ONNX Runtime, and its ops."""

from __future__ import annotations

from typing import Any

import byoc_core
import numpy as np
import onnx
import onnxruntime
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import FrontendError
from onnx import helper

Strings = np.ndarray[Any, np.dtype[np.object_]]


def _model(rank: int, *before: onnx.NodeProto, **attrs: Any) -> onnx.ModelProto:
    given = {"mark": 0, "mincharnum": 1, "pad_value": "#", **attrs}
    node = helper.make_node(
        "Tokenizer", [before[-1].output[0] if before else "x"], ["y"], "t", domain="com.microsoft", **given
    )
    text = onnx.TensorProto.STRING
    inputs = [helper.make_tensor_value_info("x", text, [f"n{axis}" for axis in range(rank)])]
    outputs = [helper.make_tensor_value_info("y", text, [f"m{axis}" for axis in range(rank + 1)])]
    graph = helper.make_graph([*before, node], "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _run_onnxruntime(model: onnx.ModelProto, x: Strings) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


EXPRESSIONS = (
    *({"tokenexp": text} for text in ("[a-z]+", ".", "a*", r"\w+", "[^,]+")),
    *({"separators": texts} for texts in ([","], [",", ";"], [" ", "[,;]+"], ["a", "^b"], ["b$"], [""])),
)


@pytest.mark.parametrize("attrs", EXPRESSIONS, ids=str)
@pytest.mark.parametrize("least", [1, 2, 3])
@pytest.mark.parametrize("mark", [0, 1])
def test_tokens_are_those_of_onnxruntime(attrs: dict[str, Any], least: int, mark: int) -> None:
    if attrs in ({"separators": [""]}, {"tokenexp": "."}) and least > 1:
        return  # refused by ONNX Runtime
    rng = np.random.default_rng(0)
    for shape in ((4,), (2, 3), (1, 1)):
        letters = [rng.choice(list("ab\u00e9,; _1Z\n"), rng.integers(8)) for _ in range(int(np.prod(shape)))]
        x = np.array(["".join(text) for text in letters], object).reshape(shape)
        model = _model(len(shape), mincharnum=least, mark=mark, pad_value="pad", **attrs)
        (found,) = onnx_backend.prepare(model).run([x])
        expected = _run_onnxruntime(model, x)
        assert (found.shape, found.tolist()) == (expected.shape, expected.tolist())


@pytest.mark.parametrize("backends", [[], ["mlops"]])
def test_a_pipeline_runs_on_the_host(backends: list[str], tmp_path: Any) -> None:
    lower = helper.make_node("StringNormalizer", ["x"], ["z"], case_change_action="LOWER", locale="C")
    model = _model(1, lower, tokenexp="[a-z]+")
    byoc_core.build(byoc_core.from_onnx(model), backends).save(tmp_path / "model.byoc")
    machine = onnx_backend.PreparedModel(byoc_core.load(tmp_path / "model.byoc"))
    (found,) = machine.run([np.array(["Ab c", "", "D"], object)])
    assert found.tolist() == [["ab", "c"], ["#", "#"], ["d", "#"]]


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({}, "has no expressions of tokens or separators"),
        ({"separators": ["", "b"]}, "has no expressions of tokens or separators; got ('', 'b')"),
        ({"tokenexp": "("}, "has a malformed regular expression"),
    ],
)
def test_malformed_nodes(attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(FrontendError) as caught:
        byoc_core.from_onnx(_model(1, **attrs))
    assert message in str(caught.value)


def test_other_ranks_are_refused() -> None:
    with pytest.raises(FrontendError, match="divides neither a vector nor a matrix"):
        byoc_core.from_onnx(_model(3, tokenexp="a"))
