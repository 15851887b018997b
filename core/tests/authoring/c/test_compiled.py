"""Printed C computes the bits that the interpreter computes, for every target and without undefined behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from byoc_core.authoring.c import (
    C11,
    C11_VECTORS,
    Function,
    Schedule,
    hoist,
    outline,
    scalarise,
    serialise,
    simplify,
    verify,
)
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
    with_much_work,
)
from core.tests.authoring.c.programs import program_of, run_program

NUM_EXAMPLES = 30
SCHEDULES = (
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
"""Of a product of matrices with 16 columns: tiles of sums in vector registers, some rows of them short."""


@dataclass(frozen=True)
class Drawn:
    """Functions that random schedules make, and the bytes that each must compute."""

    runs: list[tuple[Function, Case]]
    expected: list[bytes]


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    runs: list[tuple[Function, Case]] = []
    expected: list[bytes] = []

    @settings(max_examples=NUM_EXAMPLES, deadline=None, database=None, derandomize=True)
    @given(st.data())
    def collect(data: st.DataObject) -> None:
        case = data.draw(cases())
        schedule = schedules_that_fit(case, data.draw(schedules(case.nest)))
        function = function_of(case, schedule, f"kernel{len(runs)}")
        runs.append((function, case))
        expected.extend(run(function, case))

    collect()
    for schedule in SCHEDULES:
        case = product_case(symbol("n"), 16, 5, {"n": 11})
        runs.append((function_of(case, schedule, f"kernel{len(runs)}"), case))
        expected.extend(run(function_of(case), case))
    return Drawn(runs, expected)


def test_c_with_vectors_and_threads_computes_the_bits_of_the_interpreter(drawn: Drawn, tmp_path: Path) -> None:
    runs = [(verify(outline(with_much_work(simplify(hoist(function))))), case) for function, case in drawn.runs]
    text = program_of(runs, C11_VECTORS)
    for word in ("vec_f32x8 total[4]", "byoc_parallel_for(", "BYOC_UNROLL"):
        assert word in text
    assert run_program(text, ["-O2", "-ffp-contract=off"], tmp_path) == drawn.expected


def test_c_without_extensions_computes_the_same_bits(drawn: Drawn, tmp_path: Path) -> None:
    runs = [(verify(scalarise(serialise(function))), case) for function, case in drawn.runs]
    text = program_of(runs, C11)
    flags = ["-std=c11", "-pedantic-errors", "-O1", "-ffp-contract=off"]
    assert run_program(text, flags, tmp_path) == drawn.expected


def test_sanitizers_find_nothing_in_printed_c(drawn: Drawn, tmp_path: Path) -> None:
    runs = [(outline(with_much_work(function)), case) for function, case in drawn.runs]
    flags = ["-O1", "-ffp-contract=off", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    assert run_program(program_of(runs, C11_VECTORS), flags, tmp_path) == drawn.expected
