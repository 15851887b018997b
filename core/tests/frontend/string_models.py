"""Models of strings, their oracles, and the comparison of strings, lists and absent values.

The evaluator of the package inserts at the end of a list one place too early, runs no round of a loop without a
condition, and has no slices along other axes; there ONNX Runtime or a list is the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import byoc_core
import numpy as np
import onnx
import onnxruntime
from byoc_core import onnx_backend
from byoc_core import script as R
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.verifier import verify
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

__all__ = ["TENSORS", "TEXTS", "assert_same", "by_onnxruntime", "by_reference", "check", "draw_texts", "parse"]


def draw_texts(*shape: int, word: str = "wörd") -> Any:
    """Return different strings: the first empty, the others of different numbers of bytes."""
    count = int(np.prod(shape))
    return np.array([f"{word * (index % 3)}{index or ''}" for index in range(count)], object).reshape(shape)


TEXTS = helper.make_tensor_type_proto(TensorProto.STRING, ["n", "m"])
TENSORS = [draw_texts(2, 3), draw_texts(1, 3, word="日本"), draw_texts(4, 3, word="")]


def parse(graph: str, opset: int = 20) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {graph}')


def assert_same(result: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert isinstance(result, list)
        assert len(result) == len(expected)
        for item, other in zip(result, expected, strict=True):
            assert_same(item, other)
    elif expected is None:
        assert result is None
    else:
        array = np.asarray(expected)
        assert result.shape == array.shape
        assert (result.dtype == object) == (array.dtype.kind in "OU")
        assert result.tolist() == array.tolist()


def by_reference(model: onnx.ModelProto, feeds: dict[str, Any]) -> Sequence[Any]:
    return list(ReferenceEvaluator(model).run(None, feeds))


def by_onnxruntime(model: onnx.ModelProto, feeds: dict[str, Any]) -> Sequence[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def check(
    graph: str | onnx.ModelProto,
    feeds: dict[str, Any],
    oracle: Callable[[onnx.ModelProto, dict[str, Any]], Sequence[Any]] = by_reference,
) -> byoc_core.IRModule:
    """Check the results of a model on the host, its IR, and its printed form."""
    model = parse(graph) if isinstance(graph, str) else graph
    module = from_onnx(model)
    verify(module)
    assert R.parse(str(module), constants=module.constants) == module
    results = onnx_backend.prepare(model, backends=[]).run(feeds)
    for result, expected in zip(results, oracle(model, feeds), strict=True):
        assert_same(result, expected)
    return module
