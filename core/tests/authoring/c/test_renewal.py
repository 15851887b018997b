"""Copies of blocks: new declarations, the same meaning."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from byoc_core.authoring import c
from byoc_core.authoring.c.renewal import renewed, without_clashes
from byoc_core.authoring.c.traversal import declared_by
from hypothesis import given

from core.tests.authoring.c.nests import Case, cases, function_of, run

X, OUT = c.Buffer("x", "float32"), c.Buffer("out", "float32", c.MemoryAccess.WRITE)
ROW, VALUE = c.Variable("i"), c.Variable("value", c.CType("float32"))
LOOP = c.For(ROW, c.Size(0), c.Size(4), (c.Let(VALUE, X[ROW]), c.Store(OUT, ROW, VALUE + 1)))


def declared(block: c.Block) -> set[object]:
    """Return the declarations of a block and the blocks inside."""
    return {item for statement in c.statements_in(block) for item in declared_by(statement)}


@given(case=cases())
def test_a_copy_declares_anew_and_computes_the_same(case: Case) -> None:
    function = function_of(case, c.Schedule())
    copy = c.verify(replace(function, body=renewed(function.body)))
    assert declared(copy.body).isdisjoint(declared(function.body))
    for one, other in zip(run(function, case), run(copy, case), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_a_part_before_declares_is_declared_anew() -> None:
    part: c.Block = (c.Let(VALUE, X[0]), c.Store(OUT, c.Size(0), VALUE))
    whole = without_clashes([part, part, (LOOP,)])
    assert whole[:2] == part
    assert declared(whole[2:]).isdisjoint(declared(part))
    c.verify(c.Function("f", (X, OUT), whole))


def test_loops_side_by_side_may_share_their_variables() -> None:
    assert without_clashes([(LOOP,), (LOOP,)]) == (LOOP, LOOP)


def test_what_does_not_clash_stays() -> None:
    other = c.For(c.Variable("j"), c.Size(0), c.Size(4), ())
    assert without_clashes([(LOOP,), (other,)]) == (LOOP, other)
