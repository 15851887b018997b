"""Vectors from the rounds of a loop, and rounds without vector form."""

from __future__ import annotations

import re

import pytest
from byoc_core.authoring.c import (
    BOOL,
    Binary,
    Block,
    Broadcast,
    Buffer,
    CType,
    Element,
    For,
    Let,
    Load,
    MemoryAccess,
    Select,
    Size,
    Store,
    Variable,
    vectorised,
)
from byoc_core.dims import symbol
from byoc_core.errors import InternalError

FLOAT = CType("float32")
ROW = Variable("i")
X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
FLAGS, PLACES = Buffer("flags", "bool"), Buffer("places", "int64")
FLAGS_OUT = Buffer("flags_out", "bool", MemoryAccess.WRITE)
T, PLACE = Variable("t", FLOAT), Variable("place")


def test_rounds_become_lanes_and_the_rest_stays() -> None:
    loop = For(ROW, Size(0), Size(10), (Store(OUT, ROW, X[ROW + 1] * X[0] + 1),))
    whole, rest = vectorised(loop, 4)
    assert isinstance(whole, For)
    assert isinstance(rest, For)
    value = Load(X, ROW + 1, 4) * Broadcast(X[0], 4) + 1
    (store,) = whole.body
    assert isinstance(store, Store)
    assert (whole.start, whole.stop, whole.step) == (Size(0), Size(8), 4)
    assert isinstance(store.value, Binary)
    assert (store.index, store.value.left) == (ROW, value.left if isinstance(value, Binary) else value)
    assert (rest.start, rest.stop, rest.step) == (Size(8), Size(10), 1)
    assert rest.index is not ROW


def test_rounds_that_fill_all_vectors_leave_no_rest() -> None:
    n = symbol("n")
    assert len(vectorised(For(ROW, Size(0), Size(8), (Store(OUT, ROW, X[ROW]),)), 4)) == 1
    assert len(vectorised(For(ROW, Size(0), Size(n * 4), (Store(OUT, ROW, X[ROW]),)), 4)) == 1
    assert len(vectorised(For(ROW, Size(0), Size(n), (Store(OUT, ROW, X[ROW]),)), 4)) == 2


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ((Store(OUT, ROW * 2, X[ROW]),), "a store to non-contiguous elements"),
        ((Store(OUT, Size(0), X[ROW]),), "a store to non-contiguous elements"),
        ((Store(OUT, ROW, X[ROW * 2]),), "a load from `x` of other than contiguous numbers"),
        (
            (Let(PLACE, PLACES[ROW]), Store(OUT, ROW, X[ROW + PLACE])),
            "a load from `x` of other than contiguous numbers",
        ),
        ((Store(FLAGS_OUT, ROW, FLAGS[ROW]),), "a load from `flags`"),
        ((Store(FLAGS_OUT, ROW, X[ROW].compare("<", 1)),), "Binary"),
        ((Store(OUT, ROW, Select(FLAGS[0], X[ROW], X[0])),), "Select"),
        ((Let(T, X[ROW]), Store(OUT, ROW, Element("exp", (T,), FLOAT))), "op `exp` of float32"),
        ((Store(FLAGS_OUT, ROW, Binary("&&", FLAGS[0], FLAGS[1])),), "Binary"),
    ],
    ids=range(9),
)
def test_what_has_no_vector_form_is_named(body: Block, problem: str) -> None:
    with pytest.raises(InternalError, match=re.escape(f"loop over `i`: has no vector form for {problem}")):
        vectorised(For(ROW, Size(0), Size(8), body), 4)


def test_one_lane_is_no_vector() -> None:
    with pytest.raises(InternalError, match="has too few lanes for vectors; got 1"):
        vectorised(For(ROW, Size(0), Size(8), (Store(OUT, ROW, X[ROW]),)), 1)
    assert FLAGS[0].type == BOOL
