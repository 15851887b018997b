"""Figures of calls, and the numbers of rounds."""

from __future__ import annotations

import numpy as np
import pytest
from byoc_core.benchmarking import Latency, Ratio
from byoc_core.benchmarking.rounds import Effort, rotated, rounds_of_start


def test_percentiles_are_those_of_numpy() -> None:
    seconds = [number / 100 for number in range(1, 102)]
    found = Latency.of(list(reversed(seconds)))
    assert found.num_calls == 101
    assert (found.median, found.least) == pytest.approx((0.51, 0.01))
    assert (found.p90, found.p99) == pytest.approx((0.91, 1.0))
    assert found.mean == pytest.approx(np.mean(seconds))
    assert found.quartile_deviation == pytest.approx(0.25)


def test_a_single_call_has_figures() -> None:
    found = Latency.of([0.5])
    assert found.to_data() == {
        "num_calls": 1,
        "median": 0.5,
        "mean": 0.5,
        "least": 0.5,
        "p90": 0.5,
        "p99": 0.5,
        "quartile_deviation": 0.0,
    }


def test_ratios_are_of_medians_within_rounds() -> None:
    """The machine slows down by ten in the last round; the ratio does not move."""
    byoc = [[1.0, 1.0, 9.0], [2.0], [1.0], [10.0]]
    peer = [[2.0, 2.0, 2.0], [4.0, 4.0], [3.0], [20.0]]
    found = Ratio.of(peer, byoc)
    assert (found.median, found.num_rounds) == (2.0, 4)
    assert (found.low, found.high) == pytest.approx((2.0, 2.25))
    with pytest.raises(ValueError, match="zip"):
        Ratio.of(peer, byoc[1:])


@pytest.mark.parametrize(
    ("seconds", "num_starts", "slowest", "expected"),
    [(2.0, 3, 1e-3, 4), (2.0, 1, 1e-3, 12), (2.0, 1, 0.5, 4), (2.0, 1, 9.0, 3), (2.0, 3, 9.0, 1), (0.0, 5, 0.0, 1)],
)
def test_slow_models_have_fewer_rounds(seconds: float, num_starts: int, slowest: float, expected: int) -> None:
    assert rounds_of_start(Effort(seconds, num_starts), slowest) == expected


def test_the_order_of_engines_changes() -> None:
    assert [rotated("abc", number) for number in range(4)] == [list(text) for text in ("abc", "bca", "cab", "abc")]
    assert rotated([], 1) == []
