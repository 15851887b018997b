"""Reasons for mismatches: a single clause with the part, the actual and the expected value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from byoc_core.ops import FunctionBuilder
from byoc_core.pattern import (
    FunctionIndex,
    Mismatch,
    Pattern,
    Predicate,
    any_number,
    explain_mismatch,
    is_const,
    is_op,
    is_var,
    search,
    sequence,
    wildcard,
)
from byoc_core.script import Tensor

from core.tests.pattern.conftest import Scene

ANY = wildcard
TANH, RELU = is_op("tanh"), is_op("nn.relu")
SAME = wildcard()
SPLIT = is_op("split")(ANY())

CASES: dict[str, tuple[Pattern, str, str, Mismatch]] = {
    "an operand's op": (
        RELU(is_op("nn.dense")(ANY(), ANY())),
        "a = R.tanh(x)\nb = R.nn.relu(a)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `nn.relu`", "operand 0 of `nn.relu` is made by `tanh`, expected `nn.dense`", ("a",)),
    ),
    "an operand that is a parameter": (
        RELU(is_op("add", "subtract")),
        "b = R.nn.relu(x)\nreturn b",
        "b",
        Mismatch(
            1, "operand 0 of `nn.relu`", "operand 0 of `nn.relu` is a parameter, expected `add` or `subtract`", ()
        ),
    ),
    "a constant": (
        is_op("subtract")(ANY(), is_const()),
        "b = R.subtract(x, y)\nreturn b",
        "b",
        Mismatch(1, "operand 1 of `subtract`", "operand 1 of `subtract` is a parameter, expected a constant", ()),
    ),
    "a parameter": (
        TANH(is_var()),
        "a = R.nn.relu(x)\nb = R.tanh(a)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `tanh`", "operand 0 of `tanh` is made by `nn.relu`, expected a parameter", ("a",)),
    ),
    "a constant's value": (
        is_op("subtract")(ANY(), is_const(1)),
        "b = R.subtract(x, R.const(2.0, 'float32'))\nreturn b",
        "b",
        Mismatch(1, "operand 1 of `subtract`", "operand 1 of `subtract` holds 2.0, expected the constant 1", ()),
    ),
    "a constant's values": (
        is_op("subtract")(ANY(), is_const(1)),
        "b = R.subtract(x, R.const([2.0, 1.0, 1.0, 1.0], 'float32'))\nreturn b",
        "b",
        Mismatch(1, "operand 1 of `subtract`", "operand 1 of `subtract` is not the constant 1", ()),
    ),
    "an attribute": (
        is_op("nn.softmax").has_attr(axis=0),
        "b = R.nn.softmax(x, axis=1)\nreturn b",
        "b",
        Mismatch(0, "attribute `axis` of `nn.softmax`", "attribute `axis` of `nn.softmax` is 1, expected 0", ("b",)),
    ),
    "an attribute's test": (
        TANH(is_op("nn.softmax").has_attr(axis=Predicate(lambda axis: axis == 0, "the first"))),
        "a = R.nn.softmax(x, axis=1)\nb = R.tanh(a)\nreturn b",
        "b",
        Mismatch(
            1, "attribute `axis` of `nn.softmax`", "attribute `axis` of `nn.softmax` is 1, expected the first", ("a",)
        ),
    ),
    "an attribute that is none": (
        TANH.has_attr(axis=0),
        "b = R.tanh(x)\nreturn b",
        "b",
        Mismatch(0, "`tanh`", "`tanh` has no attribute `axis`", ("b",)),
    ),
    "a dtype": (
        TANH(ANY().has_dtype("int8", "uint8")),
        "b = R.tanh(x)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `tanh`", "operand 0 of `tanh` is of dtype float32, expected int8 or uint8", ()),
    ),
    "a rank": (
        TANH.has_rank(4),
        "b = R.tanh(x)\nreturn b",
        "b",
        Mismatch(0, "the result of `tanh`", "the result of `tanh` is of rank 2, expected 4", ("b",)),
    ),
    "a shape": (
        TANH(ANY().has_shape("n", None, 4)),
        "b = R.tanh(x)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `tanh`", "operand 0 of `tanh` is of shape (4, 4), expected shape (n, *, 4)", ()),
    ),
    "a test": (
        TANH(ANY().where(lambda value: False, "a weight of ours")),
        "b = R.tanh(x)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `tanh`", "operand 0 of `tanh` is not a weight of ours", ()),
    ),
    "only these readers": (
        RELU(TANH(ANY()).only_used_by(RELU)),
        "a = R.tanh(x)\nb = R.nn.relu(a)\nc = R.exp(a)\nreturn b, c, a",
        "b",
        Mismatch(
            1,
            "operand 0 of `nn.relu`",
            "operand 0 of `nn.relu` is read by `exp` and is returned by the function, "
            "expected readers nn.relu(...) only",
            ("a",),
        ),
    ),
    "some such reader": (
        RELU(TANH(ANY()).used_by(is_op("exp"))),
        "a = R.tanh(x)\nb = R.nn.relu(a)\nreturn b",
        "b",
        Mismatch(
            1,
            "operand 0 of `nn.relu`",
            "operand 0 of `nn.relu` is read by `nn.relu`, expected a reader exp(...)",
            ("a",),
        ),
    ),
    "one value": (
        is_op("subtract")(SAME, TANH(SAME)),
        "a = R.tanh(y)\nb = R.subtract(x, a)\nreturn b",
        "b",
        Mismatch(
            2,
            "operand 0 of `tanh`",
            "operand 0 of `tanh` is not the value matched elsewhere by the same part of the pattern",
            (),
        ),
    ),
    "a result": (
        TANH(SPLIT.result(1)),
        "a, c = R.split(x, sections=(2, 2))\nb = R.tanh(a)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `tanh`", "operand 0 of `tanh` is result 0 of `split`, expected result 1", ("a",)),
    ),
    "too few operands": (
        is_op("concat")(ANY(), any_number(ANY(), at_least=2)),
        "b = R.concat(x, y)\nreturn b",
        "b",
        Mismatch(0, "`concat`", "`concat` reads 2 operands, expected 3 or more", ("b",)),
    ),
    "another number of operands": (
        is_op("concat")(ANY()),
        "b = R.concat(x, y)\nreturn b",
        "b",
        Mismatch(0, "`concat`", "`concat` reads 2 operands, expected 1", ("b",)),
    ),
    "a repeated operand": (
        is_op("concat")(any_number(TANH(ANY()))),
        "a = R.tanh(x)\nb = R.concat(a, a, y)\nreturn b",
        "b",
        Mismatch(2, "operand 2 of `concat`", "operand 2 of `concat` is a parameter, expected `tanh`", ()),
    ),
    "either order, the deeper": (
        is_op("add")(TANH(is_op("exp")(ANY())), ANY()),
        "a = R.tanh(x)\nb = R.add(y, a)\nreturn b",
        "b",
        Mismatch(2, "operand 0 of `tanh`", "operand 0 of `tanh` is a parameter, expected `exp`", ()),
    ),
    "the best alternative": (
        RELU(is_op("exp")(ANY()) | TANH(is_op("exp")(ANY()))),
        "a = R.tanh(x)\nb = R.nn.relu(a)\nreturn b",
        "b",
        Mismatch(2, "operand 0 of `tanh`", "operand 0 of `tanh` is a parameter, expected `exp`", ()),
    ),
    "the way of an operand that leads furthest": (
        is_op("subtract")(SAME | TANH(SAME), is_op("exp")(is_op("divide")(SAME, is_const()))),
        "a = R.tanh(x)\nc = R.divide(x, y)\nd = R.exp(c)\nb = R.subtract(a, d)\nreturn b",
        "b",
        Mismatch(4, "operand 1 of `divide`", "operand 1 of `divide` is a parameter, expected a constant", ()),
    ),
    "any position": (
        sequence(TANH(ANY()), is_op("subtract")),
        "a = R.exp(x)\nb = R.subtract(a, y)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `subtract`", "operand 0 of `subtract` is made by `exp`, expected `tanh`", ("a",)),
    ),
    "through an identity": (
        RELU(is_op("nn.dense")(ANY(), ANY())),
        "a = R.tanh(x)\ni = R.cast(a, dtype='float32')\nb = R.nn.relu(i)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `nn.relu`", "operand 0 of `nn.relu` is made by `tanh`, expected `nn.dense`", ("a",)),
    ),
    "a constant through an identity": (
        RELU(is_const()),
        "a = R.tanh(x)\ni = R.cast(a, dtype='float32')\nb = R.nn.relu(i)\nreturn b",
        "b",
        Mismatch(1, "operand 0 of `nn.relu`", "operand 0 of `nn.relu` is made by `tanh`, expected a constant", ("a",)),
    ),
    "an identity of other attributes": (
        TANH(is_op("cast").has_attr(dtype="int8")),
        "a = R.exp(x)\ni = R.cast(a, dtype='float32')\nb = R.tanh(i)\nreturn b",
        "b",
        Mismatch(1, "attribute `dtype` of `cast`", "attribute `dtype` of `cast` is 'float32', expected 'int8'", ("i",)),
    ),
    "the inputs": (
        is_op("add")(TANH(ANY()), ANY()),
        "a = R.tanh(x)\nc = R.exp(a)\nb = R.add(a, c)\nreturn b",
        "b",
        Mismatch(2, "the inputs", "an input of the match depends on a result of the match", ("b",)),
    ),
    "the reader": (
        RELU(TANH(ANY())),
        "a = R.tanh(x)\nb = R.exp(a)\nc = R.exp(a)\nd = R.sin(a)\nreturn b, c, d",
        "a",
        Mismatch(1, "the reader of `tanh`", "`tanh` is read by `exp`, `sin`, expected `nn.relu`", ("b", "c", "d")),
    ),
    "no reader": (
        RELU(TANH(ANY())),
        "a = R.tanh(x)\nb = R.exp(x)\nreturn b",
        "a",
        Mismatch(1, "the reader of `tanh`", "`tanh` is not read, expected `nn.relu`", ()),
    ),
    "the function reads": (
        RELU(TANH(ANY())),
        "a = R.tanh(x)\nreturn a",
        "a",
        Mismatch(1, "the reader of `tanh`", "`tanh` is returned by the function, expected `nn.relu`", ()),
    ),
    "an op and the function read": (
        RELU(TANH(ANY())),
        "a = R.tanh(x)\nb = R.exp(a)\nreturn a, b",
        "a",
        Mismatch(
            1,
            "the reader of `tanh`",
            "`tanh` is read by `exp` and returned by the function, expected `nn.relu`",
            ("b",),
        ),
    ),
    "an inner op's own operand": (
        RELU(is_op("subtract")(ANY(), is_const())),
        "a = R.subtract(x, y)\nb = R.nn.relu(a)\nreturn b",
        "a",
        Mismatch(1, "operand 1 of `subtract`", "operand 1 of `subtract` is a parameter, expected a constant", ()),
    ),
    "a reader's other operand": (
        RELU(is_op("subtract")(TANH(ANY()), is_const())),
        "a = R.tanh(x)\nc = R.subtract(a, y)\nb = R.nn.relu(c)\nreturn b",
        "a",
        Mismatch(2, "operand 1 of `subtract`", "operand 1 of `subtract` is a parameter, expected a constant", ()),
    ),
    "a reader further up": (
        RELU(is_op("subtract")(TANH(ANY()), ANY())),
        "a = R.tanh(x)\nc = R.subtract(a, y)\nb = R.exp(c)\nreturn b",
        "a",
        Mismatch(2, "the reader of `subtract`", "`subtract` is read by `exp`, expected `nn.relu`", ("b",)),
    ),
    "a claimed op": (
        RELU(TANH(ANY())),
        "a = R.tanh(x, codegen='other')\nb = R.nn.relu(a)\nreturn b",
        "b",
        Mismatch(
            1,
            "operand 0 of `nn.relu`",
            "operand 0 of `nn.relu` is made by `tanh`, claimed by backend `other`",
            ("a",),
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_said(case: str, scene: Callable[..., Scene]) -> None:
    pattern, body, name, expected = CASES[case]
    assert scene(body).mismatch(pattern, name) == expected


def test_where_nothing_is_to_be_said(scene: Callable[..., Scene]) -> None:
    pattern = RELU(TANH(ANY()).optional(is_op("exp")))
    fits = scene("a = R.tanh(x)\nb = R.nn.relu(a)\nc = R.sin(b)\nreturn c")
    assert [fits.mismatch(pattern, name) for name in "abc"] == [None, None, None]


def test_one_reader_that_fits_is_enough(scene: Callable[..., Scene]) -> None:
    main = scene("a = R.tanh(x)\nb = R.exp(a)\nc = R.nn.relu(a)\nreturn b, c")
    assert main.mismatch(RELU(TANH(ANY())), "a") is None


def test_the_cost_is_bounded() -> None:
    """A value with thousands of readers, each a place in the pattern, ten levels deep."""
    builder = FunctionBuilder("main")
    x = builder.param("x", Tensor((4,)))
    level = [builder.bind("tanh", [x], {}).result]
    for _ in range(4):
        level = [builder.bind("add", [value, value], {}).result for value in level for _ in range(8)]
    main = builder.finish(*level)
    pattern: Pattern = TANH(ANY())
    for _ in range(10):
        pattern = is_op("add")(pattern, ANY())
    index = FunctionIndex(main)
    assert explain_mismatch(is_op("exp")(pattern), main.bindings[0], index) is not None


def test_a_search_of_too_many_steps(scene: Callable[..., Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    main = scene("a = R.tanh(x)\nb = R.nn.relu(a)\nreturn b")
    monkeypatch.setattr(search, "MAX_STEPS", 1)
    text = "the search reached the limit: the search stopped after 1 steps"
    assert main.mismatch(RELU(TANH(is_const())), "b") == Mismatch(0, "the search", text, ())


def test_a_deep_pattern_is_explained() -> None:
    builder = FunctionBuilder("main")
    value: Any = builder.emit("exp", builder.param("x", Tensor((4,))))
    pattern: Pattern = RELU(ANY())
    for _ in range(1200):
        value = builder.emit("tanh", value)
        pattern = TANH(pattern)
    main = builder.finish(value)
    found = explain_mismatch(pattern, main.bindings[-1], FunctionIndex(main))
    text = "operand 0 of `tanh` is made by `exp`, expected `nn.relu`"
    assert found == Mismatch(1200, "operand 0 of `tanh`", text, (main.bindings[0].results[0].name,))
