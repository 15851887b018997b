"""Functions of a model, and ops defined by the standard through other ops: imported in the place of the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from byoc_core.frontend.onnx import from_onnx
from byoc_core.ir.module import IRModule
from onnx import parser

from core.tests.frontend.conftest import Array

Check = Callable[..., IRModule]


def _model(graph: str, *functions: str, opset: int = 17, function_opset: int = 17) -> onnx.ModelProto:
    head = f'<domain: "local", opset_import: ["" : {function_opset}, "local" : 1]>'
    texts = " ".join(f"{head} {function}" for function in functions)
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "local" : 1]> {graph} {texts}')


def _ints(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def _ops(module: IRModule) -> list[str]:
    return [binding.op.name for binding in module["main"].walk()]


def test_names_inside_are_apart_from_those_of_the_caller(check_model: Check) -> None:
    graph = "g (float[n] x, float[n] t) => (float[n] y) { u = local.F(t, x) v = local.F(u, t) y = Add(v, u) }"
    module = check_model(_model(graph, "F (x, u) => (t) { y = Neg(x) t = Mul(y, u) }"), {"x": _ints(3), "t": _ints(3)})
    assert _ops(module) == ["negative", "multiply", "negative", "multiply", "add"]


def test_functions_call_functions_inside_graphs(check_model: Check) -> None:
    graph = """g (float[n] x, int64 m) => (float[n] y) { y = Loop(m, , x) <
        body = b (int64 i, bool c_in, float[n] v) => (bool c_out, float[n] w) {
            c_out = Identity(c_in) w = local.F(v, x) }> }"""
    functions = ["F (a, b) => (r) { c = local.G(a) r = Add(c, b) }", "G (a) => (r) { r = Neg(a) }"]
    model = _model(graph, *functions)
    module = check_model(model, {"x": _ints(3), "m": np.array(3)})
    assert _ops(module) == ["negative", "add", "loop"]
    (loop,) = module["main"].bindings
    assert [str(b.location) for b in loop.regions[0].bindings] == ["ONNX model:y/w/c/r", "ONNX model:y/w/r"]


@pytest.mark.parametrize("flag", [True, False])
def test_graphs_inside_functions_see_the_function_s_names(flag: bool, check_model: Check) -> None:
    graph = "g (float[n] x, bool c) => (float[n] y) { h = Neg(x) y = local.F(h, c) }"
    function = """F (x, c) => (r) { t = Mul(x, x) r = If(c) <
        then_branch = p () => (a) { a = Add(t, x) }, else_branch = e () => (a) { a = Sub(t, x) }> }"""
    check_model(_model(graph, function), {"x": _ints(3), "c": np.array(flag)})


def test_attributes_are_given_or_have_a_default_or_are_left_out(check_model: Check) -> None:
    """``Softmax`` without the attribute takes the last axis."""
    graph = "g (float[2, 3, 4] x) => (a, b, c) { a = local.F<axis = 0>(x) b = local.F(x) c = local.F<low = 1.0>(x) }"
    function = """F<axis, low : float = 2.0>(x) => (r) { s = Softmax<axis : int = @axis>(x)
        k = Constant<value_float : float = @low>() r = Mul(s, k) }"""
    module = check_model(_model(graph, function), {"x": _ints(2, 3, 4)}, exact=False)
    softmax = [binding.attrs["axis"] for binding in module["main"].bindings if binding.op.name == "nn.softmax"]
    assert softmax == [0, 2, 2]


def test_attributes_reach_graphs_inside_a_function(check_model: Check) -> None:
    graph = "g (float[2, 3] x, bool c) => (float[p, q] y) { y = local.F<axis = 1>(x, c) }"
    function = """F<axis>(x, c) => (r) { r = If(c) <
        then_branch = p () => (a) { a = Concat<axis : int = @axis>(x, x) },
        else_branch = e () => (a) { n = Neg(x) a = Concat<axis : int = @axis>(n, x) }> }"""
    for flag in (True, False):
        check_model(_model(graph, function), {"x": _ints(2, 3), "c": np.array(flag)})


def test_inputs_that_a_call_leaves_out_are_left_out_inside(check_model: Check) -> None:
    graph = """g (float[n] x) => (a, b, c) <float low = {0}, float high = {2}> {
        a = local.F(x, low, high) b = local.F(x, , high) c = local.F(x) }"""
    function = "F (x, low, high) => (r) { r = Clip(x, low, high) }"
    module = check_model(_model(graph, function), {"x": _ints(5)})
    assert [(b.attrs["min"], b.attrs["max"]) for b in module["main"].bindings if b.op.name == "clip"] == [
        (0.0, 2.0),
        (None, 2.0),
        (None, None),
    ]


def test_a_function_has_the_operator_set_it_names(run: Callable[..., Sequence[Array]]) -> None:
    """Before operator set 13, ``Squeeze`` has the axes as attribute; the oracle accepts no mixture of both."""
    mixed = _model(
        "g (float[3, 1] x) => (y) { y = local.F(x) }", "F (x) => (r) { r = Squeeze<axes = [1]>(x) }", function_opset=11
    )
    x = _ints(3, 1)
    (result,) = run(from_onnx(mixed), {"x": x})
    np.testing.assert_array_equal(result, x[:, 0])


def test_what_is_known_stays_known_through_a_call(check_model: Check) -> None:
    graph = "g (float[n, 4] x) => (float[p, q] y) <int64[2] shape = {4, -1}> { y = local.F(x, shape) }"
    module = check_model(_model(graph, "F (x, s) => (r) { r = Reshape(x, s) }"), {"x": _ints(3, 4)})
    assert _ops(module) == ["reshape"]


def test_an_output_may_be_left_out(run: Callable[..., Sequence[Array]]) -> None:
    """The oracle accepts no call with a missing output."""
    graph = "g (float[n] x) => (float[n] y) { y = local.F(x) }"
    module = from_onnx(_model(graph, "F (x) => (a, b) { a = Neg(x) b = Exp(a) }"))
    np.testing.assert_array_equal(run(module, {"x": _ints(3)})[0], -_ints(3))


_STANDARD: list[tuple[str, int, str, Mapping[str, Any]]] = [
    (
        "ReduceL2",
        18,
        """g (float[n, 4] x) => (float[n, 1] y, float z) <int64[1] axes = {1}> {
            y = ReduceL2(x, axes) z = ReduceL2<keepdims = 0>(x) }""",
        {"x": _ints(3, 4)},
    ),
    (
        "ReduceLogSum",
        26,
        """g (float[n, 4] x) => (float[n, 4] y, float[1, 1] z) { p = Abs(x)
            y = ReduceLogSum<noop_with_empty_axes = 1>(p) z = ReduceLogSum(p) }""",
        {"x": _ints(3, 4) + np.float32(0.5)},
    ),
    (
        "SequenceMap",
        17,
        """g (float[n] a, float[n] b, float[n] z) => (y) { s = SequenceConstruct(a, b)
        t = SequenceMap(s, z) <body = f (float[n] u, float[n] v) => (float[n] w) { p = Neg(u) w = Add(p, v) }>
        y = ConcatFromSequence<axis = 0>(t) }""",
        {"a": _ints(3), "b": _ints(3, seed=1), "z": _ints(3, seed=2)},
    ),
]


@pytest.mark.parametrize(("opset", "graph", "feeds"), [c[1:] for c in _STANDARD], ids=[c[0] for c in _STANDARD])
def test_ops_that_the_standard_defines_by_others(
    opset: int, graph: str, feeds: Mapping[str, Any], check_model: Check
) -> None:
    check_model(_model(graph, opset=opset), feeds, exact=False)


def test_an_op_newer_than_the_oracle(run: Callable[..., Sequence[Array]]) -> None:
    """``SwiGLU(a, b) = a * sigmoid(alpha * a) * b``; alpha is 1 by default. At most eight operations round."""
    a, b = _ints(3, 4).astype(np.float64), _ints(3, 4, seed=1).astype(np.float64)
    for attributes, alpha in (("", 1.0), ("<alpha = 0.5>", 0.5)):
        graph = f"g (double[n, 4] a, double[n, 4] b) => (y) {{ y = SwiGLU {attributes}(a, b) }}"
        (result,) = run(from_onnx(_model(graph, opset=28)), {"a": a, "b": b})
        np.testing.assert_allclose(result, a / (1 + np.exp(-alpha * a)) * b, rtol=8 * np.finfo(np.float64).eps)
