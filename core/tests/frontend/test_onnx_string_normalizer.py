"""ONNX's StringNormalizer: the results of ONNX Runtime, not those of the package ``onnx``."""

from __future__ import annotations

import locale
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from byoc_core import onnx_backend
from byoc_core.errors import FrontendError
from byoc_core.frontend.onnx import from_onnx

WORDS = ["Monday", "", "\u00c9t\u00e9 and monday", "tuesday", "MONDAY", "and"]


def _model(rank: int, **attrs: Any) -> onnx.ModelProto:
    shape: list[str | int] = ["n"] if rank == 1 else [1, "n"]
    node = onnx.helper.make_node("StringNormalizer", ["x"], ["y"], locale="C", **attrs)
    types = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, shape)]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.STRING, [f"o{i}" for i in range(rank)])]
    graph = onnx.helper.make_graph([node], "g", types, outputs)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("is_case_sensitive", [0, 1])
@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("stopwords", [None, ["monday"], ["Monday", "and", ""], WORDS])
def test_results_are_those_of_onnxruntime(
    rank: int, is_case_sensitive: int, action: str, stopwords: list[str] | None
) -> None:
    words = [word for word in WORDS if word.isascii() or action == "NONE"]  # the locale C knows letters of ASCII
    x = np.array(words, object).reshape((-1,) if rank == 1 else (1, -1))
    attrs: dict[str, Any] = {} if stopwords is None else {"stopwords": stopwords}
    model = _model(rank, case_change_action=action, is_case_sensitive=is_case_sensitive, **attrs)
    before = locale.setlocale(locale.LC_ALL)
    (found,) = onnx_backend.prepare(model, backends=[]).run([x])
    assert locale.setlocale(locale.LC_ALL) == before
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0]
    assert found.tolist() == expected.tolist()


def test_malformed_nodes() -> None:
    model = _model(2)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    with pytest.raises(FrontendError, match=r"needs other strings; got \(2, n\), expected \(C,\) or \(1, C\)"):
        from_onnx(model)
    with pytest.raises(FrontendError, match="has an unknown case; got TITLE, expected NONE, LOWER, UPPER"):
        from_onnx(_model(1, case_change_action="TITLE"))
