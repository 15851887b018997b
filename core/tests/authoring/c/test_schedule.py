"""Schedules: every schedule of a nest computes the same bits."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from byoc_core.authoring.c import (
    Copy,
    For,
    LoopKind,
    Nest,
    Schedule,
    Size,
    Store,
    hoist,
    lower_nest,
    outline,
    scalarise,
    simplify,
    verify,
)
from byoc_core.errors import InternalError
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.authoring.c.nests import (
    cases,
    function_of,
    product_case,
    run,
    schedules,
    schedules_that_fit,
    with_much_work,
)


@settings(deadline=None)
@given(st.data())
def test_every_schedule_computes_the_same_bits(data: st.DataObject) -> None:
    case = data.draw(cases())
    schedule = schedules_that_fit(case, data.draw(schedules(case.nest, is_nested=True)))
    expected = run(function_of(case), case)
    function = function_of(case, schedule)
    order = random.Random(case.seed)
    assert run(function, case, order) == expected
    for change in (simplify, hoist, scalarise, with_much_work, outline):
        function = verify(change(function))
        assert run(function, case, order) == expected, change


def test_threads_share_loops_inside_others_in_parts_of_a_grain() -> None:
    nest = product_case(3, 4, 5, {}).nest
    (rows,) = lower_nest(nest, Schedule(parallel=("j",), grain=2))
    assert isinstance(rows, For)
    assert rows.kind is LoopKind.SERIAL
    (columns,) = rows.body
    assert isinstance(columns, For)
    assert (columns.stop, columns.kind, columns.grain) == (Size(4), LoopKind.PARALLEL, 2)


def test_a_loop_without_vectors_may_be_one_for_vectors() -> None:
    nest = replace(product_case(3, 4, 5, {}).nest, reduced=(), accumulators=())
    (rows,) = lower_nest(nest, Schedule(vector="j"))
    assert isinstance(rows, For)
    assert isinstance(rows.body[0], For)
    assert (rows.kind, rows.body[0].kind) == (LoopKind.SERIAL, LoopKind.VECTOR)


def test_a_loop_without_vectors_may_be_a_copy() -> None:
    case = product_case(3, 4, 5, {})
    (left, _), (out,) = case.inputs, case.outputs
    row, column = case.nest.axes
    nest = Nest((row, column), (Store(out, row.index * 4 + column.index, left[row.index * 5 + column.index]),))
    (rows,) = lower_nest(nest, Schedule(vector="j"))
    assert isinstance(rows, For)
    assert rows.body == (Copy(out, rows.index * 4, left, rows.index * 5, Size(4)),)


@pytest.mark.parametrize("parallel", [("j", "i"), ("r",), ("i", "r")])
def test_threads_share_no_other_loops(parallel: tuple[str, ...]) -> None:
    with pytest.raises(InternalError, match="the parallel loops are not adjacent"):
        lower_nest(product_case(3, 4, 5, {}).nest, Schedule(parallel=parallel))
