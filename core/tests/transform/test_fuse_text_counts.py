"""Fusion of counts of n-grams with the tokens counted: permitted cases, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.ir import IRModule
from byoc_core.runtime.strings import pack_strings
from byoc_core.transform import FuseTextCounts, RemoveDeadCode, Sequential, evaluate_function
from hypothesis import given
from hypothesis import strategies as st

from core.tests.hostile_texts import texts
from core.tests.ir_text import check_pass, check_unchanged, parse_main

PARAMS = (
    'x: R.Tensor(("n",), "uint8"), k: R.Tensor(("m",), "int64"), w: R.Tensor((3,), "uint8"), '
    'v: R.Tensor((2,), "int64"), g: R.Tensor((3,), "int64"), h: R.Tensor((2,), "int64")'
)
COLUMN = PARAMS.replace('("m",)', '("m", 1)')

CASE = """
a, b = R.strings.change_case(x, k, case="lower", out_types=[R.Tensor(("c",), "uint8"), R.Tensor(("m",), "int64")])
"""
TOKENS = """
s, l, p = R.strings.token_spans({data}, {lengths}, expressions=("[a-z]+",), min_length=2, padding="#",
    out_types=[R.Tensor(("m", "t"), "int64"), R.Tensor(("m", "t"), "int64"), R.Tensor(("{size}+3",), "uint8")])
q = R.strings.take_spans(p, s, l, out_types=[R.Tensor(("d",), "uint8")])
"""
COUNTS = """
i = R.strings.key_index(q, l, w, v)
y = R.ngram_counts(i, g, h, h, num_columns=4, max_length=2, max_skip=1)
return y
"""
PLAIN = TOKENS.format(data="x", lengths="k", size="n")
FUSED = (
    'y = R.strings.ngram_counts({data}, w, v, g, h, h, {letters}expressions=("[a-z]+",), min_characters=2, '
    'padding="#", num_columns=4, max_length=2, max_skip=1)\nreturn {result}'
)


def _fused(data: str, letters: str = "", result: str = "y") -> str:
    return FUSED.format(data=data, letters=letters, result=result)


@pytest.mark.parametrize(
    ("params", "before", "after"),
    [
        (PARAMS, PLAIN + COUNTS, _fused("x, k")),
        (
            PARAMS,
            CASE + TOKENS.format(data="a", lengths="b", size="c") + COUNTS,
            _fused("x, k", 'letters="lower", '),
        ),
        # the strings in another case have another reader
        (
            PARAMS,
            CASE + TOKENS.format(data="a", lengths="b", size="c") + COUNTS.replace("return y", "return y, a"),
            CASE + _fused("a, b", result="y, a"),
        ),
        # tokens of a column of strings, as rows
        (
            COLUMN,
            PLAIN.replace('("m", "t")', '("m", 1, "t")')
            + COUNTS.replace("(q, l,", "(q, o,").replace("i =", 'o = R.reshape(l, shape=("m", "t"))\ni ='),
            _fused("x, k").replace("return y", 'y_1 = R.reshape(y, shape=("m", 4))\nreturn y_1'),
        ),
    ],
    ids=["plain", "other case", "shared case", "column"],
)
def test_fused(params: str, before: str, after: str) -> None:
    check_pass(Sequential([FuseTextCounts(), RemoveDeadCode()]), params, before, after)


@pytest.mark.parametrize(
    "body",
    [
        PLAIN + COUNTS.replace("return y", "return y, l"),
        PLAIN + COUNTS.replace("return y", "return y, q"),
        PLAIN + COUNTS.replace("return y", "return y, i"),
        PLAIN + COUNTS.replace("(q, l,", "(q, s,"),  # other lengths
        PLAIN.replace("(p, s, l,", "(p, l, l,") + COUNTS,  # other places
        PLAIN + COUNTS.replace("(i, g", "(j, g").replace("y =", "j = R.reshape(i, shape=(-1,))\ny ="),  # a single row
    ],
    ids=["lengths read", "tokens read", "numbers read", "other lengths", "other places", "one row"],
)
def test_unfused(body: str) -> None:
    check_unchanged(FuseTextCounts(), PARAMS, body)


def _evaluate(module: IRModule, arrays: list[Any]) -> list[Any]:
    return [array.tolist() for array in evaluate_function(module, "main", arrays)]


@given(st.lists(texts, max_size=4))
def test_the_numbers_stay_the_same(items: list[str]) -> None:
    module = parse_main(PARAMS, CASE + TOKENS.format(data="a", lengths="b", size="c") + COUNTS)
    fused = FuseTextCounts()(module)
    assert fused is not module
    keys = pack_strings(["ab", "#"])
    arrays = [*pack_strings(items), *keys, np.array([0, 1, 0]), np.array([1, 2])]
    assert _evaluate(fused, arrays) == _evaluate(module, arrays)
