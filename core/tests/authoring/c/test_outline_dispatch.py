"""Parallel loops outlined by their writer, because the block orders the rounds of its part freely."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.authoring.c import (
    Buffer,
    Dispatch,
    For,
    Function,
    MemoryAccess,
    Store,
    Variable,
    interpret,
    outline,
    parallel_works,
    print_function,
    verify,
)
from byoc_core.authoring.c.outline import serialise

COUNT = 7


def _function(work_ps: int) -> Function:
    """Return a function numbering the elements, the even elements of a part first."""
    out = Buffer("out", "int64", MemoryAccess.WRITE, COUNT)
    first, end = Variable("first"), Variable("end")
    loops = []
    for begin in (first, first + 1):
        k = Variable("k")
        loops.append(For(k, begin, end, (Store(out, k, k),), step=2))
    return verify(Function("f", (out,), (Dispatch(first, end, tuple(loops), COUNT, 1, work_ps),)))


@pytest.mark.parametrize(
    ("work_ps", "has_team", "is_kept"), [(1, False, False), (5_000_000, True, True), (10**9, False, True)]
)
def test_only_work_that_is_worth_it_is_shared(work_ps: int, has_team: bool, is_kept: bool) -> None:
    function = _function(work_ps)
    (work,) = parallel_works(function)
    assert (work.count, work.work_ps) == (COUNT, work_ps)
    outlined = verify(outline(function, has_team=has_team))
    assert any(isinstance(statement, Dispatch) for statement in outlined.body) == is_kept
    assert ("byoc_" in print_function(outlined)) == is_kept


def test_a_part_of_all_rounds_computes_the_same() -> None:
    function = verify(serialise(_function(10**9)))
    assert not any(isinstance(statement, Dispatch) for statement in function.body)
    (out,) = function.parameters
    values = np.zeros(COUNT, np.int64)
    interpret(function, {out: values})
    np.testing.assert_array_equal(values, np.arange(COUNT))
