"""C variables for sizes: each call is computed once, and no value changes."""

from __future__ import annotations

import re

import pytest
from byoc_core.authoring.size_names import SizeNames
from byoc_core.dims import Dim, evaluate, parse_dim
from byoc_core.dims.substitution import replace_calls
from byoc_core.errors import IRTypeError
from hypothesis import assume, given
from hypothesis import strategies as st

from core.tests.authoring.drawn_sizes import CALL, SYMBOLS, sizes, value_of_c

VALUES = st.fixed_dictionaries({name: st.integers(0, 40) for name in SYMBOLS})


def _expected(dim: Dim, values: dict[str, int]) -> int:
    try:
        return evaluate(dim, values)
    except IRTypeError:  # a broadcast of sizes that do not fit: refused before any call
        assume(False)
        raise


@given(st.lists(sizes, min_size=1, max_size=6), VALUES)
def test_variables_have_the_values_of_the_sizes(dims: list[Dim], values: dict[str, int]) -> None:
    names = SizeNames(SYMBOLS)
    texts = [(names.text(dim), names.variable(dim), names.real(dim)) for dim in dims]
    for dim, (text, variable, real) in zip(dims, texts, strict=True):
        expected = _expected(dim, values)
        assert value_of_c(names.definitions, text, values) == expected
        assert value_of_c(names.definitions, variable, values) == expected
        assert value_of_c(names.definitions, real, values) == expected
        assert not CALL.search(text + variable + real)
        assert re.fullmatch(r"\w+|\(-\d+\)", variable)


@given(st.lists(sizes, min_size=1, max_size=6))
def test_a_size_is_computed_once(dims: list[Dim]) -> None:
    names = SizeNames(SYMBOLS)
    first = [names.variable(dim) for dim in dims]
    values = [line.partition(" = ")[2] for line in names.definitions]
    assert len(values) == len(set(values))
    assert all(len(CALL.findall(value)) <= 1 for value in values)
    num_definitions = len(names.definitions)
    assert [names.variable(dim) for dim in dims] == first
    assert len(names.definitions) == num_definitions


def test_shared_parts_are_computed_once() -> None:
    names = SizeNames(["n"])
    assert names.text(parse_dim("((n+3)//5+1)//(n//2+1)")) == "dim_size_2"
    assert names.text(parse_dim("3*((n+3)//5)+n")) == "(dim_n + 3 * dim_size_0)"
    assert list(names.definitions) == [
        "const int64_t dim_size_0 = byoc_floordiv((dim_n + 3), 5);",
        "const int64_t dim_size_1 = byoc_floordiv(dim_n, 2);",
        "const int64_t dim_size_2 = byoc_floordiv((dim_size_0 + 1), (dim_size_1 + 1));",
    ]


def test_variables_leave_the_names_of_symbols() -> None:
    names = SizeNames(["n", "size_0"])
    assert names.text(parse_dim("n//2+size_0")) == "(dim_size_0 + dim_size_1)"


def test_polynomials_are_unchanged() -> None:
    dim = parse_dim("3*n*m+2")
    assert replace_calls(dim, lambda *_: pytest.fail("no call")) is dim
    names = SizeNames(["n", "m"])
    assert (names.text(dim), list(names.definitions)) == ("(3 * dim_m * dim_n + 2)", [])
