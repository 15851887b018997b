"""Choices between vectors, lane by lane, and vectors with different numbers of lanes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from byoc_core.authoring.c import (
    C11,
    C11_VECTORS,
    Axis,
    Broadcast,
    Buffer,
    CType,
    Expression,
    Function,
    Let,
    Literal,
    Load,
    MemoryAccess,
    Nest,
    Select,
    Size,
    Store,
    Unary,
    Variable,
    estimate,
    interpret,
    print_function,
    problems_of,
    scalarise,
    simplify,
)

from core.tests.authoring.c.nests import Case, run
from core.tests.authoring.c.programs import program_of, run_program

FLOATS = CType("float32", 4)
X, OUT = Buffer("x", "float32", size=8), Buffer("out", "float32", MemoryAccess.WRITE, 4)
ROW, OTHER = Load(X, Size(0), 4), Load(X, Size(4), 4)
PLACES = Literal((0, 1, 2, 3), CType("int32", 4))
HALF = PLACES.compare(">=", Broadcast(Literal(2, CType("int32")), 4))
ZERO = Broadcast(Literal(0, CType("float32")), 4)

CHOICES: dict[str, Expression] = {
    "by floats": Select(ROW.compare("<", OTHER), ROW, OTHER),
    "by places": Select(HALF, ROW, Literal((-0.0, 1.5, 2.5, 3.5), FLOATS)),
    "by NaN": Select(ROW.compare("!=", ROW), ZERO, ROW),
    "of choices": Select(HALF, Select(ROW.compare(">", ZERO), ROW, ZERO), Unary("-", OTHER)),
}


def _function(value: Expression, name: str = "f") -> Function:
    row = Variable("row", FLOATS)
    return Function(name, (X, OUT), (Let(row, value), Store(OUT, Size(0), row)))


@pytest.mark.parametrize("name", CHOICES)
def test_each_lane_is_chosen_by_its_own_comparison(name: str) -> None:
    function = _function(CHOICES[name])
    assert problems_of(function) == problems_of(scalarise(function)) == []
    x, out, other = np.array([1, np.nan, -3, -0.0, 5, 6, -7, 0], "float32"), *np.zeros((2, 4), "float32")
    interpret(function, {X: x, OUT: out})
    interpret(scalarise(simplify(function)), {X: x, OUT: other})
    assert out.tobytes() == other.tobytes()
    row, last, zero, half = x[:4], x[4:], np.zeros(4, "float32"), np.arange(4) >= 2
    expected = {
        "by floats": np.where(row < last, row, last),
        "by places": np.where(half, row, np.array([-0.0, 1.5, 2.5, 3.5], "float32")),
        "by NaN": np.where(np.isnan(row), zero, row),
        "of choices": np.where(half, np.where(row > 0, row, zero), -last),
    }
    assert out.tobytes() == expected[name].tobytes()


def test_printed_choices_compute_the_bits_of_the_interpreter_with_and_without_vectors(tmp_path: Path) -> None:
    case = Case(Nest((Axis(Variable("i"), 1),), ()), (X,), (OUT,), {}, 7)
    runs = [(_function(value, f"choice{number}"), case) for number, value in enumerate(CHOICES.values())]
    expected = [line for function, _ in runs for line in run(function, case)]
    flags = ["-std=c11", "-O1", "-ffp-contract=off"]
    assert run_program(program_of(runs, C11_VECTORS), flags, tmp_path) == expected
    plain = [(scalarise(function), case) for function, case in runs]
    assert run_program(program_of(plain, C11), [*flags, "-pedantic-errors"], tmp_path) == expected


def test_a_choice_is_a_macro_whose_arguments_no_comma_parts() -> None:
    text = print_function(_function(CHOICES["by places"]))
    assert "BYOC_SELECT(vec_f32x4, ((vec_i32x4){0, 1, 2, 3} >= 2), *(const vec_f32x4u *)x, (" in text
    assert "(vec_f32x4){(-0.0f), 1.5f, 2.5f, 3.5f}));" in text


def test_a_choice_counts_as_one_operation_for_each_lane() -> None:
    assert estimate(_function(CHOICES["by NaN"])).flops == 4


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (Select(Literal(True, CType("bool")), ROW, OTHER), "a choice of float32x4 by bool"),
        (Select(PLACES, ROW, OTHER), "a choice of float32x4 by int32x4"),
        (
            Select(Literal(0, CType("int64", 4)).compare("<", Literal(0, CType("int64", 4))), ROW, OTHER),
            "a choice of float32x4 by a comparison of int64x4",
        ),
        (Select(HALF, ROW, Literal(0, CType("float32", 8))), "a choice: float32x4 and float32x8"),
        (Select(HALF, ROW.compare("<", OTHER), ROW), "a comparison of vectors is used as a value"),
        (Literal((1, 2), FLOATS), "2 numbers in float32x4"),
    ],
)
def test_a_choice_of_lanes_asks_for_a_comparison_of_as_many_bytes(value: Expression, problem: str) -> None:
    assert problems_of(_function(value))[0] == f"Let: {problem}"
