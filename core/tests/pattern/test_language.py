"""Each word of the pattern language: matches, printed form, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.dtypes import all_dtypes, to_numpy
from byoc_core.errors import PatternError
from byoc_core.ir import Binding, Constant, Function, Var
from byoc_core.ops import FunctionBuilder
from byoc_core.pattern import (
    Alternatives,
    FunctionIndex,
    Match,
    Pattern,
    Predicate,
    any_number,
    find_matches,
    is_const,
    is_extern,
    is_op,
    is_var,
    sequence,
    wildcard,
)

from core.tests.pattern.conftest import Scene, names_of

ANY = wildcard


def constant_fits(pattern: Pattern, array: npt.ArrayLike) -> bool:
    builder = FunctionBuilder("main")
    x = builder.param("x", builder.const(array).type)
    main = builder.finish(*builder.bind("concat", [x, builder.const(array)], {}).results)
    index = FunctionIndex(main, builder.constants)
    return bool(list(find_matches(is_op("concat")(is_var(), pattern), main.bindings[-1], index)))


@pytest.mark.parametrize("dtype", [dtype for dtype in all_dtypes() if dtype != "bool"])
def test_constants_by_value_in_every_dtype(dtype: str) -> None:
    array = np.full((2, 3), 1, to_numpy(dtype))
    assert constant_fits(is_const(1), array)
    assert constant_fits(is_const(1.0), array)
    assert constant_fits(is_const(array.astype(np.float64)), array)
    assert not constant_fits(is_const(2), array)
    assert not constant_fits(is_const(np.ones((3, 2))), array)
    array[1, 2] = 2
    assert not constant_fits(is_const(1), array)


@pytest.mark.parametrize(
    ("expected", "array", "fits"),
    [
        (0.1, np.array([0.1], "float32"), True),
        (0.1, np.array([0.1], "float16"), True),
        (0.1, np.array([0.10001], "float32"), False),
        (0.5, np.array([0], "int32"), False),
        (2**63 + 1, np.array([2**63 + 1], "uint64"), True),
        (2**63, np.array([2**63 + 1], "uint64"), False),
        (float("nan"), np.array([np.nan, np.nan], "float32"), True),
        (float("nan"), np.array([np.nan, 1], "float32"), False),
        (float("inf"), np.array([np.inf], "float32"), True),
        (1e300, np.array([np.inf], "float32"), True),  # rounded to float32
        (0.0, np.array([-0.0], "float32"), True),
        (True, np.array([True]), True),
        (True, np.array([False]), False),
        ([1.0, 2.0], np.array([1, 2], "float32"), True),
        ([1.0, 2.0], np.array([2, 1], "float32"), False),
        (1, np.array([], "float32"), False),
    ],
)
def test_constants_by_value(expected: Any, array: npt.ArrayLike, fits: bool) -> None:
    assert constant_fits(is_const(expected), array) is fits


def test_constants_by_value_need_the_arrays() -> None:
    builder = FunctionBuilder("main")
    x = builder.param("x", builder.const(np.ones(2)).type)
    main = builder.finish(*builder.bind("add", [x, builder.const(np.ones(2))], {}).results)
    with pytest.raises(PatternError) as caught:
        list(find_matches(is_op("add")(ANY(), is_const(1)), main.bindings[-1], FunctionIndex(main)))
    assert str(caught.value) == (
        "function `main`: is indexed without the constants' arrays. "
        "Create the index with FunctionIndex(function, module.constants)."
    )


def test_attributes_by_test(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.nn.softmax(x, axis=1)\nreturn a")
    softmax = is_op("nn.softmax")
    assert main.matched(softmax.has_attr(axis=lambda axis: axis > 0)) == ["a"]
    assert main.matched(softmax.has_attr(axis=lambda axis: axis > 1)) == []
    assert main.matched(softmax.has_attr(axis=Predicate(lambda axis: axis < 2, "0 or 1"))) == ["a"]
    assert main.matched(softmax.has_attr(other=lambda value: True)) == []


def test_shapes_with_names(scene: Callable[..., Scene]) -> None:
    square = scene("a = R.tanh(x)\nreturn a", type_='("n", "n"), "float32"')
    other = scene("a = R.tanh(x)\nreturn a", type_='("n", "2*n"), "float32"')
    tanh = is_op("tanh")
    for pattern, fits in ((("n", "n"), (1, 0)), (("m", "k"), (1, 1)), ((None, None), (1, 1)), (("n", 4), (0, 0))):
        assert len(square.matched(tanh.has_shape(*pattern))) == fits[0]
        assert len(other.matched(tanh.has_shape(*pattern))) == fits[1]
    n, _ = square.shape("x")
    assert square.matched(tanh.has_shape(n, None)) == ["a"]
    assert other.matched(tanh.has_shape(None, n)) == []


def test_a_sequence_reads_at_any_position(scene: Callable[..., Scene], inputs: Callable[[Match], str]) -> None:
    pattern = sequence(is_op("tanh")(ANY()), is_op("subtract"), is_op("nn.relu"))
    for operands in ("a, y", "y, a"):
        main = scene(f"a = R.tanh(x)\nb = R.subtract({operands})\nc = R.nn.relu(b)\nreturn c")
        assert main.matched(pattern) == ["a b c"]
        assert inputs(main.matches(pattern)[0]) in ("x y", "y x")
    assert scene("a = R.tanh(x)\nb = R.subtract(x, y)\nc = R.nn.relu(b)\nreturn c").matched(pattern) == []


def test_the_other_operands_of_a_sequence_are_inputs(scene: Callable[..., Scene]) -> None:
    pattern = sequence(is_op("tanh")(ANY()), is_op("subtract"))
    assert scene("a = R.tanh(x)\nb = R.subtract(a, a)\nreturn b").matched(pattern) == []
    two = scene("a = R.tanh(x)\nb = R.tanh(y)\nc = R.subtract(a, b)\nreturn c")
    assert two.matched(pattern) == ["a c", "b c"]


def test_any_number_of_operands(scene: Callable[..., Scene]) -> None:
    part = is_op("tanh")(ANY().named("source")).named("part")
    pattern = is_op("concat")(ANY().named("first"), any_number(part, at_least=1))
    main = scene("a = R.tanh(x)\nb = R.tanh(y)\nc = R.concat(x, a, b, a)\nreturn c")
    (match,) = main.matches(pattern)
    assert names_of(match.values("part")) == "a b a"
    assert names_of(match.values("source")) == "x y x"
    assert names_of(match.values("first")) == "x"
    assert ("part" in match, "first" in match, "other" in match) == (True, True, False)
    with pytest.raises(PatternError) as caught:
        match["part"]
    assert str(caught.value) == "match: capture `part` is repeated. Read all values with match.values('part')."
    assert scene("a = R.tanh(x)\nc = R.concat(a, x)\nreturn c").matched(pattern) == []
    assert scene("c = R.concat(x)\nd = R.concat(c, x)\nreturn d").matched(pattern, "c") == []


def test_objects_inside_any_number_stand_for_each_operand_anew(scene: Callable[..., Scene]) -> None:
    same = ANY()
    twice = is_op("concat")(any_number(is_op("add")(same, same)))
    main = scene("a = R.add(x, x)\nb = R.add(y, y)\nc = R.concat(a, b)\nreturn c")
    assert main.matched(twice) == ["a b c"]
    assert scene("a = R.add(x, x)\nb = R.add(x, y)\nc = R.concat(a, b)\nreturn c").matched(twice) == []


def test_objects_used_outside_too_stand_for_one_value(scene: Callable[..., Scene]) -> None:
    same = ANY()
    pattern = is_op("concat")(same, any_number(is_op("tanh")(same)))
    assert scene("a = R.tanh(x)\nb = R.tanh(x)\nc = R.concat(x, a, b)\nreturn c").matched(pattern) == ["a b c"]
    assert scene("a = R.tanh(x)\nb = R.tanh(y)\nc = R.concat(x, a, b)\nreturn c").matched(pattern) == []
    either = same | is_op("concat")(any_number(is_op("tanh")(same)))
    assert scene("a = R.tanh(x)\nb = R.tanh(x)\nc = R.concat(a, b)\nreturn c").matched(either) == ["a b c"]
    assert scene("a = R.tanh(x)\nb = R.tanh(y)\nc = R.concat(a, b)\nreturn c").matched(either) == []


def test_results_of_one_op(scene: Callable[..., Scene]) -> None:
    split = is_op("split")(ANY())
    pattern = is_op("subtract")(split.result(1).named("high"), split.result(0).named("low"))
    halves = "a, b = R.split(x, sections=(2, 2))\n"
    (match,) = scene(f"{halves}c = R.subtract(b, a)\nreturn c").matches(pattern)
    assert names_of((match["high"], match["low"])) == "b a"
    assert match.binding("high") is match.binding("low")
    assert scene(f"{halves}c = R.subtract(a, b)\nreturn c").matched(pattern) == []
    two = f"{halves}d, e = R.split(x, sections=(2, 2))\nc = R.subtract(b, d)\nreturn c"
    assert scene(two).matched(pattern) == []
    assert scene(two).matched(is_op("subtract")(is_op("split").result(1), is_op("split"))) == ["a b d e c"]


def test_a_root_with_several_results(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.tanh(x)\nb, c = R.split(a, sections=(2, 2))\nreturn b, c")
    (match,) = main.matches(is_op("split")(is_op("tanh")(ANY())).named("parts"))
    assert [value.name for value in match.results] == ["b", "c"]
    assert match.leaked == ()


def test_external_calls_by_symbol(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.call_dps_packed('f', (x,), out_types=[R.Tensor((4, 4))])\nb = R.tanh(a)\nreturn b")
    assert main.matched(is_op("tanh")(is_extern("f")(ANY()))) == ["a b"]
    assert main.matched(is_op("tanh")(is_extern("f")(ANY(), ANY()))) == []
    assert main.matched(is_op("tanh")(is_extern("g"))) == []


def test_readers(scene: Callable[..., Scene]) -> None:
    tanh, relu = is_op("tanh")(ANY()), is_op("nn.relu")
    body = "a = R.tanh(x)\nb = R.nn.relu(a)\nc = R.{}(a)\nd = R.add(b, c)\nreturn d{}"
    only, some = relu(tanh.only_used_by(relu)), relu(tanh.used_by(relu))
    for op, returned, fits in (("nn.relu", "", (1, 1)), ("exp", "", (0, 1)), ("nn.relu", ", a", (0, 1))):
        main = scene(body.format(op, returned))
        assert (len(main.matched(only, "b")), len(main.matched(some, "b"))) == fits
    main = scene(body.format("exp", ""))
    assert main.matched(relu(tanh.used_by(is_op("exp", "sin"))), "b") == ["a b"]
    assert main.matched(relu(tanh.used_by(is_op("sin"))), "b") == []
    assert main.matched(is_op("tanh").only_used_by(is_op("exp", "nn.relu")), "a") == ["a"]
    assert scene("a = R.tanh(x)\nreturn y").matched(is_op("tanh").only_used_by(relu)) == []
    flag = scene("a = R.tanh(x)\nb = R.nn.softmax(a, axis=1)\nreturn b")
    assert flag.matched(is_op("tanh").only_used_by(is_op("nn.softmax").has_attr(axis=1)), "a") == ["a"]
    assert flag.matched(is_op("tanh").only_used_by(is_op("nn.softmax").has_attr(axis=0)), "a") == []


IDENTITIES = {
    "cast": "R.cast({}, dtype='float32')",
    "reshape": "R.reshape({}, shape=(4, 4))",
    "permute_dims": "R.permute_dims({}, axes=(0, 1))",
    "broadcast_to": "R.broadcast_to({}, shape=(4, 4))",
    "concat": "R.concat({})",
    "split": "R.split({}, sections=(4,))",
    "nn.pad": "R.nn.pad({}, pad_width=(0, 0, 0, 0))",
    "strided_slice": "R.strided_slice({}, begin=(0,), end=(4,), strides=(1,), axes=(0,))",
}
NO_IDENTITIES = {
    "a cast": "R.cast({}, dtype='float64')",
    "a transpose": "R.permute_dims({}, axes=(1, 0))",
    "a reversal": "R.strided_slice({}, begin=(3,), end=(-5,), strides=(-1,), axes=(0,))",
}


@pytest.mark.parametrize("op", IDENTITIES)
def test_p32_identities_do_not_block_a_match(op: str, scene: Callable[..., Scene]) -> None:
    main = scene(f"a = R.tanh(x)\ni = {IDENTITIES[op].format('a')}\nb = R.nn.relu(i)\nreturn b")
    pattern = is_op("nn.relu")(is_op("tanh")(ANY()).named("tanh"))
    assert main.matched(pattern) == ["a i b"]
    assert names_of(main.matches(pattern)[0].values("tanh")) == "a"


@pytest.mark.parametrize("op", NO_IDENTITIES)
def test_what_is_no_identity_blocks(op: str, scene: Callable[..., Scene]) -> None:
    main = scene(f"a = R.tanh(x)\ni = {NO_IDENTITIES[op].format('a')}\nb = R.nn.relu(i)\nreturn b")
    assert main.matched(is_op("nn.relu")(is_op("tanh")(ANY()))) == []


def test_identities_at_leaves(scene: Callable[..., Scene], inputs: Callable[[Match], str]) -> None:
    constant = "R.const(1.0, 'float32')"
    for leaf, operand, expected, source in (
        (ANY(), "x", "b", "i"),
        (is_var(), "x", "i b", "x"),
        (is_const(), constant, "i b", "const"),
        (is_const(1.0), constant, "i b", "const"),
        (is_const(2.0), constant, "", ""),
    ):
        main = scene(f"i = R.cast({operand}, dtype='float32')\nb = R.tanh(i)\nreturn b")
        found = main.matches(is_op("tanh")(leaf))
        assert [" ".join(b.results[0].name for b in match.bindings) for match in found] == [expected] * bool(expected)
        assert [inputs(match) for match in found] == [source] * bool(expected)


def test_an_identity_that_the_pattern_names_is_an_op(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.tanh(x)\ni = R.cast(a, dtype='float32')\nb = R.nn.relu(i)\nreturn b")
    assert main.matched(is_op("nn.relu")(is_op("cast")(ANY()))) == ["i b"]
    assert main.matched(is_op("cast")(is_op("tanh")), "i") == ["a i"]
    assert main.matched(is_op("tanh"), "i") == []  # what is before the last op is not the last op


def test_identities_that_others_read_are_leaked(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.tanh(x)\ni = R.cast(a, dtype='float32')\nb = R.nn.relu(i)\nc = R.exp(i)\nreturn b, c")
    (match,) = main.matches(is_op("nn.relu")(is_op("tanh")(ANY())), "b")
    assert [value.name for value in match.leaked] == ["i"]


def test_one_value_before_and_after_an_identity(scene: Callable[..., Scene], inputs: Callable[[Match], str]) -> None:
    same = ANY().named("same")
    pattern = is_op("subtract")(same, is_op("tanh")(same))
    for body, expected, source in (
        ("i = R.cast(x, dtype='float32')\na = R.tanh(x)\nb = R.subtract(i, a)\nreturn b", "i a b", "x"),
        ("i = R.cast(x, dtype='float32')\na = R.tanh(i)\nb = R.subtract(x, a)\nreturn b", "i a b", "x"),
        ("i = R.cast(x, dtype='float32')\na = R.tanh(i)\nb = R.subtract(i, a)\nreturn b", "a b", "i"),
    ):
        (match,) = scene(body).matches(pattern)
        assert " ".join(binding.results[0].name for binding in match.bindings) == expected
        assert (inputs(match), names_of(match.values("same"))) == (source, source)


def test_claimed_identities_block(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.tanh(x)\ni = R.cast(a, dtype='float32', codegen='other')\nb = R.nn.relu(i)\nreturn b")
    assert main.matched(is_op("nn.relu")(is_op("tanh")(ANY()))) == []


def test_readers_of_identities_read_the_value(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.tanh(x)\ni = R.cast(a, dtype='float32')\nb = R.nn.relu(i)\nreturn b")
    assert main.matched(is_op("tanh").only_used_by(is_op("nn.relu")), "a") == ["a"]


def test_what_a_check_sees(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.nn.softmax(x, axis=1)\nb = R.add(a, R.const(2.0, 'float32'))\nc = R.exp(a)\nreturn b, c")
    pattern = is_op("add")(is_op("nn.softmax")(ANY().named("x")).named("softmax"), is_const().named("two"))
    (match,) = main.matches(pattern, "b")
    assert match.attrs("softmax") == {"axis": 1}
    assert match.tensor("softmax").dtype == "float32"
    assert [user.op.name for user in match.users("softmax")] == ["add", "exp"]
    two = match.array("two")
    assert two is not None
    assert two.item() == 2.0
    assert match.array("x") is None
    assert isinstance(match["two"], Constant)
    with pytest.raises(PatternError) as caught:
        match["softmx"]
    assert str(caught.value) == ("match: has no capture `softmx`; expected softmax, x, two. Did you mean 'softmax'?")


def test_the_type_of_a_capture_that_is_no_tensor() -> None:
    from byoc_core.ir import ObjectType

    value = Var("s", ObjectType("sequence"))
    index = FunctionIndex(Function("main", (value,), (), (value,)))
    binding = Binding.__new__(Binding)
    with pytest.raises(PatternError) as caught:
        Match(binding, (), (), {"s": value}, index).tensor("s")
    assert str(caught.value) == 'match: capture `s` is not a tensor; got R.Object("sequence")'


SHOWN = {
    "nn.relu(nn.conv2d(*, const))": is_op("nn.relu")(is_op("nn.conv2d")(ANY(), is_const())),
    "(nn.relu(x=*) | x=*)": ANY().named("x").optional(is_op("nn.relu")),
    "add|subtract(const{the constant 0.5}, var)": is_op("subtract", "add")(is_const(0.5), is_var()),
    "const{the constant [1, 2]}": is_const([1, 2]),
    "nn.softmax[axis=1](...)": is_op("nn.softmax").has_attr(axis=1),
    "nn.pool[size=(2, 2), kind=max or mean](...)": is_op("nn.pool").has_attr(
        size=[2, 2], kind=Predicate(lambda kind: kind in ("max", "mean"), "max or mean")
    ),
    "split(*).1": is_op("split")(ANY()).result(1),
    "concat(const, *...)": is_op("concat")(is_const(), any_number(ANY())),
    "nn.relu(..., add(..., tanh(*), ...), ...)": sequence(is_op("tanh")(ANY()), is_op("add"), is_op("nn.relu")),
    "call_dps_packed[symbol=f](*)": is_extern("f")(ANY()),
    "*{dtype int8 or uint8}{rank 2}{shape (n, *, 4)}": ANY()
    .has_dtype("int8", "uint8")
    .has_rank(2)
    .has_shape("n", None, 4),
    "*{only read by nn.relu(...)}": ANY().only_used_by(is_op("nn.relu")),
    "*{read by nn.relu(...)}": ANY().used_by(is_op("nn.relu")),
    "*{a value accepted by `callable`}{a small one}": ANY().where(callable).where(lambda value: True, "a small one"),
    "*{a value accepted by the pattern's test}": ANY().where(lambda value: True),
}


@pytest.mark.parametrize("text", SHOWN)
def test_a_pattern_shows_what_it_matches(text: str) -> None:
    assert str(SHOWN[text]) == text
    assert repr(SHOWN[text]) == f"<pattern {text}>"


def test_a_deep_pattern_is_shown_in_part() -> None:
    pattern: Pattern = wildcard()
    for _ in range(5000):
        pattern = is_op("tanh")(pattern)
    assert str(pattern) == "tanh(" * 40 + "..." + ")" * 40


MALFORMED: dict[str, Callable[[Any], object]] = {
    "is_op: names no op": lambda _: is_op(),
    "is_op: is not the name of an op; got ''": lambda _: is_op(""),
    "is_op('add'): an operand is not a pattern; got 'x'": lambda bad: is_op("add")(bad, ANY()),
    "is_op('add'): any_number is not the last operand": lambda _: is_op("add")(any_number(ANY()), ANY()),
    "is_op('add'): has operand patterns already; got add(*)": lambda _: is_op("add")(ANY())(ANY()),
    "is_op('add'): has operand patterns already; got add(*, *)": lambda _: is_op("add")(ANY(), ANY()).reading(ANY()),
    "is_op('tanh'): an operand is not a pattern; got 'x'": lambda bad: is_op("tanh").reading(bad),
    "any_number: an operand is not a pattern; got 'x'": any_number,
    "any_number: `at_least` is not a count; got -1, expected 0 or more": lambda _: any_number(ANY(), -1),
    "alternatives: the pattern has no choices": lambda _: Alternatives(()),
    "alternatives: a choice is not a pattern; got 'x'": lambda bad: ANY() | bad,
    "result: is not the index of a result; got -1, expected 0 or more": lambda _: is_op("split").result(-1),
    "named: is not a name for a capture; got '', expected text": lambda _: ANY().named(""),
    "has_dtype: names no dtype": lambda _: ANY().has_dtype(),
    "has_dtype: is not a dtype; got 'float23'. Did you mean 'float32' or 'float64' or 'float16'?": lambda _: (
        ANY().has_dtype("float23")
    ),
    "has_rank: names no rank": lambda _: ANY().has_rank(),
    "has_rank: is not a rank; got -1, expected 0 or more": lambda _: ANY().has_rank(-1),
    "has_shape: is not the size of an axis; got -1, expected 0 or more, None, or a name": lambda _: ANY().has_shape(
        4, -1
    ),
    "has_shape: is not the size of an axis; got '', expected 0 or more, None, or a name": lambda _: ANY().has_shape(""),
    "where: is not a test; got 'x', expected a function of the value": lambda bad: ANY().where(bad),
    "is_const: is not a number or an array of numbers; got 'x'": is_const,
    "is_const: is not a number or an array of numbers; got []": lambda _: is_const([]),
    "is_extern: is not a symbol; got '', expected text": lambda _: is_extern(""),
    (
        "only_used_by: the reader has the wrong kind; got <pattern tanh(*)>, "
        "expected an op pattern without operand patterns"
    ): lambda _: ANY().only_used_by(is_op("tanh")(ANY())),
    ("used_by: the reader has the wrong kind; got 'x', expected an op pattern without operand patterns"): lambda bad: (
        ANY().used_by(bad)
    ),
    (
        "sequence: the link has the wrong kind; got <pattern tanh(*)>, expected an op pattern without operand patterns"
    ): lambda _: sequence(ANY(), is_op("tanh")(ANY())),
}


@pytest.mark.parametrize("text", MALFORMED)
def test_malformed_patterns_are_refused_where_they_are_made(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        MALFORMED[text]("x")
    assert str(caught.value) == text


def test_one_name_for_two_values_is_refused(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.add(x, y)\nreturn a")
    with pytest.raises(PatternError) as caught:
        main.matched(is_op("add")(ANY().named("x"), is_var().named("x")))
    assert str(caught.value) == "pattern add(x=*, x=var): captures two values as `x`"
    assert main.matched(is_op("add")(ANY().named("x") | is_var().named("x"), ANY())) == ["a", "a"]
