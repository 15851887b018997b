"""Functions of random nests and schedules, the same each time, and the expected bytes of each."""

from __future__ import annotations

from dataclasses import dataclass

from byoc_core.authoring.c import Function, Schedule
from byoc_core.dims import symbol
from hypothesis import given, settings
from hypothesis import strategies as st

from core.tests.authoring.c.nests import (
    Case,
    cases,
    function_of,
    product_case,
    run,
    schedules,
    schedules_that_fit,
)

__all__ = ["Drawn", "drawn_functions"]

_SCHEDULES = (
    Schedule(
        {"i": 4, "j": 8, "i.tile": 2},
        ("i.tile.tile", "j.tile", "i.tile", "r", "i", "j"),
        ("i.tile.tile", "j.tile"),
        "j",
        8,
        frozenset({"i", "j"}),
    ),
    Schedule({"i": 4, "r": 2}, ("i.tile", "r.tile", "r", "i", "j"), ("i.tile",), "j", 4),
)
"""Schedules of a matrix product with 16 columns: tiles of sums in vector registers, some rows of tiles short."""


@dataclass(frozen=True)
class Drawn:
    """Functions, each called ``kernel`` with a number, and the bytes of all outputs of each."""

    runs: list[tuple[Function, Case]]
    expected: list[bytes]


def drawn_functions(num_examples: int) -> Drawn:
    """Return functions of a number of random nests, and matrix products."""
    runs: list[tuple[Function, Case]] = []
    expected: list[bytes] = []

    @settings(max_examples=num_examples, deadline=None, database=None, derandomize=True)
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        case = data.draw(cases())
        schedule = schedules_that_fit(case, data.draw(schedules(case.nest)))
        function = function_of(case, schedule, f"kernel{len(runs)}")
        runs.append((function, case))
        expected.extend(run(function, case))

    collect()
    for schedule in _SCHEDULES:
        case = product_case(symbol("n"), 16, 5, {"n": 11})
        runs.append((function_of(case, schedule, f"kernel{len(runs)}"), case))
        expected.extend(run(function_of(case), case))
    return Drawn(runs, expected)
