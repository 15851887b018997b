"""Equations of Einstein sums: labels and sizes. Errors in equations are tested with the errors of the ops."""

from __future__ import annotations

import pytest
from byoc_core.dims import Dim, symbol
from byoc_core.errors import IRTypeError
from byoc_core.ops import Equation, parse_equation

_N, _M = symbol("n"), symbol("m")

_CASES: list[tuple[str, list[tuple[Dim, ...]], Equation]] = [
    ("ij, jk -> ik", [(2, 3), (3, 4)], Equation((("i", "j"), ("j", "k")), ("i", "k"), {"i": 2, "j": 3, "k": 4})),
    ("ba,ac", [(2, 3), (3, 4)], Equation((("b", "a"), ("a", "c")), ("b", "c"), {"b": 2, "a": 3, "c": 4})),
    ("ii", [(_N, _N)], Equation((("i", "i"),), (), {"i": _N})),
    ("i,i->i", [(1,), (_N,)], Equation((("i",), ("i",)), ("i",), {"i": _N})),
    (
        "...i,i...j->...j",
        [(5, 7, 2), (2, 7, 3)],
        Equation((("1", "0", "i"), ("i", "0", "j")), ("1", "0", "j"), {"1": 5, "0": 7, "i": 2, "j": 3}),
    ),
    ("b...a", [(2, 3, 4)], Equation((("b", "0", "a"),), ("0", "a", "b"), {"b": 2, "0": 3, "a": 4})),
    ("...,...->", [(2,), ()], Equation((("0",), ()), (), {"0": 2})),
]


@pytest.mark.parametrize(("text", "shapes", "expected"), _CASES, ids=[case[0] for case in _CASES])
def test_labels_and_sizes(text: str, shapes: list[tuple[Dim, ...]], expected: Equation) -> None:
    found = parse_equation(text, shapes)
    assert found == expected
    assert list(found.sizes) == list(expected.sizes)
    assert set(found.summed) == found.sizes.keys() - set(found.result)


def test_an_error_names_the_operand() -> None:
    with pytest.raises(IRTypeError) as caught:
        parse_equation("i,i->", [(_N,), (2, _M)])
    assert str(caught.value) == "op `einsum`, operand 1: has rank 2, but attribute `equation` names 1 axes; got 'i'"
