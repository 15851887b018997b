"""Differentiation of whole functions: the emitted ops, random graphs, branches, refusals."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from byoc_core.errors import IRError
from byoc_core.ir import IRModule, Location, TensorType, Value, tensor, verify
from byoc_core.ops import FunctionBuilder, OpDef, default_ops
from byoc_core.transform import Sequential, default_passes, evaluate_function
from byoc_core.transform.gradients import differentiate
from hypothesis import given
from hypothesis import strategies as st

from core.tests.ir_text import parse_main
from core.tests.transform.gradients.differences import check_gradients, gradient_module, separated

Draw = Callable[[st.SearchStrategy[Any]], Any]

PARAMS = 'x: R.Tensor((2, 3), "float64"), y: R.Tensor((3,), "float64")'


def test_the_emitted_ops() -> None:
    module = parse_main(PARAMS, "a = R.multiply(x, y)\nb = R.exp(a)\nc = R.floor(y)\nd = R.add(b, c)\nreturn d")
    wanted = parse_main(
        PARAMS,
        """
        a = R.multiply(x, y)
        b = R.exp(a)
        c = R.floor(y)
        d = R.add(b, c)
        ones = R.broadcast_to(R.const(1.0, "float64"), shape=(2, 3))
        e = R.multiply(ones, b)
        by_x = R.multiply(e, y)
        f = R.multiply(e, x)
        by_y = R.sum(f, axis=(0,), keepdims=True)
        g = R.reshape(by_y, shape=(3,))
        return by_x, g
        """,
    )
    assert gradient_module(module, [0, 1]) == wanted


def test_only_ops_on_the_path_are_pulled_back() -> None:
    """No rule is needed for ops before the variables, without readers, or between constants."""
    module = parse_main(
        PARAMS + ', i: R.Tensor((2,), "int64")',
        """
        a = R.det(R.const([[1.0, 2.0], [3.0, 4.0]], "float64"))
        b = R.take(x, i, axis=0)
        c = R.cumprod(x, axis=0)
        d = R.multiply(b, a)
        return d
        """,
    )
    inputs = [np.ones((2, 3)), np.ones(3), np.array([1, 1])]
    by_x, by_y = evaluate_function(gradient_module(module, [0, 1]), "main", inputs)
    np.testing.assert_allclose(by_x, [[0, 0, 0], [-4, -4, -4]], rtol=1e-15)
    np.testing.assert_array_equal(by_y, [0, 0, 0])


def test_results_that_are_parameters_or_constants() -> None:
    same = parse_main(PARAMS, "return x")
    np.testing.assert_array_equal(
        evaluate_function(gradient_module(same, [0, 1]), "main", [np.zeros((2, 3)), np.zeros(3)])[0], np.ones((2, 3))
    )
    fixed = parse_main(PARAMS, 'a = R.add(R.const(1.0, "float64"), R.const(2.0, "float64"))\nreturn a')
    by_x, by_y = evaluate_function(gradient_module(fixed, [0, 1]), "main", [np.zeros((2, 3)), np.zeros(3)])
    assert not by_x.any()
    assert not by_y.any()


def test_locations_are_those_of_the_ops() -> None:
    fb = FunctionBuilder("main")
    x = fb.param("x", tensor((3,)))
    y = fb.bind("tanh", (x,), {}, location=Location("model.onnx", "the_node")).result
    function = fb.finish(y)
    gradients = differentiate(function, [x], ops=fb.ops, constants=fb.constants)
    assert {str(binding.location) for binding in gradients.bindings} == {"model.onnx:the_node", "None"}
    assert [str(binding.location) for binding in gradients.bindings].count("None") == 1  # the ones


def test_the_function_is_unchanged_and_not_shared() -> None:
    module = parse_main(PARAMS, "a = R.multiply(x, y)\nreturn a")
    text = str(module)
    gradients = gradient_module(module, [0])["main"]
    verify(module.with_function(replace(gradients, name="gradients")))
    assert str(module) == text


UNARY = ("tanh", "sin", "cos", "sigmoid", "nn.softplus", "nn.gelu", "negative", "atan", "erf", "nn.swish", "nn.mish")


class _Graph:
    """A strategy for a function of smooth ops on matrices of a few types."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.fb = FunctionBuilder("main")
        self.values: list[Value] = [
            self.fb.param("x", tensor((2, 3), "float64")),
            self.fb.param("y", tensor((3, 4), "float64")),
            self.fb.param("z", tensor(("n", 3), "float64")),
        ]

    def build(self) -> IRModule:
        for _ in range(self.draw(st.integers(1, 12))):
            value = self.draw(st.sampled_from(self.values))
            step = self.draw(
                st.sampled_from((self.unary, self.binary, self.view, self.reduce, self.norm, self.product))
            )
            self.keep(step(value))
        results = self.draw(st.lists(st.sampled_from(self.values), min_size=1, max_size=3))
        return IRModule({"main": self.fb.finish(*results)}, self.fb.constants)

    def keep(self, value: Value) -> None:
        """Keep a value, limited so sums of products of products stay small."""
        self.values.append(self.fb.bind("tanh", (value,), {}).result)

    def shape(self, value: Value) -> tuple[Any, ...]:
        assert isinstance(value.type, TensorType)
        return value.type.shape or ()

    def unary(self, value: Value) -> Value:
        return self.fb.bind(self.draw(st.sampled_from(UNARY)), (value,), {}).result

    def binary(self, value: Value) -> Value:
        others = [other for other in self.values if other.type == value.type or self.shape(other) in ((), (1, 1))]
        op = self.draw(st.sampled_from(("add", "subtract", "multiply")))
        return self.fb.bind(op, (value, self.draw(st.sampled_from(others))) if others else (value, value), {}).result

    def view(self, value: Value) -> Value:
        shape = self.shape(value)
        kind = self.draw(st.sampled_from(("permute", "flat", "double", "slice")))
        if kind == "permute":
            return self.fb.bind(
                "permute_dims", (value,), {"axes": self.draw(st.permutations(range(len(shape))))}
            ).result
        if kind == "flat":
            return self.fb.bind("reshape", (value,), {"shape": (1, -1)}).result
        if kind == "double" and shape:
            return self.fb.bind(
                "concat", (value, value), {"axis": self.draw(st.sampled_from(range(len(shape))))}
            ).result
        begin = {"axes": (0,), "begin": (1,), "end": (2,), "strides": (1,)} if shape else {}
        return self.fb.bind("strided_slice" if shape else "negative", (value,), begin).result

    def reduce(self, value: Value) -> Value:
        shape = self.shape(value)
        axes = tuple(axis for axis in range(len(shape)) if self.draw(st.booleans()))
        attrs = {"axis": axes, "keepdims": self.draw(st.booleans())}
        return self.fb.bind(self.draw(st.sampled_from(("sum", "logsumexp"))), (value,), attrs).result

    def norm(self, value: Value) -> Value:
        if not self.shape(value):
            return self.unary(value)
        return self.fb.bind(self.draw(st.sampled_from(("nn.softmax", "nn.log_softmax"))), (value,), {"axis": -1}).result

    def product(self, value: Value) -> Value:
        shape = self.shape(value)
        fitting = [
            other for other in self.values if len(self.shape(other)) == 2 and self.shape(other)[:1] == shape[-1:]
        ]
        if len(shape) != 2 or not fitting:
            return self.unary(value)
        return self.fb.bind("matmul", (value, self.draw(st.sampled_from(fitting))), {}).result


@st.composite
def _graphs(draw: Draw) -> IRModule:
    return _Graph(draw).build()


@given(module=_graphs(), rows=st.integers(2, 3))
def test_random_graphs(module: IRModule, rows: int) -> None:
    generator = np.random.default_rng(1)
    inputs = [separated(generator, shape, -0.97, 1.03) for shape in ((2, 3), (3, 4), (rows, 3))]
    check_gradients(verify(module), inputs, generator)


@given(module=_graphs())
def test_the_default_passes_keep_gradients(module: IRModule) -> None:
    generator = np.random.default_rng(1)
    inputs = [separated(generator, shape, -0.97, 1.03) for shape in ((2, 3), (3, 4), (2, 3))]
    (first, *_), main = module["main"].results, module["main"]
    gradients = gradient_module(module.with_function(replace(main, results=(first,))), [0, 1, 2])
    optimised = Sequential(default_passes())(gradients)
    for have, want in zip(
        evaluate_function(optimised, "main", inputs), evaluate_function(gradients, "main", inputs), strict=True
    ):
        np.testing.assert_array_equal(have, want)


BRANCHES = """
@R.region
def then_region(p: R.Tensor((2, 3), "float64"), q: R.Tensor((3,), "float64")):
    a = R.multiply(p, q)
    b = R.sin(a)
    return b, q
@R.region
def else_region(p: R.Tensor((2, 3), "float64"), q: R.Tensor((3,), "float64")):
    a = R.exp(p)
    b = R.tanh(q)
    return a, b
s, t = R.if_(c, x, y, regions=[then_region, else_region])
u = R.add(s, t)
"""


@pytest.mark.parametrize("condition", [True, False])
@pytest.mark.parametrize("result", ["u", "s", "t"])
def test_branches(condition: bool, result: str) -> None:
    module = parse_main(f'c: R.Tensor((), "bool"), {PARAMS}', f"{BRANCHES}return {result}")
    generator = np.random.default_rng(1)
    inputs = [np.array(condition), separated(generator, (2, 3)), separated(generator, (3,))]
    check_gradients(module, inputs, generator)


def test_branches_with_sizes_of_their_own_are_refused() -> None:
    branch = """
@R.region
def {name}(p: R.Tensor((3,), "float64")):
    a = R.as_dynamic(p, axes=(0,), out_types=[R.Tensor(("k",), "float64")])
    return a
"""
    body = f"{branch.format(name='t')}{branch.format(name='e')}s = R.if_(c, y, regions=[t, e])\nz = R.sum(s)\nreturn z"
    module = parse_main(f'c: R.Tensor((), "bool"), {PARAMS}', body)
    with pytest.raises(IRError) as caught:
        gradient_module(module, [2])
    assert str(caught.value) == (
        "op `if` of `line 13`: has no derivative for results of sizes known only inside of the branches"
    )


def _refuse(params: str, body: str, variables: list[int]) -> str:
    with pytest.raises(IRError) as caught:
        gradient_module(parse_main(params, body), variables)
    return re.sub(r" of `line \d+`", "", str(caught.value))


def test_ops_without_a_rule_are_listed() -> None:
    body = "a = R.det(x)\nb = R.cumprod(x, axis=0)\nc = R.det(b)\nd = R.add(a, c)\nreturn d"
    text = _refuse('x: R.Tensor((3, 3), "float64")', body, [0])
    first, last = text.splitlines()
    assert first == "differentiation: meets ops without a derivative; got op `det`, op `cumprod`, op `det`"
    assert last.startswith("Ops with a derivative: abs, acos, acosh, add, ")
    assert ", if, " in last


def test_variants_without_a_derivative() -> None:
    params = 'x: R.Tensor((4,), "float64"), i: R.Tensor((2,), "int64"), u: R.Tensor((2,), "float64")'
    scatter = 'a = R.scatter_elements(x, i, u, reduction="mul")\nreturn a'
    assert _refuse(params, scatter, [0]) == "op `scatter_elements`: has no derivative with the reduction `mul`"
    matrix = 'x: R.Tensor((3, 3), "float64")'
    trace = 'a = R.einsum(x, equation="ii->i")\nreturn a'
    assert _refuse(matrix, trace, [0]) == "op `einsum`: has no derivative by an operand with a repeated axis"
    rotary = ", ".join(
        f'{name}: R.Tensor({shape}, "float64")' for name, shape in (("x", "(1, 2, 3, 4)"), ("c", "(1, 3, 2)"))
    )
    body = "a = R.nn.rotary_embedding(x, c, c)\nreturn a"
    assert _refuse(rotary, body, [1]) == "op `nn.rotary_embedding`: has no derivative by operand `cos`"
    text = _refuse('x: R.Tensor(None, "float64")', "a = R.tanh(x)\nreturn a", [0])
    assert text.startswith("differentiation: needs the rank of a tensor, but the rank is unknown; got ")


def test_an_op_of_the_same_name_has_no_rule() -> None:
    own = replace(default_ops()["tanh"], doc="Another op.")
    fb = FunctionBuilder("main")
    x = fb.param("x", tensor((3,)))
    function = fb.finish(fb.bind(own, (x,), {}).result)
    assert isinstance(own, OpDef)
    with pytest.raises(IRError, match="meets ops without a derivative; got op `tanh`"):
        differentiate(function, [x], ops=fb.ops, constants=fb.constants)


def test_chains_of_gradients() -> None:
    """The third derivative of a power."""
    module = parse_main('x: R.Tensor((), "float64")', 'a = R.power(x, R.const(5.0, "float64"))\nreturn a')
    for _ in range(3):
        module = gradient_module(module, [0])
    (found,) = evaluate_function(module, "main", [np.float64(1.5)])
    assert found == pytest.approx(60 * 1.5**2, rel=1e-15)
