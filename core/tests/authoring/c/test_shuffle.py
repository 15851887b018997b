"""Lanes of two vectors in another order."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.authoring.c import (
    Block,
    Buffer,
    CType,
    Function,
    Let,
    Literal,
    Load,
    MemoryAccess,
    Shuffle,
    Size,
    Store,
    Variable,
    interpret,
    print_function,
    problems_of,
    scalarise,
)

X, OUT = Buffer("x", "float32"), Buffer("out", "float32", MemoryAccess.WRITE)
ROW = Variable("row", CType("float32", 4))


def _function(order: tuple[int, ...]) -> Function:
    body: Block = (Let(ROW, Load(X, Size(0), 4)), Store(OUT, Size(0), Shuffle(ROW, Load(X, Size(4), 4), order)))
    return Function("f", (X, OUT), body)


@pytest.mark.parametrize("order", [(0, 4, 1, 5), (7, 6, 5, 0), (3, 3, 3, 3)])
def test_lanes_are_those_of_the_order_with_and_without_vectors(order: tuple[int, ...]) -> None:
    x = np.arange(8, dtype="float32") * 10
    for function in (_function(order), scalarise(_function(order))):
        out = np.zeros(4, "float32")
        interpret(function, {X: x, OUT: out})
        np.testing.assert_array_equal(out, x[list(order)])
        assert problems_of(function) == []
    assert "BYOC_SHUFFLE(row, *(const vec_f32x4u *)(x + 4), " in print_function(_function(order))


def test_the_order_has_a_place_for_each_lane_and_names_lanes_that_there_are() -> None:
    for order in ((0, 1, 2), (0, 1, 2, 8), (0, 1, 2, -1)):
        assert problems_of(_function(order)) == [f"Store: a shuffle of float32x4 by {order}"]
    other = Literal(0.0, CType("float32", 8))
    broken = Function("f", (X, OUT), (Store(OUT, Size(0), Shuffle(Load(X, Size(0), 4), other, (0, 1, 2, 3))),))
    assert problems_of(broken) == ["Store: a shuffle: float32x4 and float32x8"]
