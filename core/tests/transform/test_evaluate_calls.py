"""The reference interpreter asks for the runner of a called function."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
from byoc_core import parse
from byoc_core.ir import Function
from byoc_core.transform import evaluate_function

MODULE = parse("""
class M:
    @R.function
    def inner(x: R.Tensor((2,), "float32")):
        a = R.negative(x)
        return a

    @R.function
    def outer(x: R.Tensor((2,), "float32")):
        a = inner(x)
        b = R.add(a, x)
        return b

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        a = outer(x)
        b = inner(a)
        return a, b
""")
X = np.array([1, 2], np.float32)


def test_none_has_it_interpreted_and_each_call_is_asked_for() -> None:
    seen: list[str] = []

    def watch(function: Function, inputs: Sequence[Any]) -> None:
        seen.append(function.name)

    a, b = evaluate_function(MODULE, "main", [X], on_call=watch)
    assert seen == ["outer", "inner", "inner"]
    np.testing.assert_array_equal([a, b], np.zeros((2, 2)))


def test_what_it_gives_goes_on() -> None:
    def double(function: Function, inputs: Sequence[Any]) -> list[Any] | None:
        return [2 * inputs[0]] if function.name == "inner" else None

    a, b = evaluate_function(MODULE, "main", [X], on_call=double)
    np.testing.assert_array_equal(a, 3 * X)
    np.testing.assert_array_equal(b, 6 * X)


def test_a_value_that_nothing_reads_any_more_is_not_held() -> None:
    module = parse("""
class M:
    @R.function
    def step(x: R.Tensor((2,), "float32")):
        y = R.negative(x)
        return y

    @R.function
    def main(x: R.Tensor((2,), "float32")):
        a = step(x)
        b = step(a)
        c = step(b)
        d = step(c)
        return b, d
""")
    made: list[weakref.ref[Any]] = []
    alive: list[list[bool]] = []

    def watch(function: Function, inputs: Sequence[Any]) -> list[Any]:
        alive.append([ref() is not None for ref in made])
        result = np.negative(inputs[0])
        made.append(weakref.ref(result))
        return [result]

    evaluate_function(module, "main", [X], on_call=watch)
    assert alive == [[], [True], [False, True], [False, True, True]]
