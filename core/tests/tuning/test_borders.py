"""Borders of placements: counts against brute force, and costs learned from planted costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from byoc_core.tuning.borders import Crossing, count_crossings, learn_border, summed_seconds
from hypothesis import given
from hypothesis import strategies as st

PLACES = ("aone", "btwo", "host")


@st.composite
def reports(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, str]]:
    """Draw a report of two functions with equal names of values, and a placement of most ops."""
    rows: list[dict[str, Any]] = []
    placement: dict[str, str] = {}
    for function in ("main", "other/one"):
        values = ["x", "y"]
        for number in range(draw(st.integers(0, 6))):
            name = f"v{number}"
            row: dict[str, Any] = {"function": function, "name": name}
            row["inputs"] = draw(st.lists(st.sampled_from(values), max_size=3))
            made = [name, *(f"{name}.{i}" for i in range(1, draw(st.integers(1, 3))))]
            if len(made) > 1:
                row["outputs"] = made
            nbytes = draw(st.sampled_from([None, 12, 60, "6*n", "??"]))
            if nbytes is not None:
                row["nbytes_written"] = nbytes
            values += made
            rows.append(row)
            backend = draw(st.sampled_from((*PLACES, None)))
            if backend is not None:
                placement[f"{function}/{name}"] = backend
    return {"ops": rows}, placement


def count_by_force(report: dict[str, Any], placement: dict[str, str], n: int) -> Crossing:
    """Look at each triple of maker, value and other backend."""
    nbytes: dict[Any, int] = {None: 0, "6*n": 6 * n, "??": 0}
    values = total = 0
    for maker in report["ops"]:
        function, made = maker["function"], maker.get("outputs", [maker["name"]])
        home = placement.get(f"{function}/{maker['name']}", "")
        written = maker.get("nbytes_written")
        for value in made:
            readers = {
                placement.get(f"{function}/{row['name']}", "")
                for row in report["ops"]
                if row["function"] == function and value in row["inputs"]
            }
            values += len(readers - {home})
            total += len(readers - {home}) * (nbytes.get(written, written) // len(made))
    return Crossing(values, total)


@given(reports(), st.integers(0, 9))
def test_crossings_are_counted_once_for_each_backend(case: tuple[dict[str, Any], dict[str, str]], n: int) -> None:
    report, placement = case
    assert count_crossings(report, placement, {"n": n}) == count_by_force(report, placement, n)


def test_crossings_of_a_known_report() -> None:
    rows = [
        {"function": "main", "name": "a", "inputs": ["x"], "outputs": ["a", "b"], "nbytes_written": 40},
        {"function": "main", "name": "c", "inputs": ["a", "b"], "nbytes_written": "4*n"},
        {"function": "main", "name": "d", "inputs": ["a", "c"], "nbytes_written": 7},
        {"function": "main", "name": "e", "inputs": ["c", "d"], "nbytes_written": 7},
    ]
    placement = {"main/a": "aone", "main/c": "btwo", "main/d": "btwo", "main/e": "host"}
    # a and b to btwo, c and d to the host
    assert count_crossings({"ops": rows}, placement, {"n": 5}) == Crossing(4, 20 + 20 + 20 + 7)
    assert count_crossings({"ops": rows}, dict.fromkeys(placement, "aone"), {"n": 5}) == Crossing(0, 0)


@pytest.mark.parametrize("report", [{}, {"ops": None}, {"ops": 3}, {"ops": [3, None]}])
def test_reports_without_ops_have_no_crossings(report: dict[str, Any]) -> None:
    assert count_crossings(report, {"main/a": "aone"}, {}) == Crossing(0, 0)


def test_seconds_of_a_placement() -> None:
    figures = {"aone": {"main/a": 1.0, "main/b": 2.0}, "btwo": {"main/b": 4.0}}
    assert summed_seconds({"main/a": "aone", "main/b": "btwo", "main/c": "aone", "main/d": "host"}, figures) == 5.0


CROSSINGS = st.lists(
    st.builds(Crossing, st.integers(1, 200), st.integers(0, 10**8)), min_size=2, max_size=8, unique=True
)


@given(CROSSINGS, st.floats(1e-7, 1e-4), st.floats(1e-12, 1e-8))
def test_planted_costs_are_recovered(crossings: list[Crossing], constant: float, per_byte: float) -> None:
    first, second = crossings[:2]
    independent = abs(first.values * second.nbytes - second.values * first.nbytes)
    if independent < 1e-3 * first.values * max(second.nbytes, 1):
        crossings = [*crossings, Crossing(first.values + 100, max(first.nbytes // 2, 1000))]
    excesses = [(c, constant * c.values + per_byte * c.nbytes) for c in crossings]
    matrix = np.array(crossings, float)
    found = learn_border([*excesses, (Crossing(0, 0), 123.0)])
    assert found is not None
    # Crossings in proportion leave the split open; the predictions are the planted costs in any case.
    largest = max(seconds for _, seconds in excesses)
    np.testing.assert_allclose(matrix @ found, [s for _, s in excesses], rtol=0, atol=1e-9 * largest)


def test_planted_costs_are_recovered_exactly() -> None:
    for constant, per_byte in ((2e-6, 3e-10), (2e-6, 0.0), (0.0, 3e-10), (0.0, 0.0)):
        crossings = [Crossing(1, 4000), Crossing(7, 2000), Crossing(3, 10**6)]
        found = learn_border([(c, constant * c.values + per_byte * c.nbytes) for c in crossings])
        assert found == pytest.approx((constant, per_byte), rel=1e-9, abs=1e-16)


EXCESSES = st.lists(
    st.tuples(st.builds(Crossing, st.integers(0, 50), st.integers(0, 10**7)), st.floats(-1e-2, 1e-2)), max_size=8
)


@given(EXCESSES)
def test_learned_costs_are_the_best_without_negative_costs(excesses: list[tuple[Crossing, float]]) -> None:
    found = learn_border(excesses)
    rows = [(c.values, c.nbytes, max(s, 0.0)) for c, s in excesses if c.values]
    assert (found is None) == (not rows)
    if found is None:
        return
    assert min(found) >= 0.0
    table = np.array(rows, float)

    def error(border: tuple[float, float]) -> float:
        return float(((table[:, :2] @ np.array(border) - table[:, 2]) ** 2).sum())

    best = error(found) - 1e-12 * (1 + float((table[:, 2] ** 2).sum()))
    for first in (0.0, 0.5, 0.99, 1.01, 2.0):
        for second in (0.0, 0.5, 0.99, 1.01, 2.0):
            assert best <= error((found[0] * first, found[1] * second))
    for border in ((1e-6, 0.0), (0.0, 1e-10), (1e-5, 1e-10)):
        assert best <= error(border)


def test_negative_excesses_cost_nothing() -> None:
    assert learn_border([(Crossing(1, 10), -1.0), (Crossing(2, 3), -2.0)]) == (0.0, 0.0)
    assert learn_border([]) is None
    assert learn_border([(Crossing(0, 0), 1.0)]) is None
