"""Changes of single loops: each keeps the results of the loop."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from byoc_core.authoring.c import (
    Block,
    Buffer,
    Copy,
    CType,
    Element,
    For,
    Function,
    Let,
    MemoryAccess,
    Size,
    Store,
    Variable,
    as_copy,
    change_loop,
    interpret,
    peeled,
    split,
    unrolled,
    verify,
)
from byoc_core.dims import Dim, symbol
from byoc_core.errors import InternalError

FLOAT = CType("float32")
ROW, COUNT, T = Variable("i"), Variable("count"), Variable("t", FLOAT)
X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
BODY = (Let(T, X[ROW]), Store(OUT, ROW, Element("exp", (T,), FLOAT)))
CHANGES: dict[str, Callable[[For], Block]] = {
    "split": lambda loop: (split(loop, 4)[0],),
    "peel": lambda loop: peeled(loop, 4),
    "split twice": lambda loop: (split(split(loop, 4)[0], 2)[0],),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("size", [0, 3, 8, 11])
@pytest.mark.parametrize("kind", ["number", "symbol", "variable"])
def test_a_changed_loop_computes_the_same(change: Callable[[For], Block], size: int, kind: str) -> None:
    dim: Dim = size if kind == "number" else symbol("n")
    stop = COUNT if kind == "variable" else Size(dim)
    function = verify(Function("f", (X, OUT, COUNT), (For(ROW, Size(0), stop, BODY),)))
    changed = verify(Function("f", (X, OUT, COUNT), change_loop(function.body, ROW, change)))
    x, out = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    interpret(changed, {X: x, OUT: out, COUNT: size}, {"n": size})
    np.testing.assert_array_equal(out, np.exp(x))


def test_written_out_rounds_have_variables_of_their_own() -> None:
    body = unrolled(For(ROW, Size(1), Size(6), BODY, step=2))
    verify(Function("f", (X, OUT), body))
    assert [item.index for item in body if isinstance(item, Store)] == [Size(1), Size(3), Size(5)]


def test_loops_that_cannot_be_changed_are_refused() -> None:
    with pytest.raises(InternalError, match="has no known number of rounds"):
        unrolled(For(ROW, Size(0), Size(symbol("n")), BODY))
    with pytest.raises(InternalError, match="does not go from 0 in steps of 1"):
        split(For(ROW, Size(1), Size(8), BODY), 4)
    with pytest.raises(InternalError, match="loop over `count`: is not there"):
        change_loop(BODY, COUNT, lambda loop: (loop,))


def test_a_loop_that_may_have_its_end_before_its_start_is_no_copy() -> None:
    first, end = Variable("first"), Variable("end")
    loop = For(ROW, first, end, (Store(OUT, ROW, X[ROW]),))
    assert as_copy(loop) is None
    assert as_copy(loop, is_part=True) == Copy(OUT, first, X, first, end - first)
    assert as_copy(For(ROW, Size(4), Size(2), loop.body)) is None
    assert as_copy(For(ROW, Size(2), Size(4), loop.body)) == Copy(OUT, Size(2), X, Size(2), Size(2))
