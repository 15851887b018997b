"""Hoisting: statements moved out of a loop, and statements kept."""

from __future__ import annotations

import pytest
from byoc_core.authoring.c import (
    Alias,
    Assign,
    Block,
    Buffer,
    CType,
    Declare,
    Expression,
    For,
    Function,
    If,
    Let,
    Literal,
    LocalArray,
    MemoryAccess,
    RawStatement,
    Return,
    Size,
    Statement,
    Store,
    Variable,
    hoist,
    verify,
)
from byoc_core.dims import symbol

FLOAT = CType("float32")
ROW, COLUMN, COUNT = Variable("i"), Variable("j"), Variable("count")
T, U = Variable("t", FLOAT), Variable("u", FLOAT)
X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
SHARED, OTHER = (Buffer(name, "float32", MemoryAccess.SHARED) for name in ("shared", "other"))
POINTER = Buffer("p", "float32", MemoryAccess.WRITE)


def leaves(*body: Statement, before: Block = (), stop: Expression = Size(8)) -> bool:  # noqa: B008
    """Return whether the first statement of a loop is hoisted."""
    loop = For(ROW, Size(0), stop, body)
    function = verify(Function("f", (X, OUT, SHARED, OTHER, COUNT), (*before, loop)))
    hoisted = verify(hoist(function))
    return hoisted.body[len(before)] == body[0]


def test_a_value_leaves_all_loops_that_do_not_change_it() -> None:
    let, store = Let(T, X[3]), Store(OUT, ROW * 8 + COLUMN, T)
    inner = For(COLUMN, Size(0), Size(8), (let, store))
    (first, loop) = hoist(Function("f", (X, OUT), (For(ROW, Size(0), Size(8), (inner,)),))).body
    assert first is let
    assert loop == For(ROW, Size(0), Size(8), (For(COLUMN, Size(0), Size(8), (store,)),))


def test_a_value_of_the_round_stays() -> None:
    assert not leaves(Let(T, X[ROW]), Store(OUT, ROW, T))


def test_a_load_stays_where_there_may_be_no_round() -> None:
    assert leaves(Let(T, X[0]), Store(OUT, ROW, T))
    assert leaves(Let(T, X[0]), Store(OUT, ROW, T), stop=Size(symbol("n") + 1))
    assert not leaves(Let(T, X[0]), Store(OUT, ROW, T), stop=Size(symbol("n")))
    assert not leaves(Let(T, X[0]), Store(OUT, ROW, T), stop=COUNT)


def test_a_quotient_stays_where_there_may_be_no_round() -> None:
    k = Variable("k")
    assert not leaves(Let(k, Size(8) // COUNT), Store(OUT, ROW, X[k]), stop=Size(symbol("n")))
    assert leaves(Let(k, COUNT // 8), Store(OUT, ROW, X[k]), stop=Size(symbol("n")))
    assert leaves(Let(k, Size(8) // COUNT), Store(OUT, ROW, X[k]))


def test_a_load_stays_where_a_round_may_leave_the_function() -> None:
    stop = If(COUNT.compare("<", 1), (Return(),))
    assert not leaves(Let(T, X[0]), stop, Store(OUT, ROW, T))
    assert leaves(Let(T, Literal(1, FLOAT)), stop, Store(OUT, ROW, T))


@pytest.mark.parametrize(
    ("source", "target", "is_free"),
    [(X, OUT, True), (OUT, OUT, False), (SHARED, OTHER, False), (X, SHARED, False), (OUT, SHARED, True)],
    ids=str,
)
def test_a_load_stays_where_a_store_may_reach_it(source: Buffer, target: Buffer, is_free: bool) -> None:
    assert leaves(Let(T, source[0]), Store(target, ROW, T)) == is_free


def test_a_load_stays_where_a_pointer_from_outside_reaches_it() -> None:
    pointer = Alias(POINTER, OUT, Size(0))
    assert not leaves(Let(T, OUT[0]), Store(POINTER, ROW, T), before=(pointer,))
    assert not leaves(Let(T, POINTER[0]), Store(OUT, ROW, T), before=(pointer,))
    assert leaves(Let(T, X[0]), Store(POINTER, ROW, T), before=(pointer,))


def test_a_value_of_a_variable_that_the_loop_changes_stays() -> None:
    declared = Declare(T, Literal(0, FLOAT))
    assert not leaves(Let(U, T + 1), Assign(T, U), before=(declared,))
    raw = RawStatement(("{w0} += 1;",), writes=(T,))
    assert not leaves(Let(U, T + 1), raw, Store(OUT, ROW, U), before=(declared,))


def test_a_pointer_leaves_with_the_array_that_it_points_into_outside() -> None:
    array = Buffer("a", "float32", MemoryAccess.WRITE, 8)
    pointer = Alias(POINTER, array, Size(0))
    assert leaves(pointer, Store(POINTER, ROW, X[0]), before=(LocalArray(array),))
    assert not leaves(LocalArray(array), pointer, Store(POINTER, ROW, X[0]))


def test_values_of_loops_side_by_side_get_variables_of_their_own() -> None:
    loop = For(ROW, Size(0), Size(8), (Let(T, X[0]), Store(OUT, ROW, T)))
    hoisted = verify(hoist(verify(Function("f", (X, OUT), (loop, loop)))))
    assert [type(statement) for statement in hoisted.body] == [Let, For, Let, For]
