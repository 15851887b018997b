"""Aliasing: the buffers possibly reaching the same memory."""

from __future__ import annotations

from byoc_core.authoring import c
from byoc_core.authoring.c.aliasing import Aliases

X, Y = c.Buffer("x", "float32"), c.Buffer("y", "float32")
OUT = c.Buffer("out", "float32", c.MemoryAccess.WRITE)
SHARED = c.Buffer("shared", "float32", c.MemoryAccess.SHARED)
LEFT, RIGHT, INNER = (c.Buffer(name, "float32") for name in ("left", "right", "inner"))


def test_memory_that_one_buffer_reaches_is_apart() -> None:
    aliases = Aliases(())
    assert not aliases.may_overlap(X, OUT)
    assert aliases.may_overlap(X, SHARED)
    assert aliases.may_overlap(SHARED, SHARED)
    assert aliases.may_overlap(OUT, OUT)


def test_a_pointer_reaches_what_it_points_into() -> None:
    inner = c.Alias(INNER, LEFT, c.Size(4))
    aliases = Aliases((c.Alias(LEFT, OUT, c.Size(0)), c.For(c.Variable("i"), c.Size(0), c.Size(4), (inner,))))
    assert aliases.may_overlap(INNER, OUT)
    assert aliases.may_overlap(INNER, LEFT)
    assert not aliases.may_overlap(INNER, X)


def test_a_pointer_with_a_choice_reaches_both() -> None:
    choice = c.Alias(RIGHT, OUT, c.Size(0), c.Variable("i").compare("<", 4), SHARED)
    aliases = Aliases((choice,))
    assert aliases.may_overlap(RIGHT, OUT)
    assert aliases.may_overlap(RIGHT, SHARED)
    assert aliases.may_overlap(RIGHT, Y)  # by way of the shared memory
