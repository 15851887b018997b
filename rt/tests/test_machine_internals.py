"""Internal parts of the C runtime against Python: sizes, JSON, checksums."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

import pytest
from byoc_core.dims import evaluate, read_dim
from byoc_core.errors import IRTypeError
from byoc_core.native.toolchain import Toolchain
from hypothesis import given
from hypothesis import strategies as st

from core.tests.test_dims import build, sizes, trees
from rt.tests.internals import PartError, Parts

pytestmark = pytest.mark.skipif(not Toolchain.status().ok, reason="no C compiler")

INT64 = st.integers(-(2**63), 2**63 - 1)
# Python's parser accepts half of a surrogate pair, which has no form in UTF-8.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | INT64 | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Parts:
    """Return the compiled parts."""
    return Parts(tmp_path_factory.mktemp("parts"))


@given(trees, sizes)
def test_sizes_have_the_values_of_the_algebra(parts: Parts, tree: Any, values: dict[str, int]) -> None:
    dim = build(tree)
    try:
        expected = evaluate(dim, values)
    except IRTypeError:
        with pytest.raises(PartError, match="cannot be computed"):
            parts.evaluate(str(dim), values)
    else:
        assert parts.evaluate(str(dim), values) == expected


@given(st.text("nmax()+-*/%,0123456789_ b", max_size=12), sizes)
def test_any_text_is_read_as_by_python_or_refused(parts: Parts, text: str, values: dict[str, int]) -> None:
    try:
        found = parts.evaluate(text, {**values, "n": 5})
    except PartError:
        return
    assert found == evaluate(read_dim(text), {**values, "n": 5})


def test_sizes_without_a_value_are_explained(parts: Parts) -> None:
    assert parts.evaluate("broadcast(n, m)", {"n": 1, "m": 7}) == 7
    for text, values, problem in (
        ("2*n+k", {"n": 3}, "here: size 2*n+k is not determined by the inputs: k is unknown"),
        ("7//n", {"n": 0}, "here: size 7//n cannot be computed with n = 0: a divisor is 0"),
        ("broadcast(n, m)", {"n": 2, "m": 3}, "cannot be computed with n = 2, m = 3"),
        ("n*n", {"n": 2**40}, "a number exceeds 64 bits"),
        ("9223372036854775808", {}, "a number exceeds 64 bits"),
        ("n+", {}, "size `n+`: cannot be read as an integer expression"),
        ("07", {}, "a number begins with 0"),
        ("(" * 80 + "n" + ")" * 80, {}, "is nested too deep"),
        ("+".join("n" * 3000), {}, "is too long"),
    ):
        with pytest.raises(PartError) as caught:
            parts.evaluate(text, values)
        assert problem in str(caught.value)


def test_long_sums_have_a_value(parts: Parts) -> None:
    text = "+".join(f"{factor}*a{factor}" for factor in range(2, 1000))
    values = {f"a{factor}": factor for factor in range(2, 1000)}
    assert parts.evaluate(text, values) == evaluate(read_dim(text), values)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_json_values_are_read(parts: Parts, value: Any, is_ascii: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, indent=indent).encode()
    found = parts.read_json(text)
    assert found == value
    assert json.dumps(found) == json.dumps(value)  # ints stay ints, and zeros keep their sign


@given(VALUES, st.data())
def test_damaged_json_is_read_as_by_python_or_refused(parts: Parts, value: Any, data: st.DataObject) -> None:
    text = bytearray(json.dumps(value).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
        if not text:
            return
    try:
        found = parts.read_json(bytes(text))
    except PartError:
        return
    expected = json.loads(bytes(text))
    assert _without_nan(found) == _without_nan(expected)


def _without_nan(value: Any) -> str:
    return json.dumps(value, allow_nan=False, sort_keys=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "unknown value at byte 0"),
        (b"[1,]", "unknown value at byte 3"),
        (b"[1 2]", "a comma is missing at byte 3"),
        (b'{"a":1,"a":2}', "a name twice in an object"),
        (b'{"a" 1}', "a colon is missing"),
        (b'"a\nb"', "a control character"),
        (b'"\\ud800"', "a malformed escape"),
        (b'"\\x"', "a malformed escape"),
        (b'"a', "a text without an end"),
        (b"\xff", "bytes other than UTF-8"),
        (b"9223372036854775808", "an integer of more than 64 bits"),
        (b"1e999", "a number beyond double precision"),
        (b"NaN", "an unknown value"),
        (b"01", "bytes behind the value"),
        (b"1.", "a fraction without digits"),
        (b"[" * 300, "nested too deep"),
        (b"true1", "bytes behind the value"),
    ],
)
def test_wrong_json_is_refused_with_the_place(parts: Parts, text: bytes, problem: str) -> None:
    with pytest.raises(PartError, match="here: is not JSON text: ") as caught:
        parts.read_json(text)
    assert problem in str(caught.value)


def test_json_numbers_do_not_depend_on_the_locale(parts: Parts) -> None:
    import locale

    before = locale.setlocale(locale.LC_NUMERIC)
    for name in ("de_DE.UTF-8", "fr_FR.UTF-8", "C.UTF-8", "C"):
        try:
            locale.setlocale(locale.LC_NUMERIC, name)
        except locale.Error:
            continue
        try:
            assert parts.read_json(b"[1.5, 5e-324, 1.7976931348623157e308]") == [1.5, 5e-324, 1.7976931348623157e308]
        finally:
            locale.setlocale(locale.LC_NUMERIC, before)


@given(st.lists(st.binary(max_size=200), max_size=5), st.integers(0, 300))
def test_checksums_are_those_of_python(parts: Parts, chunks: list[bytes], length: int) -> None:
    chunks = [*chunks, bytes(range(256))[:length] * (1 + length % 3)]
    whole = b"".join(chunks)
    assert parts.sha256(*chunks) == hashlib.sha256(whole).digest()
    assert parts.crc32(whole) == zlib.crc32(whole)
