"""Estimates: operations, bytes and rounds before anything is compiled."""

from __future__ import annotations

import pytest
from byoc_core.authoring.c import (
    Address,
    Buffer,
    Call,
    Callee,
    Copy,
    CType,
    Dispatch,
    Estimate,
    Evaluate,
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


def test_a_dispatch_counts_its_statements_and_takes_the_time_that_it_states() -> None:
    first, end = Variable("first"), Variable("end")
    loop = For(ROW, first, end, (Store(OUT, ROW, X[ROW] * X[ROW]),))
    function = Function("f", (X, OUT), (Dispatch(first, end, (loop,), N, 1, N * 7),))
    assert estimate(function) == Estimate(N, N * 12, N * 7)


def test_a_called_function_counts_its_statements_at_the_sizes_of_the_call() -> None:
    length, source, target = (
        Variable("length"),
        Buffer("source", "float32"),
        Buffer("target", "float32", MemoryAccess.WRITE),
    )
    body = (For(ROW, Size(0), length, (Store(target, ROW, source[ROW] * source[ROW]),)),)
    square = Callee("square", writes=(1,), function=Function("square", (source, target, length), body))
    call = Evaluate(Call(square, (Address(X, Size(0)), Address(OUT, Size(0)), Size(N))))
    assert estimate(Function("f", (X, OUT), (call,))) == Estimate(N, N * 12, N * 100)
    known = Evaluate(Call(Callee("f", abs, flops=3), (Literal(1, CType("float32")),), CType("float32")))
    assert estimate(Function("f", (X, OUT), (known,))) == Estimate(3, 0, 150)


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
