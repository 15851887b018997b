"""Readable descriptions of loops: the names of the C, ranges, kinds, and the reads and writes of each loop."""

from __future__ import annotations

from byoc_core.authoring.c import (
    Address,
    Alias,
    Buffer,
    Call,
    Callee,
    Copy,
    CType,
    Evaluate,
    For,
    Function,
    If,
    Let,
    LocalArray,
    LoopKind,
    MemoryAccess,
    PointerArray,
    Schedule,
    Size,
    Store,
    Variable,
    describe_loops,
    outline,
)
from byoc_core.dims import symbol

from core.tests.authoring.c.nests import function_of, product_case, with_much_work

N = symbol("n")
X, OUT = Buffer("x", "float32", size=N * 8), Buffer("out", "float32", MemoryAccess.WRITE, N * 8)


def test_a_schedule_shows_in_the_loops() -> None:
    case = product_case(8, 16, 5, {})
    schedule = Schedule({"i": 4, "j": 8}, ("i.tile", "j.tile", "r", "i", "j"), ("i.tile",), "j", 8, frozenset({"i"}))
    function = function_of(case, schedule)
    assert describe_loops(function) == (
        "for i_tile in 0..2 (parallel)",
        "  for j_tile in 0..2",
        "    for i in 0..4 (unrolled): writes total; lanes 8",
        "    for r in 0..5",
        "      for i in 0..4 (unrolled): reads total, left, right; writes total; lanes 8",
        "    for i in 0..4 (unrolled): reads total; writes total_1; lanes 8",
        "    for i in 0..4 (unrolled)",
        "      for j in 0..8: reads total_1; writes out",
    )
    outlined = describe_loops(outline(with_much_work(function)))
    assert outlined[:2] == ("for first_item..end_item in 0..2 (parallel)", "  for i_tile in first_item..end_item")


def test_pointers_count_as_what_they_point_into_and_calls_by_what_they_write() -> None:
    row, line, total = Variable("row"), Buffer("line", "float32"), Buffer("total", "float32", MemoryAccess.WRITE, 8)
    fill = Callee("fill", lambda source, target: None, writes=(1,))
    body = (
        Alias(line, X, row * 8),
        LocalArray(total),
        Evaluate(Call(fill, (Address(line, Size(0)), Address(total, Size(0))))),
        If(total[0].compare("<", 1.0), (Copy(OUT, row * 8, total, Size(0), Size(8)),)),
    )
    function = Function("f", (X, OUT), (For(row, Size(0), Size(N), body, step=2),))
    expected = "for row in 0..dim_n step 2: reads x, total; writes total, out; calls fill"
    assert describe_loops(function) == (expected,)


def test_pointers_of_an_array_count_as_what_they_point_into() -> None:
    row, again, lines = Variable("row"), Variable("row"), PointerArray("lines", "float32", MemoryAccess.WRITE, 8)
    line = Buffer("line", "float32")
    aim = For(row, Size(0), Size(8), (Store(lines, row, Address(X, row * N)),))
    read = For(again, Size(0), Size(8), (Alias(line, lines, again), Store(OUT, again, line[0])))
    assert describe_loops(Function("f", (X, OUT), (LocalArray(lines), aim, read))) == (
        "for row in 0..8: writes lines",
        "for row in 0..8: reads x; writes out",
    )


def test_branches_stand_where_they_hold_loops_and_names_are_those_of_the_c() -> None:
    inner, again, first = Variable("i"), Variable("i"), Variable("first", CType("float32"))
    loop = For(again, Size(0), Size(8), (Store(OUT, again, first),), kind=LoopKind.VECTOR)
    body = (Let(first, X[inner]), If(inner.compare("<", 3), (), (loop,)))
    assert describe_loops(Function("f", (X, OUT), (For(inner, Size(0), Size(N), body),))) == (
        "for i in 0..dim_n: reads x",
        "  if i < 3:",
        "  else:",
        "    for i_1 in 0..8 (vector): writes out",
    )


def test_what_no_loop_does() -> None:
    assert describe_loops(Function("f", (X, OUT), (Store(OUT, Size(0), X[3]),))) == (
        "outside loops: reads x; writes out",
    )
    assert describe_loops(Function("f", (X, OUT), ())) == ()
