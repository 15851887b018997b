"""Values of known range simplify their readers."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.authoring.c import (
    Block,
    Buffer,
    Dispatch,
    Expression,
    For,
    Function,
    If,
    Let,
    MemoryAccess,
    RawStatement,
    Select,
    Size,
    Store,
    Variable,
    drop_unused,
    index_max,
    index_min,
    interpret,
    print_function,
    simplify,
    unravelled,
)
from byoc_core.dims import symbol

OUT = Buffer("out", "int64", MemoryAccess.WRITE)


def _simplified(body: Block) -> Block:
    return drop_unused(simplify(Function("f", (OUT,), body)).body)


def test_a_value_that_is_one_number_is_that_number() -> None:
    zero, two, n = Variable("zero"), Variable("two"), Variable("n")
    body = (Let(zero, Size(0)), Let(two, zero + 2), Let(n, Size(symbol("n")) + two), Store(OUT, zero, n * two + zero))
    assert _simplified(body) == (Let(n, Size(symbol("n")) + 2), Store(OUT, Size(0), n * 2))


@pytest.mark.parametrize(("padding", "is_kept"), [(0, False), (1, True)])
def test_a_window_that_lies_inside_skips_nothing(padding: int, *, is_kept: bool) -> None:
    o, start, skip, count = (Variable(name) for name in ("o", "start", "skip", "count"))
    body: Block = (
        Let(start, o * 2 - padding),
        Let(skip, Select(start.compare("<", 0), 0 - start, Size(0))),
        Let(count, index_min(3 - skip, 10 - start)),
        Store(OUT, o, count),
    )
    loop = For(o, Size(0), Size(4), body)
    (found,) = _simplified((loop,))
    assert isinstance(found, For)
    inside = (Store(OUT, o, Size(3)),)
    assert (found.body != inside) == is_kept
    results = [np.zeros(4, "int64"), np.zeros(4, "int64")]
    for result, statement in zip(results, (loop, found), strict=True):
        interpret(Function("f", (OUT,), (statement,)), {OUT: result})
    np.testing.assert_array_equal(results[0], results[1])
    assert list(results[0]) == [3 - padding, 3, 3, 3]


def test_the_smaller_and_the_larger_index_are_told_where_the_ranges_do_not_meet() -> None:
    i, j = Variable("i"), Variable("j")
    values: tuple[tuple[Expression, Expression], ...] = (
        (index_min(i, j + 4), i),
        (index_max(i, j + 4), j + 4),
        (index_min(i, j + 3), i),
        (index_min(i, j), index_min(i, j)),
    )
    for value, wanted in values:
        inner = For(j, Size(0), Size(9), (Store(OUT, i * 9 + j, value),))
        (loop,) = _simplified((For(i, Size(0), Size(4), (inner,)),))
        assert isinstance(loop, For)
        assert loop.body == (For(j, Size(0), Size(9), (Store(OUT, i * 9 + j, wanted),)),)


def test_an_index_stands_for_a_position_along_each_axis() -> None:
    item = Variable("item")
    sizes = (2, 1, 3, 4)
    stores = tuple(Store(OUT, item * 4 + k, place) for k, place in enumerate(unravelled(item, sizes)))
    loop = For(item, Size(0), Size(24), stores)
    found = np.full(96, -1, "int64")
    interpret(Function("f", (OUT,), (loop,)), {OUT: found})
    np.testing.assert_array_equal(found.reshape(24, 4), np.stack(np.unravel_index(np.arange(24), sizes), axis=1))
    assert "item / 12;" in print_function(Function("f", (OUT,), (loop,)))


def test_sibling_loops_may_declare_the_same_variables() -> None:
    """The loop of a single round is removed; facts about these variables do not hold in the loop behind."""
    n = symbol("n")
    place, here = Variable("place"), Variable("here")
    body = (Let(here, Size(n) - place), Store(OUT, place, here))
    loops = (For(place, Size(0), Size(1), body), For(place, Size(1), Size(n), body))
    body_of_known = (Let(here, place * 2), Store(OUT, place, here))
    known = (For(place, Size(0), Size(1), body_of_known), For(place, Size(1), Size(n), body))
    dispatches = (Dispatch(place, here, (Store(OUT, Size(0), place + here),), 1, 1, 1), *loops)
    raw = RawStatement(("const int64_t {d0} = 7;",), declares=(here,), evaluate=lambda: 7)
    branch = If(Size(0).compare("==", 0), (Let(here, Size(3)), Store(OUT, Size(0), here)))
    assert "out[1] = here" in print_function(
        Function("f", (OUT,), _simplified((branch, raw, Store(OUT, Size(1), here))))
    )
    for block in (loops, known, dispatches):
        results = [np.zeros(5, "int64"), np.zeros(5, "int64")]
        for result, statements in zip(results, (block, _simplified(block)), strict=True):
            interpret(Function("f", (OUT,), statements), {OUT: result}, {"n": 5})
        np.testing.assert_array_equal(results[0], results[1])
