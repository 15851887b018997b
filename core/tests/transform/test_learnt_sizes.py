"""Passes on programs with data-dependent sizes, and on bodies using sizes from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from byoc_core import parse
from byoc_core.ir import Binding, IRModule, Value, tensor, verify
from byoc_core.runtime.module import NDArray
from byoc_core.transform import (
    BindParams,
    CaptureSizes,
    EliminateCommonSubexpressions,
    FoldConstants,
    InferTypes,
    RemoveDeadCode,
    Sequential,
    UniqueNames,
    default_passes,
    evaluate_function,
)
from byoc_core.transform.rewriter import RewriteGraph, rewrite_module

from core.tests.ir_text import check_pass, parse_main

PARAMS = 'c: R.Tensor((), "bool"), x: R.Tensor(("n",), "float32")'
NONZERO = 'R.nonzero({}, out_types=[R.Tensor((1, "{}"), "int64")])'
FOUND = f"a = {NONZERO.format('x', 'k')}\n"
ONES = 'R.const([1.0, 0.0, 2.0], "float32")'


def _same(before: IRModule, after: IRModule, *inputs: NDArray) -> None:
    wanted = evaluate_function(before, "main", inputs)
    for have, want in zip(evaluate_function(after, "main", inputs), wanted, strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)


@pytest.fixture(name="function")
def _function() -> Callable[[str], IRModule]:
    """Parse and verify a function with the usual parameters."""
    return lambda body: verify(parse_main(PARAMS, body))


def test_equal_ops_of_different_sizes_are_two(function: Callable[[str], IRModule]) -> None:
    module = function(f"a = {NONZERO.format('x', 'k')}\nb = {NONZERO.format('x', 'j')}\nreturn a, b")
    assert EliminateCommonSubexpressions()(module) is module


def test_an_op_stays_whose_size_is_needed(function: Callable[[str], IRModule]) -> None:
    needed = function(FOUND + "b = R.broadcast_to(x, shape=('k', 'n'))\nreturn b")
    assert RemoveDeadCode()(needed) is needed
    x = np.array([1, 0, 2], np.float32)
    assert evaluate_function(needed, "main", [np.array(True), x])[0].shape == (2, 3)
    in_body = (
        FOUND
        + """
@R.region
def then(y: R.Tensor((3,), "float32")):
    z = R.broadcast_to(y, shape=("k", 3))
    s = R.sum(z, axis=(0,))
    return s
@R.region
def otherwise(y: R.Tensor((3,), "float32")):
    return y
b = R.if_(c, R.const([1.0, 2.0, 3.0], "float32"), regions=[then, otherwise])
return b"""
    )
    module = function(in_body)
    assert RemoveDeadCode()(module) is module


def test_an_op_goes_whose_size_nothing_needs(function: Callable[[str], IRModule]) -> None:
    module = function(FOUND + "b = R.broadcast_to(x, shape=('k', 'n'))\nd = R.nn.relu(x)\nreturn d")
    assert RemoveDeadCode()(module) == function("d = R.nn.relu(x)\nreturn d")


def test_rewriting_keeps_an_op_whose_size_is_needed(function: Callable[[str], IRModule]) -> None:
    """Nothing reads the positions after removal of the product, but their number is still the size of ``e``."""
    ones = "e = R.broadcast_to(R.const(1, 'int64'), shape=(1, 'k'))\n"
    module = function(FOUND + ones + "m = R.multiply(a, e)\nreturn m")

    def second_factor(binding: Binding, graph: RewriteGraph) -> Sequence[Value]:
        return binding.operands[1:]

    after = verify(rewrite_module(module, {"multiply": [second_factor]}))
    assert after == function(FOUND + ones + "return e")
    passed = verify(Sequential(list(default_passes()))(after))
    _same(after, passed, np.array(True), np.array([1, 0, 2], np.float32))


def test_constants_fold_through_a_size(function: Callable[[str], IRModule]) -> None:
    folded = FoldConstants()(function(f"a = {NONZERO.format(ONES, 'k')}\nb = R.reshape(a, shape=('k',))\nreturn b, x"))
    assert verify(folded) == function("return R.const([0, 2], 'int64'), x")


def test_a_folded_size_is_replaced_everywhere() -> None:
    rest = """
@R.region
def then(y: R.Tensor(("n",), "float32")):
    z = R.broadcast_to(y, shape=("k", "n"))
    s = R.sum(z, axis=(0,))
    return s
@R.region
def otherwise(y: R.Tensor(("n",), "float32")):
    return y
b = R.if_(c, x, regions=[then, otherwise])
d = R.broadcast_to(b, shape=("2*k", "n"))
return d"""
    before = f"a = {NONZERO.format(ONES, 'k')}\n{rest}"
    check_pass(FoldConstants(), PARAMS, before, rest.replace('"k"', "2").replace('"2*k"', "4"))
    module = parse_main(PARAMS, before)
    folded = FoldConstants()(module)
    for flag in (True, False):
        _same(module, folded, np.array(flag), np.array([1.5, -2.0], np.float32))


def test_what_has_no_bound_or_does_not_fit_is_not_folded(function: Callable[[str], IRModule]) -> None:
    bounds = ", ".join(f"R.const({number}, 'int64')" for number in (0, 5, 1))
    ranged = function(f'a = R.range({bounds}, out_types=[R.Tensor(("k",), "int64")])\nreturn a')
    assert FoldConstants()(ranged) is ranged
    misfit = function(f"a = {NONZERO.format(ONES, 'k')}\nb = R.reshape(a, shape=('k//4', 4))\nreturn b")
    assert FoldConstants()(misfit) is misfit
    assert FoldConstants(max_growth_nbytes=-100)(misfit) is misfit


def test_functions_that_are_called_keep_their_types() -> None:
    text = f"""class M:
    @R.function
    def helper():
        a = {NONZERO.format(ONES, "k")}
        b = R.add(a, a)
        return b
    @R.function
    def main():
        a = helper()
        b = R.reshape(a, shape=("k",))
        return b
"""
    module = verify(parse(text))
    assert FoldConstants()(module) is module


def test_more_exact_parameters_and_bound_ones(function: Callable[[str], IRModule]) -> None:
    module = function(FOUND + "b = R.broadcast_to(x, shape=('k', 'n'))\nreturn a, b")
    exact = verify(InferTypes({"x": tensor((4,))})(module))
    assert [str(type_) for type_ in exact["main"].result_types] == [
        'R.Tensor((1, "k"), "int64")',
        'R.Tensor(("k", 4), "float32")',
    ]
    x = np.array([0, 3, 0, 4], np.float32)
    _same(module, exact, np.array(True), x)
    bound = verify(Sequential([BindParams({"x": x}), FoldConstants()])(module))
    assert bound["main"].bindings == ()
    assert [np.shape(array) for array in evaluate_function(bound, "main", [np.array(True)])] == [(1, 2), (2, 4)]


def test_names_of_values_do_not_touch_sizes(function: Callable[[str], IRModule]) -> None:
    module = function(f"k = {NONZERO.format('x', 'k')}\nk = R.reshape(k, shape=('k',))\nreturn k")
    renamed = UniqueNames()(module)
    assert renamed == module
    assert [binding.result.name for binding in renamed["main"].bindings] == ["k", "k_1"]


BODY = """
@R.region
def then(y: R.Tensor((3,), "float32")):
    z = R.broadcast_to(y, shape=("n", 3))
    s = R.sum(z, axis=(0,))
    return s
@R.region
def otherwise(y: R.Tensor((3,), "float32")):
    return y
b = R.if_(c, R.const([1.0, 2.0, 3.0], "float32"), regions=[then, otherwise])
return b"""

CLOSED = """
@R.region
def then(y: R.Tensor((3,), "float32"), x_1: R.Tensor(("n",), "float32")):
    z = R.broadcast_to(y, shape=("n", 3))
    s = R.sum(z, axis=(0,))
    return s
@R.region
def otherwise(y: R.Tensor((3,), "float32"), x_2: R.Tensor(("n",), "float32")):
    return y
b = R.if_(c, R.const([1.0, 2.0, 3.0], "float32"), x, regions=[then, otherwise])
return b"""


def test_a_branch_gets_the_value_that_gives_its_size() -> None:
    check_pass(CaptureSizes(), PARAMS, BODY, CLOSED)


def test_nested_loops_carry_it_unchanged() -> None:
    def nested(outer: str = "", inner: str = "") -> str:
        sized = ', {}: R.Tensor(("n",), "float32")'
        return f"""
t = R.abs(R.const([1.0, 2.0, 3.0], "float32"))
@R.region
def outer(i: R.Tensor((), "int64"), y: R.Tensor((3,), "float32"){outer and sized.format("x_1")}):
    @R.region
    def inner(j: R.Tensor((), "int64"), w: R.Tensor((3,), "float32"){inner and sized.format(inner)}):
        z = R.broadcast_to(w, shape=("n", 3))
        s = R.sum(z, axis=(0,))
        return R.const(True, "bool"), s{inner and f", {inner}"}
    u{inner and ", x_1_2"} = R.loop(i, R.const(True, "bool"), y{outer and ", x_1"}, regions=[inner])
    return R.const(True, "bool"), u{outer and ", x_1"}
v{outer and ", x_2"} = R.loop(R.const(2, "int64"), c, t{outer}, regions=[outer])
return v"""

    check_pass(CaptureSizes(), PARAMS, nested(), nested(", x", "x_1_1"))


def test_a_body_that_knows_its_sizes_is_left_alone(function: Callable[[str], IRModule]) -> None:
    for text in (
        CLOSED,
        BODY.replace('"n"', "4"),
        BODY.replace(
            'z = R.broadcast_to(y, shape=("n", 3))',
            f"""i = {NONZERO.format("y", "j")}
    z = R.broadcast_to(y, shape=("j", 3))""",
        ),
    ):
        module = function(text)
        assert CaptureSizes()(module) is module
