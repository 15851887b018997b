"""Readers of JSON values from files of any origin."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from byoc_core.dims import Dim, parse_dim
from byoc_core.runtime.json_records import (
    DIM,
    DTYPE,
    SIZE,
    MisfitError,
    OptionalField,
    Reader,
    any_json,
    flag,
    integer,
    list_of,
    mapping_of,
    one_of,
    parse_json,
    record,
    shape_of,
    text,
    to_json,
)
from byoc_core.runtime.module import TensorSpec

pytestmark = pytest.mark.interpreter


@dataclass(frozen=True)
class Pair:
    """A record to read."""

    name: str
    sizes: tuple[int, ...]


READ_PAIR = record(Pair, name=text(min_length=1, max_length=3), sizes=list_of(SIZE, max_length=2))
READ_SPEC = record(TensorSpec, name=text(), dtype=DTYPE, shape=shape_of(max_rank=2))
READ_TABLE = mapping_of(text("[a-z]+"), integer(1, 9))


def test_what_fits_is_read() -> None:
    assert READ_PAIR({"sizes": [0, 2**63 - 1], "name": "abc"}) == Pair("abc", (0, 2**63 - 1))
    assert READ_TABLE({"b": 9, "a": 1}) == {"b": 9, "a": 1}
    assert flag(True) is True
    assert one_of("x", 3)(3) == 3
    assert any_json({"a": [1.5, None]}) == {"a": [1.5, None]}


def test_a_record_is_written_as_it_is_read() -> None:
    spec = TensorSpec("x", "float32", (3, parse_dim("2*n+1")))
    written = json.dumps(spec, default=to_json)
    assert json.loads(written) == {"name": "x", "dtype": "float32", "shape": [3, "2*n+1"]}
    assert READ_SPEC(parse_json(written.encode())) == spec
    with pytest.raises(TypeError, match=r"^set has no JSON form$"):
        json.dumps({1}, default=to_json)


def test_a_field_may_be_missing() -> None:
    @dataclass(frozen=True)
    class Named:
        name: str
        size: Dim | None = None

    read = record(Named, name=text(), size=OptionalField(DIM))
    for named in (Named("a"), Named("a", 3), Named("a", parse_dim("n+1"))):
        written = json.dumps(named, default=to_json)
        assert ("size" in written) is (named.size is not None)
        assert read(json.loads(written)) == named
    with pytest.raises(MisfitError, match=r"^more: Extra inputs are not permitted$"):
        read({"name": "a", "more": 1})


REFUSED: list[tuple[Reader[Any], object, str]] = [
    (READ_PAIR, [], "document: An object is required"),
    (READ_PAIR, {"name": "a"}, "sizes: The field is required"),
    (READ_PAIR, {"name": "a", "sizes": [], "z": 1, "y": 2}, "y: Extra inputs are not permitted"),
    (READ_PAIR, {"name": 1, "sizes": []}, "name: A text is required"),
    (READ_PAIR, {"name": "", "sizes": []}, "name: A text of 1 to 3 characters is required"),
    (READ_PAIR, {"name": "abcd", "sizes": []}, "name: A text of 1 to 3 characters is required"),
    (READ_PAIR, {"name": "a", "sizes": "12"}, "sizes: A list is required"),
    (READ_PAIR, {"name": "a", "sizes": [1, 2, 3]}, "sizes: A list of at most 2 items is required"),
    (READ_PAIR, {"name": "a", "sizes": [1, -1]}, f"sizes.1: An integer from 0 to {2**63 - 1} is required"),
    (READ_PAIR, {"name": "a", "sizes": [2**63]}, f"sizes.0: An integer from 0 to {2**63 - 1} is required"),
    (READ_PAIR, {"name": "a", "sizes": [True]}, "sizes.0: An integer is required"),
    (READ_PAIR, {"name": "a", "sizes": [1.0]}, "sizes.0: An integer is required"),
    (integer(1), 0, "document: An integer of 1 or more is required"),
    (READ_TABLE, [], "document: An object is required"),
    (READ_TABLE, {"a": 0}, "a: An integer from 1 to 9 is required"),
    (READ_TABLE, {"A": 1}, "A: A text of the form [a-z]+ is required"),
    (READ_TABLE, {"a\n": 1}, "a\n: A text of the form [a-z]+ is required"),
    (flag, 1, "document: A boolean is required"),
    (one_of("x", 3), "y", "document: The value 'x' or 3 is required"),
    (one_of(1), True, "document: The value 1 is required"),
    (any_json, [], "document: An object is required"),
    (READ_SPEC, {"name": "x", "dtype": "f", "shape": []}, "dtype: Value error, unknown dtype 'f'"),
    (READ_SPEC, {"name": "x", "dtype": 1, "shape": []}, "dtype: A text is required"),
    (READ_SPEC, {"name": "x", "dtype": "bool", "shape": ["n//0"]}, "shape: Value error, division by zero"),
    (READ_SPEC, {"name": "x", "dtype": "bool", "shape": [None]}, "shape.0: An integer is required"),
    (READ_SPEC, {"name": "x", "dtype": "bool", "shape": [1, 2, 3]}, "shape: A list of at most 2 items is required"),
    (
        READ_SPEC,
        {"name": "x", "dtype": "bool", "shape": ["7"]},
        "shape: Value error, the size '7' is a number in text form",
    ),
]


@pytest.mark.parametrize(("read", "value", "problem"), REFUSED)
def test_what_does_not_fit_is_refused_with_its_place(read: Reader[Any], value: object, problem: str) -> None:
    with pytest.raises(MisfitError) as caught:
        read(value)
    assert str(caught.value) == problem


@pytest.mark.parametrize("make", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_nesting_is_bounded(make: Callable[[object], object]) -> None:
    value: Any = 1
    for _ in range(199):
        value = make(value)
    assert any_json({"a": value}) == {"a": value}
    with pytest.raises(MisfitError, match=r"^document: nested too deep$"):
        any_json({"a": make(value)})


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b"[NaN]", b"[-Infinity]", b'"\\ud800"', b'{"\\uDFFF": 1}', b"[" * 100_000]
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_json(data)


def test_pairs_of_surrogates_are_characters() -> None:
    assert parse_json(b'["\\ud83d\\ude00"]') == ["\U0001f600"]
