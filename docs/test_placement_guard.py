"""The guard of placements: the arithmetic of `benchmarks.placements`, and its tables as a recorded result."""

from __future__ import annotations

import math

import pytest

from benchmarks.pairing import Samples
from benchmarks.placement_guard import Guard, find_fastest, geometric_mean, stand
from benchmarks.recording import to_tables

PEERS, SINGLES, PLACED = ("a peer", "a better peer"), ("one", "two"), ("by cost",)
STEADY = (1.0, 1.0, 1.0, 1.0)


def _samples(*values: float) -> Samples:
    return Samples(values)


def _times(seconds: float, jitter: tuple[float, ...] = STEADY) -> Samples:
    return Samples(tuple(seconds * factor for factor in jitter))


def _guard(by_cost: Samples, first: Samples, second: Samples, peer: Samples) -> Guard:
    seconds = {"by cost": by_cost, "one": first, "two": second, "a peer": _times(100.0), "a better peer": peer}
    return Guard([stand("model", seconds, peers=PEERS, singles=SINGLES, placed=PLACED)])


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one() -> None:
    assert geometric_mean([4.0, 0.25]) == pytest.approx(1.0)
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    with pytest.raises(ValueError, match="at least one number"):
        geometric_mean([])
    with pytest.raises(ValueError, match="all positive"):
        geometric_mean([1.0, 0.0])


def test_the_fastest_is_the_least_median_of_those_measured() -> None:
    seconds = {"steady": _samples(2.0, 2.0, 2.0), "lucky": _samples(0.1, 3.0, 3.0)}
    assert find_fastest(seconds, ["missing", "lucky", "steady"]) == "steady"
    assert find_fastest(seconds, ["missing"]) is None


def test_ratios_are_taken_round_by_round_against_the_better_peer_and_the_best_single_backend() -> None:
    drift = (1.0, 2.0, 4.0, 8.0)  # the machine slows down: only ratios within rounds are steady
    guard = _guard(_times(2.0, drift), _times(5.0, drift), _times(4.0, drift), _times(6.0, drift))
    (standing,) = guard.standings
    assert (standing.peer, standing.single) == ("a better peer", "two")
    assert standing.over_peer["by cost"].values == (3.0,) * 4
    assert standing.over_peer["one"].median == pytest.approx(1.2)
    assert standing.over_single["by cost"].values == (2.0,) * 4
    assert set(standing.over_single) == {"by cost"}
    assert guard.below_single("by cost") == guard.below_peer("by cost") == []


def test_a_placement_slower_than_a_backend_alone_is_listed_beyond_noise_only() -> None:
    slower = _guard(_times(1.1), _times(1.0), _times(3.0), _times(9.0))
    assert slower.below_single("by cost") == ["model: 0.91 +- 0.00 of one alone"]
    almost = _guard(_times(1.01), _times(1.0), _times(3.0), _times(9.0))
    assert almost.below_single("by cost") == []
    noisy = _guard(_times(1.1, (0.8, 0.9, 1.1, 1.2)), _times(1.0), _times(3.0), _times(9.0))
    assert noisy.below_single("by cost") == []


def test_the_same_placement_as_a_backend_alone_is_named() -> None:
    seconds = {"by cost": _times(1.1), "one": _times(1.0), "two": _times(1.05)}
    for by_cost, end in (("all by one", "of one alone (the same program)"), ("all by two", "of one alone")):
        programs = {"by cost": by_cost, "one": "all by one", "two": "all by two"}
        standing = stand("model", seconds, peers=(), singles=SINGLES, placed=PLACED, programs=programs)
        assert Guard([standing]).below_single("by cost") == [f"model: 0.91 +- 0.00 {end}"]


def test_a_model_slower_than_a_peer_is_listed_with_a_word_on_noise() -> None:
    assert _guard(_times(1.0), _times(2.0), _times(3.0), _times(0.5)).below_peer("by cost") == [
        "model: 0.50 +- 0.00 of a better peer"
    ]
    (line,) = _guard(_times(1.0, (0.8, 0.9, 1.1, 1.2)), _times(2.0), _times(3.0), _times(0.98)).below_peer("by cost")
    assert line.endswith("of a better peer (within noise)")
    assert _guard(_times(1.0), _times(2.0), _times(3.0), _times(1.0)).below_peer("by cost") == []


def test_means_and_minima_are_over_all_models_by_contestant() -> None:
    first = _guard(_times(1.0), _times(2.0), _times(4.0), _times(4.0))
    second = _guard(_times(1.0), _times(2.0), _times(0.5), _times(1.0))
    guard = Guard([*first.standings, *second.standings])
    assert guard.means() == pytest.approx({"by cost": 2.0, "one": 1.0, "two": math.sqrt(2.0)})
    assert guard.minima() == {"by cost": 1.0, "one": 0.5, "two": 1.0}
    assert guard.mean_of_best_single() == pytest.approx(2.0)


def test_without_peers_only_backends_are_compared() -> None:
    seconds = {"by cost": _times(1.0), "one": _times(0.5)}
    guard = Guard([stand("model", seconds, peers=(), singles=SINGLES, placed=PLACED)])
    assert guard.means() == guard.minima() == {}
    assert guard.mean_of_best_single() is None
    assert guard.below_single("by cost") == ["model: 0.50 +- 0.00 of one alone"]


def test_tables_of_models_are_recorded_with_models_in_rows_and_units_by_title() -> None:
    cell = _samples(0.5).to_json()
    figure = {"unit": "ms", "rows_are": "model", "guard": {"1 thread": {"by cost": {"below the peer": []}}}}
    tables = {f"1 thread: {word}": {"lenet": {"by cost": cell}} for word in ("times", "ratios", "shares")}
    found = to_tables("placements", {**figure, **tables})
    assert [(table.title, table.rows_are, table.rows[0].unit) for table in found] == [
        ("placements: 1 thread: times", "model", "ms"),
        ("placements: 1 thread: ratios", "model", "ratio"),
        ("placements: 1 thread: shares", "model", "share"),
    ]
    assert [(row.name, row.figures) for row in found[0].rows] == [("lenet", ("0.5",))]
