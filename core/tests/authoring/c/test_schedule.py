"""Schedules: every schedule of a nest computes the same bits."""

from __future__ import annotations

import random

from byoc_core.authoring.c import hoist, outline, scalarise, simplify, verify
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.authoring.c.nests import cases, function_of, run, schedules, schedules_that_fit, with_much_work


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_schedule_computes_the_same_bits(data: st.DataObject) -> None:
    case = data.draw(cases())
    schedule = schedules_that_fit(case, data.draw(schedules(case.nest)))
    expected = run(function_of(case), case)
    function = function_of(case, schedule)
    order = random.Random(case.seed)
    assert run(function, case, order) == expected
    for change in (simplify, hoist, scalarise, with_much_work, outline):
        function = verify(change(function))
        assert run(function, case, order) == expected, change
