"""A pointer into either of two buffers, depending on a condition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from byoc_core.authoring.c import (
    BOOL,
    Alias,
    Block,
    Buffer,
    For,
    Function,
    Literal,
    MemoryAccess,
    Size,
    Store,
    Variable,
    hoist,
    interpret,
    print_function,
    problems_of,
    simplify,
)

X, ZEROS = Buffer("x", "float32"), Buffer("zeros", "float32")
OUT = Buffer("out", "float32", MemoryAccess.WRITE)
AT = Buffer("at", "float32")
I = Variable("i")  # noqa: E741
CHOICE = Alias(AT, X, I * 2, I.compare("<", 2), ZEROS)


def _function(alias: Alias = CHOICE) -> Function:
    body: Block = (For(I, Size(0), Size(4), (alias, Store(OUT, I, AT[1]))),)
    return Function("f", (X, ZEROS, OUT), body)


def test_it_points_where_the_condition_says() -> None:
    out = np.zeros(4, "float32")
    interpret(_function(), {X: np.arange(4, dtype="float32"), ZEROS: np.array([8, 9], "float32"), OUT: out})
    assert list(out) == [1, 3, 9, 9]
    assert "const float *at = i < 2 ? x + i * 2 : zeros;" in print_function(_function())
    assert problems_of(_function()) == []
    assert problems_of(hoist(_function())) == []


@pytest.mark.parametrize(("value", "target"), [(True, "x + i * 2"), (False, "zeros")])
def test_a_known_condition_is_no_choice(value: bool, target: str) -> None:
    found = simplify(_function(replace(CHOICE, condition=Literal(value, BOOL))))
    assert f"const float *at = {target};" in print_function(found)


def test_both_buffers_are_checked() -> None:
    bare = Function("f", (X, OUT), _function().body)
    assert problems_of(bare) == ["Alias: `zeros` is not declared"]
    assert problems_of(_function(replace(CHOICE, otherwise=None))) == [
        "Alias: `at` needs both a bool condition and a second buffer"
    ]
    assert problems_of(_function(replace(CHOICE, otherwise=OUT))) == []
    writable = replace(CHOICE, buffer=replace(AT, access=MemoryAccess.WRITE))
    assert "Alias: `at` may write to the read-only `zeros`" in problems_of(_function(writable))
