"""Conditions and numbers of rounds with a single element and any rank, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import byoc_core
import numpy as np
import onnx
import pytest
from byoc_core.errors import ByocError
from byoc_core.frontend.onnx import from_onnx
from onnx import parser

from core.tests.frontend.conftest import run_onnxruntime

_SHAPES = {"": (), "[1]": (1,), "[n]": (1,), "[1, 1]": (1, 1), "[n, m]": (1, 1)}
_BRANCHES = "then_branch = t () => (float[3] a) { a = Neg(x) }, else_branch = e () => (float[3] b) { b = Identity(x) }"


def _model(graph: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]> {graph}')


def _check(text: str, feeds: dict[str, Any]) -> None:
    model = _model(text)
    run = byoc_core.VirtualMachine(byoc_core.build(from_onnx(model), []))["main"]
    results = run(*feeds.values())
    expected = run_onnxruntime(model, feeds)
    for result, wanted in zip(results if isinstance(results, tuple) else (results,), expected, strict=True):
        np.testing.assert_array_equal(result, wanted, strict=True)


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("axes", _SHAPES)
def test_condition_of_a_branch(axes: str, condition: bool) -> None:
    x = np.arange(3, dtype=np.float32)
    text = f"g (bool{axes} c, float[3] x) => (float[3] y) {{ y = If(c) <{_BRANCHES}> }}"
    _check(text, {"c": np.full(_SHAPES[axes], condition), "x": x})


@pytest.mark.parametrize("values", [[0, 0], [0, 1], [1, 1]])
def test_condition_of_a_branch_of_a_computed_size(values: list[int]) -> None:
    text = f"g (int64[n] v, float[3] x) => (float[3] y) {{ k = Unique(v) c = Cast<to = 9>(k) y = If(c) <{_BRANCHES}> }}"
    v, x = np.array(values), np.arange(3, dtype=np.float32)
    if values != [0, 1]:
        _check(text, {"v": v, "x": x})
        return
    run = byoc_core.VirtualMachine(byoc_core.build(from_onnx(_model(text)), []))["main"]
    with pytest.raises(ByocError, match="2"):
        run(v, x)


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("axes", ["", "[1]", "[n]"])
def test_conditions_and_number_of_rounds_of_a_loop(axes: str, starts: bool) -> None:
    """The condition of the body has a size that the body computes."""
    text = f"""g (int64{axes} m, bool{axes} c, float[2] x) => (float[2] y) {{ y = Loop(m, c, x) <
        body = b (int64 i, bool{axes} c_in, float[2] v) => (bool c_out, float[2] w) {{
            w = Add(v, x) zero = Constant<value = int64[1] {{0}}>() one = Constant<value = int64[1] {{1}}>()
            first = Slice(w, zero, one, zero) limit = Constant<value = float {{5}}>()
            small = Less(first, limit) k = Unique(first) s = Shape(k) c_out = Reshape(small, s) }}> }}"""
    shape = _SHAPES[axes]
    for rounds in (0, 2, 9):
        feeds = {"m": np.full(shape, rounds), "c": np.full(shape, starts), "x": np.array([1, -2], np.float32)}
        _check(text, feeds)


@pytest.mark.parametrize("is_declared", [True, False])
@pytest.mark.parametrize("rounds", ["m", "three"])
def test_indicators_with_an_axis(rounds: str, is_declared: bool, check_model: Callable[..., object]) -> None:
    """A body's number of the round and condition may be vectors of one element.

    A condition without a declared shape has the axes of the condition around.
    """
    text = f"""g (int64[1] m, float[2] x) => (float[2] y, float[k, 1] z) {{
        three = Constant<value = int64[1] {{3}}>() true = Constant<value = bool[1] {{1}}>()
        y, z = Loop({rounds}, true, x) <
        body = b (int64[1] i, bool[1] c_in, float[2] v) => (bool[1] c_out, float[2] w, float[1] s) {{
            zero = Constant<value = int64[1] {{0}}>() c_out = Identity(c_in)
            flag = Squeeze(c_in, zero) k = Squeeze(i, zero) f = Cast<to = 1>(k) g = Cast<to = 1>(flag)
            t = Add(v, f) w = Add(t, g) s = Cast<to = 1>(i) }}> }}"""
    model = _model(text)
    if not is_declared:
        loop = next(node for node in model.graph.node if node.op_type == "Loop")
        loop.attribute[0].g.input[1].type.tensor_type.ClearField("shape")
    check_model(model, {"m": np.array([2]), "x": np.array([1, -2], np.float32)})
