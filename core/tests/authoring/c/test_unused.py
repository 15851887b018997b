"""Unused values are removed; effects stay."""

from __future__ import annotations

from byoc_core.authoring.c import (
    INDEX,
    Address,
    Alias,
    Block,
    Buffer,
    Call,
    Callee,
    For,
    If,
    Let,
    LocalArray,
    MemoryAccess,
    Size,
    Store,
    Variable,
    drop_unused,
)

OUT = Buffer("out", "float32", MemoryAccess.WRITE)
X = Buffer("x", "float32")


def test_values_go_with_those_that_only_they_read() -> None:
    one, two, kept = Variable("one"), Variable("two"), Variable("kept")
    line = Buffer("line", "float32")
    block: Block = (
        Let(one, Size(3)),
        Let(kept, Size(4)),
        Let(two, one + 1),
        Alias(line, X, two),
        LocalArray(Buffer("sums", "float32", MemoryAccess.WRITE, 8)),
        Store(OUT, kept, X[0]),
    )
    assert drop_unused(block) == (block[1], block[5])


def test_a_value_that_only_a_loop_inside_reads_stays() -> None:
    first, unread, k = Variable("first"), Variable("unread"), Variable("k")
    store = Store(OUT, k, X[first + k])
    block: Block = (Let(first, Size(3)), For(k, Size(0), Size(4), (Let(unread, k + first), store)))
    assert drop_unused(block) == (block[0], For(k, Size(0), Size(4), (store,)))


def test_arrays_and_pointers_that_are_only_written_stay() -> None:
    sums, line = Buffer("sums", "float32", MemoryAccess.WRITE, 8), Buffer("to", "float32", MemoryAccess.WRITE)
    block: Block = (LocalArray(sums), Alias(line, OUT, Size(4)), Store(sums, Size(0), X[0]), Store(line, Size(0), X[0]))
    assert drop_unused(block) == block


def test_loops_and_branches_without_anything_to_do_go() -> None:
    k, unread = Variable("k"), Variable("unread")
    nothing: Block = (Let(unread, k + 1),)
    assert drop_unused((For(k, Size(0), Size(4), nothing),)) == ()
    condition = Size(1).compare("<", Size(2))
    branch = If(condition, (), (Store(OUT, Size(0), X[0]),))
    assert drop_unused((If(condition, nothing, nothing), branch)) == (branch,)


def test_the_value_of_a_call_that_writes_stays() -> None:
    count, unread = Variable("count"), Variable("unread")
    target = (Address(OUT, Size(0)),)
    writes = Let(count, Call(Callee("fill", writes=(0,)), target, INDEX))
    reads = Let(unread, Call(Callee("peek"), target, INDEX))
    assert drop_unused((writes, reads)) == (writes,)
