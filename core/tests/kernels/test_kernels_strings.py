"""Kernels of strings and n-grams, against Python's strings and by hand."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.errors import CallError, ExecutionError, IRTypeError
from byoc_core.ir import tensor
from byoc_core.kernels import strings as reference
from byoc_core.kernels.token_runs import token_runs
from byoc_core.kernels.tokens import compile_expression
from byoc_core.ops import FunctionBuilder
from byoc_core.opset.families import KERNELS
from byoc_core.runtime.sequences import unpack_sequence
from byoc_core.runtime.strings import pack_strings, unpack_strings
from hypothesis import given
from hypothesis import strategies as st

from core.tests.hostile_texts import EXPRESSIONS, texts

NDArray = npt.NDArray[Any]

ORACLES = {
    "strings.change_case": "str.lower, str.upper",
    "strings.take_spans": "slices of bytes",
    "strings.key_index": "list.index",
    "strings.token_spans": "re.findall, and ONNX Runtime in tests of byoc-mlops",
    "ngram_counts": "by hand, and ONNX Runtime in frontend/test_onnx_texts.py",
    "strings.ngram_counts": "the ops of its stages",
}


def _tokens(x: NDArray, **attrs: Any) -> list[Any]:
    """Return the tokens of strings as strings."""
    given = {"kind": "matches", "expressions": (), "min_length": 1, "mark": False, "padding": "#", **attrs}
    starts, lengths, pool = KERNELS["strings.token_spans"](*pack_strings(x), **given)
    tokens: list[Any] = unpack_strings(KERNELS["strings.take_spans"](pool, starts, lengths), lengths).tolist()
    return tokens


@given(st.lists(texts, max_size=5), st.sampled_from(["lower", "upper"]))
def test_other_cases(items: list[str], case: str) -> None:
    found = unpack_strings(*KERNELS["strings.change_case"](*pack_strings(items), case=case))
    assert found.tolist() == [getattr(item, case)() for item in items]


@given(st.lists(texts, max_size=5), st.lists(texts, max_size=5))
def test_strings_are_found_like_items_of_a_list(items: list[str], keys: list[str]) -> None:
    found = KERNELS["strings.key_index"](*pack_strings([*items, *keys]), *pack_strings(keys))
    assert found.tolist() == [keys.index(text) if text in keys else len(keys) for text in [*items, *keys]]


@given(st.binary(max_size=9), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=4))
def test_bytes_at_places(data: bytes, places: list[tuple[int, int]]) -> None:
    inside = [(start, length) for start, length in places if start + length <= len(data)]
    starts, lengths = (np.array([place[i] for place in inside], np.int64) for i in (0, 1))
    found = KERNELS["strings.take_spans"](np.frombuffer(data, np.uint8), starts, lengths)
    assert found.tobytes() == b"".join(data[start : start + length] for start, length in inside)


@given(st.lists(texts, min_size=1, max_size=4), st.sampled_from(EXPRESSIONS), st.integers(1, 3))
def test_tokens_are_parts_of_their_strings(
    items: list[str], kind: tuple[str, tuple[str, ...]], min_length: int
) -> None:
    rows = _tokens(np.array(items, object), kind=kind[0], expressions=kind[1], min_length=min_length, padding="\x04")
    for text, row in zip(items, rows, strict=True):
        position = 0
        for token in row:
            if token == "\x04":
                continue
            position = text.index(token, position) + len(token)
            assert len(token) >= (1 if kind[0] == "characters" else min_length)
        assert "\x04" not in row or set(row[row.index("\x04") :]) == {"\x04"}


@given(st.lists(texts, max_size=4), st.sampled_from([r"[a-z]+", r"\w+", r"[^,]+", "ab+"]))
def test_matches_are_those_of_re(items: list[str], expression: str) -> None:
    rows = _tokens(np.array(items, object), expressions=(expression,), padding="")
    assert [[token for token in row if token] for row in rows] == [
        re.findall(expression, text, re.ASCII) for text in items
    ]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.sampled_from(EXPRESSIONS))
def test_members_of_runs_are_matched_characters(text: str, kind: tuple[str, tuple[str, ...]]) -> None:
    runs = token_runs(*kind, 1)
    if runs is None or kind[0] != "matches":
        return
    single = compile_expression(f"(?:{kind[1][0]})")
    for character in text:
        is_member = runs.is_member[character.encode()[0]]
        assert is_member == (single.fullmatch(character * 2) is not None)


def test_words_of_two_characters_are_runs() -> None:
    assert _tokens(np.array(["a bc def", "x"], object), expressions=(r"\b\w\w+\b",)) == [["bc", "def"], ["#", "#"]]


@pytest.mark.parametrize("kind", ["matches", "separated"])
def test_marks_stand_around_the_tokens_of_each_string(kind: str) -> None:
    expressions = ("[a-z]+",) if kind == "matches" else (" ",)
    found = _tokens(np.array([["a b", ""]], object), kind=kind, expressions=expressions, mark=True)
    assert found == [[["\x02", "a", "b", "\x03"], ["\x02", "\x03", "#", "#"]]]


def test_damaged_operands() -> None:
    data = np.frombuffer(b"a\xffc", np.uint8)
    tokens = {"kind": "matches", "expressions": ("a",), "min_length": 1, "mark": False, "padding": ""}
    with pytest.raises(ExecutionError, match="has lengths that do not fit the bytes; got 2, expected 3"):
        KERNELS["strings.token_spans"](data, np.array([1, 1]), **tokens)
    with pytest.raises(ExecutionError, match="has a string other than UTF-8"):
        KERNELS["strings.token_spans"](data, np.array([1, 2]), **tokens)
    with pytest.raises(ExecutionError, match="has another number of lengths than starts; got 1, expected 3"):
        KERNELS["strings.take_spans"](data, np.array([0, 1, 2]), np.array([1]))
    for start, length in ((0, 4), (2, -1), (-1, 1), (3, 1)):
        with pytest.raises(ExecutionError, match="has a place outside the bytes; expected 0 to 3"):
            KERNELS["strings.take_spans"](data, np.array([start]), np.array([length]))
    for lengths in ([3], [-1, 4], [1 << 62] * 4 + [2]):
        with pytest.raises(ExecutionError, match=r"op `strings\.key_index`: has lengths that do not fit the bytes"):
            KERNELS["strings.key_index"](data[:2], np.array(lengths), data[:0], np.zeros(0, np.int64))


def _count(x: list[Any], grams: list[list[int]], **attrs: int) -> list[Any]:
    given = {"num_columns": len(grams), "min_length": 1, "max_length": 3, "max_skip": 0, **attrs}
    items = np.array([item for gram in grams for item in gram], np.int64)
    sizes, columns = np.array([len(gram) for gram in grams], np.int64), np.arange(len(grams))
    found: list[Any] = KERNELS["ngram_counts"](np.array(x, np.int64), items, sizes, columns, **given).tolist()
    return found


def test_counts_of_ngrams() -> None:
    grams = [[1], [1, 2], [1, 2, 1], [3]]
    assert _count([[1, 2, 1, 2], [3, 3, 1, 0]], grams) == [[2, 2, 1, 0], [1, 0, 0, 2]]
    assert _count([1, 2, 1, 2], grams, min_length=2) == [0, 2, 1, 0]
    assert _count([1, 2, 1, 2], grams, max_length=1) == [2, 0, 0, 0]
    # 1 and 2 stand side by side twice, and once with two other items in between; single items count once
    assert _count([1, 2, 1, 2], grams, max_skip=3) == [2, 3, 1, 0]
    assert _count([[], []], grams) == [[0, 0, 0, 0]] * 2


@given(
    st.lists(texts, min_size=1, max_size=4), st.sampled_from(["keep", "lower", "upper"]), st.sampled_from(EXPRESSIONS)
)
def test_counts_of_tokens_are_counts_of_their_numbers(
    items: list[str], letters: str, kind: tuple[str, tuple[str, ...]]
) -> None:
    keys, grams = pack_strings(["ab", "a", "#"]), tuple(map(np.array, ([0, 1, 1, 2], [1, 1, 2], [2, 0, 1])))
    counts = {"num_columns": 3, "min_length": 1, "max_length": 2, "max_skip": 1}
    tokens = {"kind": kind[0], "expressions": kind[1], "mark": False, "padding": "#"}
    found = KERNELS["strings.ngram_counts"](
        *pack_strings(items), *keys, *grams, letters=letters, min_characters=1, **tokens, **counts
    )
    changed = [getattr(item, letters)() if letters != "keep" else item for item in items]
    words = np.array(_tokens(np.array(changed, object), **tokens), object)
    index = KERNELS["strings.key_index"](*pack_strings(words), *keys)
    np.testing.assert_array_equal(found, KERNELS["ngram_counts"](index, *grams, **counts))


def test_damaged_ngrams() -> None:
    x, attrs = np.zeros(3, np.int64), {"num_columns": 2, "min_length": 1, "max_length": 1, "max_skip": 0}
    for items, sizes, columns, message in (
        ([1], [2], [0], "has sizes that do not fit the items; got 2"),
        ([1], [0, 1], [0, 0], "has sizes that do not fit the items; got 1"),
        ([1], [2**63 - 1, 2**63 - 1, 3], [0, 0, 0], "has sizes that do not fit the items; got 18446744073709551617"),
        ([1], [1], [2], "has a column outside; expected 0 to 1"),
        ([1], [1], [-1], "has a column outside; expected 0 to 1"),
    ):
        with pytest.raises(ExecutionError, match=f"op `ngram_counts`: {message}"):
            KERNELS["ngram_counts"](x, *(np.array(part, np.int64) for part in (items, sizes, columns)), **attrs)


LENGTHS = st.lists(st.integers(-1, 3) | st.integers(2**62 - 2, 2**62 + 2), max_size=6)


@given(st.integers(0, 6), LENGTHS)
def test_lengths_fit_if_their_exact_sum_is_the_number_of_bytes(num_bytes: int, lengths: list[int]) -> None:
    data, array = np.full(num_bytes, 97, np.uint8), np.array(lengths, np.int64)
    fits = min(lengths, default=0) >= 0 and sum(lengths) == num_bytes
    calls = (
        (CallError, lambda: reference.unpack_strings(data, array)),
        (ExecutionError, lambda: KERNELS["strings.change_case"](data, array, case="upper")),
    )
    for error, call in calls:
        if fits:
            call()
        else:
            with pytest.raises(error, match=rf"lengths that do not fit the bytes; got {sum(lengths)}, "):
                call()


@given(st.integers(0, 6), LENGTHS)
def test_rows_lie_in_the_elements_if_their_exact_sum_does(num_elements: int, lengths: list[int]) -> None:
    elements, array = np.arange(num_elements), np.array(lengths, np.int64)
    if min(lengths, default=0) >= 0 and sum(lengths) <= num_elements:
        KERNELS["ragged_take"](elements, array, np.arange(len(lengths)))
    else:
        with pytest.raises(ExecutionError, match="has rows beyond the elements"):
            KERNELS["ragged_take"](elements, array, np.arange(len(lengths)))


def test_shapes_of_a_sequence_beyond_64_bits_do_not_fit() -> None:
    with pytest.raises(CallError, match="has shapes that do not fit the elements"):
        unpack_sequence(np.zeros(0), np.array([[1 << 32, 1 << 32]]))


def _emit_tokens(op: str, **attrs: Any) -> None:
    builder = FunctionBuilder("main")
    data, lengths = builder.param("data", tensor((6,), "uint8")), builder.param("lengths", tensor((1,), "int64"))
    if op == "strings.token_spans":
        spans, pool = tensor((1, "t"), "int64"), tensor((9,), "uint8")
        builder.emit(op, data, lengths, out_types=[spans, spans, pool], **attrs)
    else:
        keys = builder.param("keys", tensor((2,), "int64"))
        builder.emit(op, data, lengths, data, lengths, keys, keys, keys, num_columns=2, **attrs)


@pytest.mark.parametrize("op", ["strings.token_spans", "strings.ngram_counts"])
@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        (
            {"expressions": ("(",)},
            "has a malformed expression: missing ), unterminated subpattern at position 0; got '('",
        ),
        (
            {"kind": "separated", "expressions": ("b", "a{5,2}")},
            "has a malformed expression: min repeat greater than max repeat at position 2; got 'a{5,2}'",
        ),
        (
            {"expressions": ("a{99999999999999999999}",)},
            "has a malformed expression: the repetition number is too large; got 'a{99999999999999999999}'",
        ),
        (
            {"expressions": ("a",), "padding": "\ud800"},
            r"attribute `padding` is no text of UTF-8; got '\ud800'",
        ),
    ],
)
def test_attributes_of_tokens_are_checked_while_building(op: str, attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(IRTypeError) as caught:
        _emit_tokens(op, **attrs)
    assert str(caught.value) == f"op `{op}`: {message}"


def test_deeply_nested_expressions_are_refused_while_building() -> None:
    with pytest.raises(IRTypeError, match="has a malformed expression: "):
        _emit_tokens("strings.token_spans", expressions=("(" * 100_000 + ")" * 100_000,))
