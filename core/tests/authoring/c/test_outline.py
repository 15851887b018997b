"""Outlining: the parallel loops turned into dispatches, copies or plain loops."""

from __future__ import annotations

from byoc_core.authoring.c import (
    Buffer,
    Copy,
    CType,
    Dispatch,
    Expression,
    For,
    Function,
    Literal,
    LoopKind,
    MemoryAccess,
    Select,
    Size,
    Statement,
    Store,
    Variable,
    outline,
    parallel_works,
    serialise,
    verify,
)
from byoc_core.dims import symbol

FLOAT = CType("float32")
ROW = Variable("i")
X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
SHARED = Buffer("shared", "float32", MemoryAccess.SHARED)
MUCH = 10**9
N = symbol("n")


def loop(stop: Expression, *, start: int = 0, round_ps: int = MUCH, target: Buffer = OUT) -> For:
    """Return a parallel loop doubling ``x``."""
    body = (Store(target, ROW, X[ROW] * 2),)
    return For(ROW, Size(start), stop, body, kind=LoopKind.PARALLEL, grain=4, round_ps=round_ps)


def outlined(item: For, *, has_team: bool = False) -> Statement:
    """Return the statement replacing a loop."""
    function = verify(outline(verify(Function("f", (X, OUT, SHARED), (item,))), has_team=has_team))
    (statement,) = function.body
    return statement


def test_a_loop_of_much_work_becomes_a_dispatch_over_all_rounds() -> None:
    for size in (8, N):
        found = outlined(loop(Size(size)))
        assert isinstance(found, Dispatch)
        assert (found.count, found.grain, found.work_ps) == (size, 4, size * MUCH)


def test_a_loop_of_little_work_runs_in_order() -> None:
    assert outlined(loop(Size(8), round_ps=1)) == For(ROW, Size(0), Size(8), loop(Size(8)).body, grain=4, round_ps=1)
    assert isinstance(outlined(loop(Size(8), round_ps=10**6)), For)
    assert isinstance(outlined(loop(Size(8), round_ps=10**6), has_team=True), Dispatch)


def test_a_loop_whose_rounds_are_only_estimated_runs_in_order() -> None:
    stop = Select(Size(N).compare("<", 16), Size(N), Size(16))
    assert isinstance(outlined(loop(stop)), For)
    assert isinstance(outlined(loop(Size(8), start=1)), For)


def test_rounds_that_move_elements_side_by_side_are_a_copy() -> None:
    moved = For(ROW, Size(2), Size(8), (Store(OUT, ROW + 1, X[ROW]),), kind=LoopKind.PARALLEL)
    copied = Copy(OUT, Size(3), X, Size(2), Size(6))
    assert outlined(moved) == copied
    assert serialise(Function("f", (X, OUT), (moved,))).body == (copied,)


def test_rounds_that_there_may_not_be_are_no_copy() -> None:
    moved = For(ROW, Size(2), Size(N), (Store(OUT, ROW, X[ROW]),), kind=LoopKind.PARALLEL)
    assert isinstance(outlined(moved), For)


def test_the_compiler_is_told_where_it_cannot_know_that_rounds_are_independent() -> None:
    kinds = [serialise(Function("f", (X, target), (loop(Size(8), target=target),))).body[0] for target in (OUT, SHARED)]
    assert [item.kind for item in kinds if isinstance(item, For)] == [LoopKind.SERIAL, LoopKind.VECTOR]


def test_works_of_loops_are_told_in_order() -> None:
    body = (loop(Size(8)), For(ROW, Size(0), Size(N), (Store(OUT, ROW, Literal(1, FLOAT)),), kind=LoopKind.PARALLEL))
    works = parallel_works(Function("f", (X, OUT), body))
    assert [(work.count, work.work_ps) for work in works] == [(8, 8 * MUCH), (N, N * 50)]
    assert [work.is_worth_waking for work in works] == [True, True]
