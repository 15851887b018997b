"""Estimates: operations, bytes and rounds before anything is compiled."""

from __future__ import annotations

import pytest
from byoc_core.authoring.c import (
    Buffer,
    Copy,
    CType,
    Estimate,
    Expression,
    For,
    Function,
    Literal,
    MemoryAccess,
    Select,
    Size,
    Store,
    Variable,
    estimate,
)
from byoc_core.authoring.c.estimate import rounds_of
from byoc_core.dims import Dim, symbol

ROW = Variable("i")
X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
N = symbol("n")


def test_rounds_multiply_the_work_of_a_body() -> None:
    body = (Store(OUT, ROW, X[ROW] * X[ROW] + Literal(1, CType("float32"))),)
    assert estimate(Function("f", (X, OUT), (For(ROW, Size(0), Size(N), body),))) == Estimate(N * 2, N * 12, N * 150)
    assert estimate(Function("f", (X, OUT), (Copy(OUT, Size(0), X, Size(0), Size(N)),))).nbytes == N * 8


@pytest.mark.parametrize(
    ("stop", "rounds"),
    [
        (Size(9), 5),
        (Size(-3), 0),
        (Size(N * 2), N),
        (Select(Size(N).compare("<", 8), Size(N), Size(8)), 4),
    ],
    ids=str,
)
def test_rounds_of_a_loop_in_steps_of_2(stop: Expression, rounds: Dim) -> None:
    if isinstance(stop, Select):
        stop = Select(stop.condition, Variable("rest"), stop.otherwise)
    assert rounds_of(For(ROW, Size(0), stop, (), step=2)) == rounds
