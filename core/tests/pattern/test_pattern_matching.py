"""The pattern language and the matcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest
from byoc_core import script as R
from byoc_core.errors import PatternError
from byoc_core.ir import Constant, Function, Var
from byoc_core.ops import FunctionBuilder
from byoc_core.pattern import (
    CompositePattern,
    FunctionIndex,
    Match,
    Pattern,
    find_matches,
    is_const,
    is_op,
    is_var,
    wildcard,
)


def function(body: str, params: str = "x y", shape: str = "(4, 4)") -> Function:
    head = ", ".join(f"{name}: R.Tensor({shape})" for name in params.split())
    lines = [f"def main({head}):", *(f"    {line.strip()}" for line in body.strip().splitlines())]
    return R.parse("\n".join(lines))["main"]


def matches(pattern: Pattern, main: Function, root: int = -1) -> list[Match]:
    return list(find_matches(pattern, main.bindings[root], FunctionIndex(main)))


def matched(pattern: Pattern, main: Function, root: int = -1) -> list[str]:
    """The names of the matched results of each way, in order."""
    return [" ".join(b.results[0].name for b in match.bindings) for match in matches(pattern, main, root)]


def inputs(match: Match) -> list[str]:
    return [value.name if isinstance(value, Var) else "const" for value in match.inputs]


def captured(match: Match) -> Mapping[str, str]:
    return {name: v.name if isinstance(v, Var) else "const" for name, v in match.captures.items()}


DENSE_BIAS_RELU = """
    a = R.nn.dense(x, y)
    b = R.add(a, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
    c = R.nn.relu(b)
    return c
"""


def test_a_sequence_is_matched_from_its_last_op() -> None:
    main = function(DENSE_BIAS_RELU)
    pattern = is_op("nn.relu")(is_op("add")(is_op("nn.dense")(wildcard(), wildcard()), is_const()))
    (match,) = matches(pattern, main)
    assert [binding.op.name for binding in match.bindings] == ["nn.dense", "add", "nn.relu"]
    assert match.root is main.bindings[-1]
    assert inputs(match) == ["x", "y", "const"]
    assert matches(pattern, main, 1) == []


def test_optional_gives_the_longer_way_first() -> None:
    main = function(DENSE_BIAS_RELU)
    dense = is_op("nn.dense")(wildcard(), wildcard())
    pattern = dense.optional(lambda p: is_op("add")(p, is_const())).optional(is_op("nn.relu"))
    assert matched(pattern, main) == ["a b c"]
    assert matched(pattern, main, 1) == ["a b"]
    assert matched(pattern, main, 0) == ["a"]


def test_alternatives_in_order() -> None:
    main = function("a = R.tanh(x)\nb = R.add(a, y)\nreturn b")
    left = is_op("add")(is_op("tanh")(wildcard()), wildcard())
    right = is_op("add")(wildcard(), wildcard())
    assert matched(left | right, main) == ["a b", "b"]
    assert matched(right | left, main) == ["b", "a b"]
    assert matched(is_op("add", "subtract")(wildcard(), wildcard()), main) == ["b"]


def test_commutative_ops_match_in_both_orders_and_others_do_not() -> None:
    inner = is_op("tanh")(wildcard())
    for op, expected in (("add", ["a b"]), ("multiply", ["a b"]), ("subtract", []), ("divide", [])):
        main = function(f"a = R.tanh(x)\nb = R.{op}(y, a)\nreturn b")
        assert matched(is_op(op)(inner, wildcard()), main) == expected
    (match,) = matches(is_op("add")(inner, wildcard()), function("a = R.tanh(x)\nb = R.add(y, a)\nreturn b"))
    assert inputs(match) == ["x", "y"]


def test_both_orders_are_ways_of_their_own_where_captures_differ() -> None:
    main = function("a = R.add(x, y)\nreturn a")
    named = is_op("add")(wildcard().named("left"), wildcard().named("right"))
    assert [dict(captured(match)) for match in matches(named, main)] == [
        {"left": "x", "right": "y"},
        {"left": "y", "right": "x"},
    ]
    assert len(matches(is_op("add")(wildcard(), wildcard()), main)) == 1


def test_one_pattern_object_matches_one_value() -> None:
    same = wildcard()
    pattern = is_op("multiply")(same, is_op("sigmoid")(same))
    assert matched(pattern, function("a = R.sigmoid(x)\nb = R.multiply(x, a)\nreturn b")) == ["a b"]
    assert matched(pattern, function("a = R.sigmoid(x)\nb = R.multiply(a, x)\nreturn b")) == ["a b"]
    assert matched(pattern, function("a = R.sigmoid(x)\nb = R.multiply(y, a)\nreturn b")) == []
    shared = is_op("tanh")(wildcard())
    diamond = is_op("add")(is_op("nn.relu")(shared), is_op("exp")(shared))
    both = function("a = R.tanh(x)\nb = R.nn.relu(a)\nc = R.exp(a)\nd = R.add(b, c)\nreturn d")
    assert matched(diamond, both) == ["a b c d"]
    apart = function("a = R.tanh(x)\ne = R.tanh(x)\nb = R.nn.relu(a)\nc = R.exp(e)\nd = R.add(b, c)\nreturn d")
    assert matched(diamond, apart) == []


def test_equal_constants_are_one_value() -> None:
    same = is_const()
    pattern = is_op("add")(is_op("multiply")(wildcard(), same), same)
    text = "a = R.multiply(x, R.const(2.0, 'float32'))\nb = R.add(a, R.const({}, 'float32'))\nreturn b"
    assert matched(pattern, function(text.format(2.0))) == ["a b"]
    assert matched(pattern, function(text.format(3.0))) == []


def test_leaves_by_kind() -> None:
    main = function("a = R.tanh(x)\nb = R.subtract(a, R.const(1.0, 'float32'))\nreturn b")
    assert matched(is_op("subtract")(wildcard(), is_const()), main) == ["b"]
    assert matched(is_op("subtract")(is_const(), wildcard()), main) == []
    assert matched(is_op("subtract")(is_var(), wildcard()), main) == []
    assert matched(is_op("tanh")(is_var()), main, 0) == ["a"]
    assert matched(is_op("tanh")(is_const()), main, 0) == []


def test_conditions_on_types() -> None:
    main = function("a = R.tanh(x)\nreturn a", shape='("n", 4)')
    tanh = is_op("tanh")
    assert matched(tanh(wildcard().has_dtype("float32", "float64")), main) == ["a"]
    assert matched(tanh(wildcard().has_dtype("int8")), main) == []
    assert matched(tanh(wildcard().has_rank(1, 2)), main) == ["a"]
    assert matched(tanh(wildcard().has_rank(4)), main) == []
    assert matched(tanh(wildcard().has_shape(None, 4)), main) == ["a"]
    assert matched(tanh(wildcard().has_shape(4, 4)), main) == []
    assert matched(tanh(wildcard().has_shape(None, 4, None)), main) == []
    assert matched(tanh(wildcard().where(lambda value: isinstance(value, Constant))), main) == []
    assert matched(tanh.has_dtype("float32"), main) == ["a"]


def test_conditions_on_attributes() -> None:
    main = function("a = R.nn.softmax(x, axis=1)\nreturn a")
    softmax = is_op("nn.softmax")
    assert matched(softmax.has_attr(axis=1), main) == ["a"]
    assert matched(softmax.has_attr(axis=0), main) == []
    assert matched(softmax.has_attr(axis=True), main) == []
    assert matched(softmax.has_attr(axis=1.0), main) == []
    assert matched(softmax.has_attr(other=1), main) == []
    split = function("a, b = R.split(x, sections=(1, 3))\nreturn a, b")
    assert matched(is_op("split").has_attr(sections=[1, 3]), split) == ["a"]
    assert matched(is_op("split").has_attr(sections=(1, 3)).has_attr(axis=1), split) == []


def test_an_op_without_operand_patterns_takes_any() -> None:
    main = function("a = R.concat(x, y, x)\nb = R.tanh(a)\nreturn b")
    (match,) = matches(is_op("tanh")(is_op("concat")), main)
    assert inputs(match) == ["x", "y"]
    assert matched(is_op("concat")(wildcard(), wildcard()), main, 0) == []
    assert matched(is_op("concat")(wildcard(), wildcard(), wildcard()), main, 0) == ["a"]


def test_other_results_of_an_op() -> None:
    main = function("a, b = R.split(x, sections=(2, 2))\nc = R.tanh(b)\nreturn c")
    assert matched(is_op("tanh")(is_op("split")), main) == []
    assert matched(is_op("tanh")(is_op("split").result(1)), main) == ["a c"]
    assert matched(is_op("split").result(1), main, 0) == ["a"]


def test_captures() -> None:
    main = function(DENSE_BIAS_RELU)
    dense = is_op("nn.dense")(wildcard().named("data"), wildcard()).named("dense")
    (match,) = matches(is_op("nn.relu")(is_op("add")(dense, is_const().named("bias"))), main)
    assert captured(match) == {"dense": "a", "data": "x", "bias": "const"}
    assert match["data"] is main.params[0]
    assert match.binding("dense") is main.bindings[0]
    with pytest.raises(PatternError) as caught:
        match["weight"]
    assert str(caught.value) == "match: has no capture `weight`; expected dense, data, bias"
    with pytest.raises(PatternError) as caught:
        match.binding("bias")
    assert str(caught.value) == "match: capture `bias` is not made by an op"


def test_leaked_values_are_those_read_outside() -> None:
    body = "a = R.tanh(x)\nb = R.nn.relu(a)\nc = R.exp(b)\nreturn c, a"
    pattern = is_op("exp")(is_op("nn.relu")(is_op("tanh")(wildcard())))
    (match,) = matches(pattern, function(body))
    assert [value.name for value in match.leaked] == ["a"]
    (match,) = matches(pattern, function(body.replace("c, a", "c")))
    assert match.leaked == ()
    (match,) = matches(pattern, function(body.replace("return c, a", "d = R.tanh(b)\nreturn c, d")), 2)
    assert [value.name for value in match.leaked] == ["b"]


def test_a_match_is_convex() -> None:
    """A value leaving the match must not return as an input."""
    body = "a = R.tanh(x)\nb = R.exp(a)\nc = R.{}(b, y)\nd = R.add(a, c)\nreturn d"
    pattern = is_op("add")(is_op("tanh")(wildcard()), wildcard())
    assert matched(pattern, function(body.format("multiply"))) == []
    assert matched(pattern, function(body.format("multiply").replace("R.exp(a)", "R.exp(x)"))) == ["a d"]


@pytest.mark.parametrize("second", ["a", "b"])
def test_p17_a_leaf_is_never_made_inside(second: str) -> None:
    main = function(f"a = R.nn.dense(x, y)\nb = R.power(a, x)\nc = R.add(a, {second})\nreturn c")
    bias = is_op("add")(is_op("nn.dense")(wildcard(), wildcard()), wildcard())
    assert matched(bias, main) == []


def test_p18_operands_of_subtract_are_not_swapped() -> None:
    main = function("a = R.subtract(R.const(1.0, 'float32'), x)\nreturn a")
    assert matched(is_op("subtract")(is_const(), wildcard()), main) == ["a"]
    assert matched(is_op("subtract")(wildcard(), is_const()), main) == []


def test_claimed_bindings_are_not_matched() -> None:
    pattern = is_op("nn.relu")(is_op("tanh")(wildcard()))
    free = "a = R.tanh(x)\nb = R.nn.relu(a)\nreturn b"
    assert matched(pattern, function(free)) == ["a b"]
    assert matched(pattern, function(free.replace("tanh(x)", "tanh(x, codegen='other')"))) == []
    assert matched(pattern, function(free.replace("relu(a)", "relu(a, codegen='other')"))) == []


def test_calls_are_matched_by_symbol() -> None:
    main = function("a = R.call_dps_packed('f', (x,), out_types=[R.Tensor((4, 4))])\nb = R.tanh(a)\nreturn b")
    call = is_op("call_dps_packed")
    assert matched(is_op("tanh")(call.has_attr(symbol="f")), main) == ["a b"]
    assert matched(is_op("tanh")(call.has_attr(symbol="g")), main) == []


def test_errors() -> None:
    with pytest.raises(PatternError) as caught:
        is_op()
    assert str(caught.value) == "is_op: names no op"
    operand: Any = "x"
    with pytest.raises(PatternError) as caught:
        is_op("add")(operand, wildcard())
    assert str(caught.value) == "is_op('add'): an operand is not a pattern; got 'x'"
    for name in ("conv", ".conv", "npu."):
        with pytest.raises(PatternError) as caught:
            CompositePattern(name, wildcard())
        assert str(caught.value) == (f"composite pattern `{name}`: has a malformed name; expected `<backend>.<what>`")
    with pytest.raises(PatternError) as caught:
        matches(Pattern(), function("a = R.tanh(x)\nreturn a"))
    assert str(caught.value) == "pattern: is of a kind unknown to the matcher; got Pattern"
    assert CompositePattern("npu.conv.relu", wildcard()).backend == "npu"


def test_the_index_knows_producers_and_users() -> None:
    main = function("a = R.add(x, x)\nb = R.tanh(a)\nreturn b, x")
    index = FunctionIndex(main)
    (x, y), (a, b) = main.params, main.bindings
    assert index.producer(a.result) == (a, 0)
    assert index.producer(x) is None
    assert (index.users(x), index.users(y), index.users(a.result)) == ([a], [], [b])
    assert (index.is_param(x), index.is_param(a.result)) == (True, False)
    assert [index.is_result(value) for value in (x, y, a.result, b.result)] == [True, False, False, True]


def test_the_cost_of_a_match_does_not_depend_on_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matches in the middle of a long chain look at their own neighbourhood only."""
    builder = FunctionBuilder("main")
    value: Any = builder.param("x", R.Tensor((4,)))
    for _ in range(2000):
        (tanh,) = builder.bind("tanh", [value], {}).results
        value = builder.emit("add", tanh, np.ones(4, np.float32))
    main = builder.finish(value)
    index = FunctionIndex(main)
    looked = MagicMock(wraps=index.producer)
    monkeypatch.setattr(index, "producer", looked)
    pattern = is_op("add")(is_op("tanh")(wildcard()), is_const())
    assert len(list(find_matches(pattern, main.bindings[-1], index))) == 1
    assert 0 < looked.call_count < 20
