"""Regression by distance: between known values, near them at known points, independent of the order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from byoc_core.authoring.cost_regression import DistanceRegression
from hypothesis import given
from hypothesis import strategies as st

Floats = npt.NDArray[np.floating[Any]]
_NUMBERS = st.floats(-8, 8)


def _distances(points: Floats, others: Floats) -> Floats:
    found: Floats = np.abs(points[:, None] - others).sum(-1)
    return found


@st.composite
def _samples(draw: st.DrawFn) -> tuple[Floats, Floats]:
    points = draw(st.lists(st.tuples(_NUMBERS, _NUMBERS), min_size=1, max_size=12))
    values = draw(st.lists(_NUMBERS, min_size=len(points), max_size=len(points)))
    return np.array(points), np.array(values)


def _regression(points: Floats, values: Floats) -> DistanceRegression:
    return DistanceRegression(_distances(points, points), values)


@given(_samples(), st.tuples(_NUMBERS, _NUMBERS))
def test_expected_values_are_between_the_known_values(
    samples: tuple[Floats, Floats], asked: tuple[float, float]
) -> None:
    points, values = samples
    found = _regression(points, values).predict(_distances(np.array([asked]), points)[0])
    assert values.min() <= found <= values.max()


@given(_samples(), st.randoms(use_true_random=False))
def test_the_order_of_the_points_does_not_count(samples: tuple[Floats, Floats], rng: Any) -> None:
    points, values = samples
    order = list(range(len(values)))
    rng.shuffle(order)
    asked = _distances(np.array([(0.5, -0.5)]), points)[0]
    found, again = _regression(points, values), _regression(points[order], values[order])
    assert again.predict(asked[order]) == pytest.approx(found.predict(asked), abs=1e-6)


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(-30, 30))
def test_a_slope_is_found_between_the_points(slope: float, other_slope: float, start: float) -> None:
    """A weighted mean of the nearest points is biased between points; the regression is not."""
    points = np.array([(float(a), float(b)) for a in range(0, 12, 2) for b in range(0, 12, 2)])
    values = start + points @ np.array([slope, other_slope])
    fitted = _regression(points, values)
    for asked in ((3.0, 5.0), (5.0, 5.0), (7.0, 3.0)):
        expected = start + float(np.array(asked) @ np.array([slope, other_slope]))
        found = fitted.predict(_distances(np.array([asked]), points)[0])
        assert abs(found - expected) < 0.15 * (abs(slope) + abs(other_slope)) + 1e-9


def test_far_from_all_points_the_usual_value_is_expected() -> None:
    fitted = DistanceRegression(np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]]), np.array([1.0, 2, 9]))
    assert fitted.predict(np.array([900.0, 901, 902])) == pytest.approx(2)
    assert fitted.predict(np.array([2.0, 1, 0])) == pytest.approx(9, rel=0.2)
