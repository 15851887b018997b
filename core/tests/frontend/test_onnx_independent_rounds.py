"""Scans with rounds independent of each other, without a loop, against the reference of the package onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from byoc_core.errors import ByocError
from byoc_core.frontend.onnx import from_onnx
from byoc_core.transform.evaluate import evaluate_function
from hypothesis import given
from hypothesis import strategies as st
from onnx import parser
from onnx.reference import ReferenceEvaluator

_FEWEST = 16  # rounds without a loop

_HEADER = '<ir_version: 10, opset_import: ["" : 18]>'

_ELEMENTWISE = ("Sub(v, w)", "Mul(w, v)", "Add(w, w)", "Max(v, w)", "Sub(w, row)", "Mul(w, half)", "Less(v, w)")
_LATER = ("Abs(a)", "Mul(a, a)", "Neg(a)", "Add(a, w)", "Mul(half, a)", "Sub(a, column)", "Max(a, v, w)")
_LAST = (
    "Identity(b)",
    "ReduceSumSquare <keepdims = 0>(b, last)",
    "ReduceSum <keepdims = 1>(b, last)",
    "ReduceMax <keepdims = 0>(b, both)",
    "ReduceMean <keepdims = 0>(b, first)",
)


def _model(body: str, state: str = "float[3, 5]", rows: str = "float[k, 5]") -> onnx.ModelProto:
    """Return a scan of the rows of ``rows`` with the state ``x``; the body reads ``v`` and ``w``, and returns ``r``."""
    return parser.parse_model(f"""{_HEADER}
    g ({state} x, {rows} rows) => (float y, float y_sum) <
        float[5] row = {{1.0, -2.0, 0.5, 3.0, 4.0}}, float half = {{0.5}}, int64[1] last = {{-1}},
        int64[2] both = {{0, 1}}, int64[1] first = {{0}}, float[1, 1] column = {{2.0}}> {{
        u_last, y = Scan <num_scan_inputs = 1, body = b ({state} v, float[5] w) => ({state} u, float r) {{
            {body} }}>(x, rows)
        y_sum = ReduceSum <keepdims = 0>(u_last) }}""")


def _run(model: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[list[Any], set[str]]:
    """Return the results of an imported model, and the names of its ops."""
    main = from_onnx(model).functions["main"]
    results = evaluate_function(from_onnx(model), "main", [feeds["x"], feeds["rows"]])
    return list(results), {binding.op.name for binding in main.bindings}


@given(
    st.sampled_from(_ELEMENTWISE),
    st.sampled_from(_LATER),
    st.sampled_from(_LAST),
    st.integers(1, 4),
    st.integers(_FEWEST, 2 * _FEWEST),
)
def test_all_rounds_at_once(first: str, later: str, last: str, count: int, length: int) -> None:
    is_bool = first.startswith("Less")
    start = f"c = {first} a = Cast <to = 1>(c)" if is_bool else f"a = {first}"
    model = _model(f"u = Identity(v) {start} d = {later} b = Add(d, v) r = {last}", f"float[{count}, 5]")
    rng = np.random.default_rng(count * 100 + length)
    # Sums of small integers and halves do not round.
    feeds = {
        "x": rng.integers(-4, 5, (count, 5)).astype(np.float32),
        "rows": rng.integers(-4, 5, (length, 5)).astype(np.float32),
    }
    found, names = _run(model, feeds)
    assert "loop" not in names
    expected = ReferenceEvaluator(model).run(None, feeds)
    for actual, wanted in zip(found, expected, strict=True):
        # The division of a mean rounds once, and so does its product with a reciprocal.
        np.testing.assert_allclose(actual, wanted, rtol=2.0**-22 if "Mean" in last else 0.0)


@pytest.mark.parametrize(
    "body",
    [
        "u = Add(v, w) r = Mul(v, w)",  # a round reads results of former rounds
        "u = Identity(v) d = Mul(v, v) r = ReduceSum <keepdims = 0>(d, last)",  # no slice: equal in all rounds
        "u = Identity(v) d = Sub(v, w) r = CumSum(d, one)",  # an op with an axis
    ],
)
def test_other_bodies_are_loops(body: str) -> None:
    model = _model(body)
    if "one" in body:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "one"))
    rng = np.random.default_rng(0)
    feeds = {name: rng.integers(-4, 5, (n, 5)).astype(np.float32) for name, n in (("x", 3), ("rows", 300))}
    found, names = _run(model, feeds)
    assert "loop" in names
    for actual, wanted in zip(found, ReferenceEvaluator(model).run(None, feeds), strict=True):
        np.testing.assert_array_equal(actual, wanted)


_DISTANCE = "u = Identity(v) d = Sub(v, w) r = ReduceSumSquare <keepdims = 0>(d, last)"


def _op_names(model: onnx.ModelProto) -> set[str]:
    return {binding.op.name for binding in from_onnx(model).functions["main"].bindings}


@pytest.mark.parametrize(
    ("state", "rows", "is_loop"),
    [
        ("float[n, 5]", "float[13000, 5]", False),
        ("float[n, 5]", "float[14000, 5]", True),
        ("float[100, 5]", "float[60000, 5]", False),
        ("float[120, 5]", "float[60000, 5]", True),
        ("float[n, 5]", "float[k, 5]", True),
    ],
)
def test_large_values_are_loops(state: str, rows: str, is_loop: bool) -> None:
    """Without a backend fusing the ops, the values of all rounds would lie in memory."""
    assert ("loop" in _op_names(_model(_DISTANCE, state, rows))) == is_loop


def test_sources_of_perhaps_different_lengths_are_a_loop() -> None:
    model = parser.parse_model(f"""{_HEADER}
    g (float[3, 5] x, float[k, 5] a, float[m, 5] c) => (float y) <int64[1] last = {{-1}}> {{
        u_last, y = Scan <num_scan_inputs = 2, body = b (float[3, 5] v, float[5] w, float[5] z)
            => (float[3, 5] u, float r) {{
            u = Identity(v) d = Sub(w, z) e = Mul(d, v) r = ReduceSum <keepdims = 0>(e, last) }}>(x, a, c) }}""")
    assert "loop" in _op_names(model)
    same = onnx.ModelProto.FromString(model.SerializeToString())
    same.graph.input[2].type.tensor_type.shape.dim[0].dim_param = "k"
    assert "loop" not in _op_names(same)
    rng = np.random.default_rng(0)
    counts = (("x", 3), ("a", 20), ("c", 20))
    feeds = {name: rng.integers(-4, 5, (count, 5)).astype(np.float32) for name, count in counts}
    (found,) = evaluate_function(from_onnx(same), "main", [*feeds.values()])
    (expected,) = ReferenceEvaluator(same).run(None, feeds)
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(("inputs", "outputs"), [((), ("u",)), (("v",), ())])
def test_misshapen_copies_are_our_errors(inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
    model = _model(_DISTANCE)
    body = next(attribute.g for attribute in model.graph.node[0].attribute if attribute.name == "body")
    body.node[0].input[:], body.node[0].output[:] = inputs, outputs
    with pytest.raises(ByocError):
        from_onnx(model)


def test_bodies_with_functions_of_the_model_are_loops() -> None:
    """A scan in a function called by a scan would be imported twice, a scan called there four times."""
    model = _model("u = Identity(v) d = Sub(v, w) r = own.twice(d)")
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    node = onnx.helper.make_node("Add", ["a", "a"], ["b"])
    model.functions.append(onnx.helper.make_function("own", "twice", ["a"], ["b"], [node], model.opset_import[:1]))
    assert "loop" in _op_names(model)
