"""Estimates: operations, bytes and rounds before compilation."""

from __future__ import annotations

import pytest
from byoc_core.authoring.c import (
    INDEX,
    Address,
    Assign,
    Binary,
    Buffer,
    Call,
    Callee,
    Cast,
    Copy,
    CType,
    Declare,
    Dispatch,
    Estimate,
    Evaluate,
    Expression,
    For,
    Function,
    If,
    Let,
    Literal,
    Load,
    LocalArray,
    MemoryAccess,
    ParallelWork,
    Select,
    Size,
    Store,
    Variable,
    While,
    estimate,
    index_min,
    parallel_works,
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


def test_a_dispatch_that_states_no_time_takes_that_of_its_statements() -> None:
    first, end = Variable("first"), Variable("end")
    loop = For(ROW, first, end, (Store(OUT, ROW, X[ROW] * X[ROW]),))
    dispatch = Dispatch(first, end, (loop,), N)
    assert estimate(Function("f", (X, OUT), (dispatch,))) == Estimate(N, N * 12, N * 100)
    (work,) = parallel_works(Function("f", (X, OUT), (dispatch,)))
    assert work == ParallelWork(N, N * 100)


def test_a_tile_counts_as_a_whole_one() -> None:
    """40 columns in tiles of 16 count as three tiles of 16: the last tile is partial, the middle tile is full."""
    tile, first, count = Variable("tile"), Variable("first"), Variable("count")
    store = Store(OUT, first + ROW, X[first + ROW] * X[first + ROW])
    body = (
        Let(first, tile * 16),
        Let(count, index_min(Size(16), Size(40) - first)),
        For(ROW, Size(0), count, (store,)),
    )
    assert estimate(Function("f", (X, OUT), (For(tile, Size(0), Size(3), body),))).flops == 48
    assert estimate(Function("f", (X, OUT), (For(tile, Size(0), Size(N), body),))).flops == N * 16


def test_parts_of_a_loop_that_goes_on_count_together() -> None:
    begin, end, depth = Variable("begin"), Variable("end"), Variable("depth")
    part = (
        Let(end, index_min(depth, begin + 512)),
        For(ROW, begin, end, (Store(OUT, ROW, X[ROW] * X[ROW]),)),
        Assign(begin, end),
    )
    body = (Declare(begin, Size(0)), While(begin.compare("<", depth), part))
    function = Function("parts", (X, OUT, depth), body)
    call = Evaluate(Call(Callee("parts", function=function), (Address(X, Size(0)), Address(OUT, Size(0)), Size(N))))
    assert estimate(Function("f", (X, OUT), (call, call))).flops == N * 2


@pytest.mark.parametrize(
    ("condition", "flops"),
    [
        (Size(3).compare("<", 4), 1),
        (Size(4).compare("<", 4), 3),
        (Size(N).compare("<", 4), 1),
        (Binary("&&", Size(N).compare("<", 4), Size(1).compare("==", 2)), 3),
        (Binary("||", Size(N).compare("<", 4), Size(1).compare("==", 2)), 1),
        (Binary("||", Size(2).compare(">", 4), Size(1).compare("==", 2)), 3),
    ],
    ids=str,
)
def test_the_branch_that_is_taken_counts(condition: Expression, flops: int) -> None:
    square = X[0] * X[0]
    then, otherwise = (Store(OUT, Size(0), square),), (Store(OUT, Size(0), square * X[0] * X[0]),)
    assert estimate(Function("f", (X, OUT), (If(condition, then, otherwise),))).flops == flops


def test_elements_apart_take_longer_than_elements_side_by_side() -> None:
    def time(index: Expression) -> Dim:
        return estimate(Function("f", (X, OUT), (For(ROW, Size(0), Size(8), (Store(OUT, ROW, X[index]),)),))).ps

    assert time(ROW) == time(Size(3)) == time(Size(7) - ROW) == 8 * 50
    assert time(ROW * 2) == time(ROW * N) == 8 * (50 + 400)


def test_vectors_in_registers_cost_what_is_done_to_them() -> None:
    sums = Buffer("sums", "float32", MemoryAccess.WRITE, 16)
    add = Store(sums, Size(0), Load(sums, Size(0), 16) + Load(sums, Size(0), 16))
    near = estimate(Function("f", (), (LocalArray(sums, lanes=16), add)))
    far = estimate(Function("f", (sums,), (add,)))
    assert near == Estimate(16, 3 * 64, 80)
    assert far.flops == near.flops
    assert far.ps == 80 + 3 * 64 * 5


def test_a_function_of_text_may_say_how_long_a_call_takes() -> None:
    callee = Callee("tiles", abs, ps=lambda steps: 7 if steps is None else steps * 100)
    for steps, time in ((Size(N), N * 100), (Cast(X[0], INDEX), 7)):
        assert estimate(Function("f", (X,), (Evaluate(Call(callee, (steps,))),))).ps == time
    vectors = Call(Callee("vec", abs), (), CType("float32", 16))
    assert estimate(Function("f", (), (Let(Variable("v", CType("float32", 16)), vectors),))).ps == 80


def test_what_only_data_tell_counts_once() -> None:
    many = Let(Variable("many"), Cast(X[0], INDEX))
    store = Store(OUT, Size(0), X[0] * X[0])
    loop = For(ROW, Size(0), many.variable, (store,))
    assert estimate(Function("f", (X, OUT), (many, loop))).flops == 1
    assert rounds_of(loop) == 1
    for divisor in (0, N):
        unknown = For(ROW, Size(0), Size(N) // divisor, (store,))
        assert estimate(Function("f", (X, OUT), (unknown,))).flops == 1
    negative = For(ROW, Size(0), Size(-5) % 3, (store,))
    assert estimate(Function("f", (X, OUT), (negative,))).flops == 1


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
