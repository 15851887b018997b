"""Simplification: index arithmetic by ranges, and known control flow."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.authoring.c import (
    BOOL,
    INDEX,
    Address,
    Binary,
    Block,
    Buffer,
    Call,
    Callee,
    CType,
    Expression,
    For,
    Function,
    If,
    Let,
    Literal,
    LocalArray,
    MemoryAccess,
    Select,
    Size,
    Statement,
    Store,
    Variable,
    interpret,
    simplify,
    verify,
)
from byoc_core.dims import symbol
from hypothesis import given
from hypothesis import strategies as st

FLOAT = CType("float32")
ROW, COLUMN, ANY = Variable("i"), Variable("j"), Variable("any")
N = symbol("n")
X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
ONE = Literal(1, FLOAT)


def simplified(expression: Expression) -> Expression:
    """Return the simplified index for ``i`` from 0 to 7 and ``j`` from 0 to 3; nothing is known of ``any``."""
    inner = For(COLUMN, Size(0), Size(4), (store(expression),))
    function = simplify(Function("f", (OUT, ANY), (For(ROW, Size(0), Size(8), (inner,)),)))
    (loop,) = function.body
    assert isinstance(loop, For)
    (inside,) = loop.body
    assert isinstance(inside, For)
    (last,) = inside.body
    assert isinstance(last, Store)
    return last.index


def store(index: Expression) -> Store:
    """Return a store of 1."""
    return Store(OUT, index, ONE)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ((ROW * 4 + COLUMN) // 4, ROW),
        ((ROW * 4 + COLUMN) % 4, COLUMN),
        ((COLUMN + ROW * 8) // 4, 2 * ROW),
        ((ROW * 4 + COLUMN) // 2, None),
        ((ROW * 4 + COLUMN - 1) // 4, None),
        ((ROW * -4 + COLUMN) // 4, None),
        ((ANY * 4 + COLUMN) // 4, None),
        ((ANY * 4) % 4, None),
        ((ROW * Size(N) + COLUMN) // Size(N), None),
        ((ROW * Size(N + 4) + COLUMN) // Size(N + 4), ROW),
        ((ROW * Size(N + 4) + COLUMN) % Size(N + 4), COLUMN),
        (ROW // 8, Size(0)),
        (Select(ROW.compare("<", 8), ROW, COLUMN), ROW),
        (Select(ROW.compare("<", 7), ROW, COLUMN), None),
        (Select(ROW.compare(">=", 8), ROW, COLUMN), COLUMN),
        (Select(Binary("&&", ROW.compare(">=", 0), COLUMN.compare("==", 9)), ROW, COLUMN), COLUMN),
    ],
    ids=str,
)
def test_an_index_becomes_its_parts(expression: Expression, expected: Expression | None) -> None:
    assert simplified(expression) == (expression if expected is None else expected)


@given(st.integers(-20, 20), st.integers(1, 9), st.integers(-9, 9), st.integers(-3, 12), st.integers(1, 8))
def test_quotients_keep_their_values(scale: int, divisor: int, offset: int, first: int, rounds: int) -> None:

    index = ROW * scale + Size(offset)
    out = Buffer("out", "int64", MemoryAccess.WRITE)
    stores = (Store(out, ROW - first, index // divisor * 100 + index % divisor),)
    function = verify(Function("f", (out,), (For(ROW, Size(first), Size(first + rounds), stores),)))
    results = []
    for item in (function, verify(simplify(function))):
        array = np.zeros(rounds, np.int64)
        interpret(item, {out: array})
        results.append(array.tolist())
    assert results[0] == results[1]


def body_of(*body: Statement) -> Block:
    """Return the simplified statements of a body over ``x`` and ``out``."""
    return verify(simplify(verify(Function("f", (X, OUT), body)))).body


def test_control_flow_that_is_known_goes() -> None:
    one, other = store(Size(0)), store(Size(1))
    assert body_of(If(Literal(1, BOOL), (one,), (other,))) == (one,)
    assert body_of(For(ROW, Size(3), Size(3), (one,))) == ()
    assert body_of(For(ROW, Size(3), Size(5), (store(ROW),), step=2)) == (store(Size(3)),)


def test_a_block_that_moves_gets_variables_of_its_own() -> None:
    value = Variable("t", FLOAT)
    loop = For(ROW, Size(0), Size(1), (Let(value, X[ROW]), Store(OUT, ROW, value)))
    body = body_of(loop, loop)
    assert [type(statement) for statement in body] == [Let, Store, Let, Store]


def test_what_nothing_uses_goes_and_calls_that_write_stay() -> None:
    one, other, called = (Variable(name, INDEX) for name in ("one", "other", "called"))
    array = Buffer("a", "float32", MemoryAccess.WRITE, 4)
    call = Let(called, Call(Callee("count", writes=(0,)), (Address(OUT, Size(0)),), INDEX))
    body = (Let(one, Size(1)), Let(other, one + 1), LocalArray(array), call, store(Size(0)))
    assert body_of(*body) == (call, store(Size(0)))
