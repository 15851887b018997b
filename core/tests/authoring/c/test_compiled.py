"""Printed C computes the bits of the interpreter, for every target and without undefined behaviour."""

from __future__ import annotations

from pathlib import Path

import pytest
from byoc_core.authoring.c import C11, C11_VECTORS, hoist, outline, scalarise, serialise, simplify, verify

from core.tests.authoring.c.drawn import Drawn, drawn_functions
from core.tests.authoring.c.nests import with_much_work
from core.tests.authoring.c.programs import program_of, run_program

NUM_EXAMPLES = 30


@pytest.fixture(scope="module")
def drawn() -> Drawn:
    return drawn_functions(NUM_EXAMPLES)


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
