"""Loops ended by a condition, and loops with a single known round."""

from __future__ import annotations

import numpy as np
from byoc_core.authoring.c import (
    BOOL,
    INDEX,
    Assign,
    Block,
    Buffer,
    Declare,
    For,
    Function,
    Let,
    Literal,
    LoopKind,
    MemoryAccess,
    Return,
    Size,
    Store,
    Variable,
    While,
    estimate,
    index_min,
    index_mod,
    interpret,
    print_function,
    problems_of,
    simplify,
    symbols_in,
)
from byoc_core.dims import symbol

COUNT, POWER, BIT = Variable("count"), Variable("power"), Variable("bit")


def doubling(power: Variable = POWER) -> Function:
    """Return a function computing the least power of two not below a number."""
    body: Block = (
        Declare(power, Size(1)),
        While(power.compare("<", COUNT), (Let(BIT, power * 2), Assign(power, BIT))),
        Return(power),
    )
    return Function("doubling", (COUNT,), body, INDEX)


def test_a_loop_runs_as_long_as_its_condition_holds() -> None:
    assert problems_of(doubling()) == []
    assert [interpret(doubling(), {COUNT: count}) for count in (0, 1, 2, 3, 9)] == [1, 1, 2, 4, 16]


def test_a_loop_is_printed_as_c_has_it() -> None:
    assert print_function(doubling()) == (
        "static int64_t doubling(int64_t count) {\n"
        "  int64_t power = 1;\n"
        "  while (power < count) {\n"
        "    const int64_t bit = power * 2;\n"
        "    power = bit;\n"
        "  }\n"
        "  return power;\n"
        "}"
    )


def test_the_verifier_looks_at_the_condition_and_at_the_block() -> None:
    unknown = Variable("unknown")
    body: Block = (While(COUNT, (Assign(COUNT, unknown),)),)
    assert problems_of(Function("f", (COUNT,), body)) == [
        "While: the condition is int64, not a bool",
        "Assign: `unknown` is not declared",
    ]


def test_a_condition_that_never_holds_leaves_nothing() -> None:
    store = Store(Buffer("out", "int64", MemoryAccess.WRITE), Size(0), COUNT)
    never = While(Literal(False, BOOL), (store,))
    assert simplify(Function("f", (), (never, store))).body == (store,)
    assert simplify(doubling()) == doubling()


def test_sizes_are_found_in_conditions_and_one_round_is_counted() -> None:
    out = Buffer("out", "float32", MemoryAccess.WRITE)
    store = Store(out, Size(0), Literal(1, out[0].type))
    loop = While(POWER.compare("<", Size(symbol("n"))), (store,))
    assert symbols_in((loop,)) == {"n"}
    assert estimate(Function("f", (), (loop,))) == estimate(Function("f", (), (store,)))


def test_a_loop_that_begins_at_an_index_and_has_one_round_becomes_its_body() -> None:
    out = Buffer("out", "int64", MemoryAccess.WRITE)
    worker, line = Variable("worker"), Variable("line")

    def lines(count: int, step: int) -> Function:
        inner = For(line, worker, Size(count), (Store(out, line, line),), step=step)
        return Function("f", (out,), (For(worker, Size(0), Size(4), (inner,), kind=LoopKind.PARALLEL),))

    (loop,) = simplify(lines(4, 4)).body
    assert isinstance(loop, For)
    assert loop.body == (Store(out, worker, worker),)
    assert simplify(lines(5, 4)) == lines(5, 4)
    assert simplify(lines(4, 3)) == lines(4, 3)
    assert simplify(lines(3, 4)) == lines(3, 4)


def test_the_remainder_of_an_index_is_never_negative() -> None:
    out = Buffer("out", "int64", MemoryAccess.WRITE)
    k = Variable("k")
    body: Block = (For(k, Size(0), Size(7), (Store(out, k, index_min(index_mod(k - 3, 5), COUNT)),)),)
    made = np.zeros(7, np.int64)
    interpret(Function("f", (out, COUNT), body), {out: made, COUNT: 3})
    assert made.tolist() == [2, 3, 3, 0, 1, 2, 3]
    assert "out[k] = byoc_min(byoc_mod(k - 3, 5), count);" in print_function(Function("f", (out, COUNT), body))
