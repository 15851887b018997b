"""Strides: the step of an offset from round to round."""

from __future__ import annotations

import operator

import pytest
from byoc_core.authoring import c
from byoc_core.authoring.c.strides import stride_of
from byoc_core.dims import symbol
from hypothesis import given
from hypothesis import strategies as st

ROW, COLUMN = c.Variable("i"), c.Variable("j")

_OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod}


def _expressions() -> st.SearchStrategy[c.Expression]:
    leaves = st.one_of(st.sampled_from([ROW, COLUMN]), st.integers(0, 9).map(c.Size))
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.builds(c.Binary, st.sampled_from(["+", "-", "*"]), inner, inner),
            st.builds(c.Binary, st.sampled_from(["/", "%"]), inner, st.integers(1, 9).map(c.Size)),
        ),
        max_leaves=8,
    )


def _value(expression: c.Expression, row: int, column: int) -> int:
    match expression:
        case c.Variable():
            return row if expression is ROW else column
        case c.Size(dim):
            return int(str(dim))
        case c.Binary(name, left, right):
            return int(_OPERATORS[name](_value(left, row, column), _value(right, row, column)))
    raise AssertionError(expression)


@given(expression=_expressions(), row=st.integers(0, 20), column=st.integers(0, 20))
def test_a_stride_is_the_distance_from_round_to_round(expression: c.Expression, row: int, column: int) -> None:
    stride = stride_of(expression, ROW)
    if stride is not None:
        assert _value(expression, row + 1, column) - _value(expression, row, column) == stride


@pytest.mark.parametrize(
    ("expression", "stride"),
    [
        (ROW * 4 + COLUMN, 4),
        (COLUMN - ROW * symbol("n"), -symbol("n")),
        ((ROW + 1) * 3 * 2, 6),
        (COLUMN * COLUMN, 0),
        (c.Buffer("x", "int64")[COLUMN], 0),
        (ROW * ROW, None),
        (ROW % 4, None),
        (c.Buffer("x", "int64")[ROW], None),
    ],
)
def test_strides(expression: c.Expression, stride: object) -> None:
    assert stride_of(expression, ROW) == stride
