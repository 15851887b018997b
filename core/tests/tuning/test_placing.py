"""The search by moves: regions, borders and ops, from the best placement and from placements a little slower."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from byoc_core.partitioning.policies import PlacedOps
from byoc_core.tuning.candidates import PlacementKey, placement_tuple
from byoc_core.tuning.placing import PlacementSearch
from byoc_core.tuning.proposals import moved_borders
from hypothesis import given
from hypothesis import strategies as st

OPS = ("y", "z", "w")


def report(placement: str, ops: tuple[str, ...] = OPS) -> dict[str, Any]:
    """Return the offload report of a chain; a letter of the placement is a backend, ``-`` is the host."""
    rows, region, before = [], -1, ""
    for number, (name, backend) in enumerate(zip(ops, placement, strict=True)):
        region += backend != before
        before = backend
        rows.append(
            {
                "function": "main",
                "name": name,
                "region": "" if backend == "-" else f"region_{region}",
                "inputs": [ops[number - 1]] if number else ["x"],
                "nbytes_written": 100 * (number + 1),
            }
        )
    return {"ops": rows}


def placed(placement: str, ops: tuple[str, ...] = OPS) -> dict[str, str]:
    """Return the backend of each op."""
    return {f"main/{name}": backend.replace("-", "host") for name, backend in zip(ops, placement, strict=True)}


class Bench:
    """Measured times by placement; other placements take an hour."""

    num_moves_at_once = 1

    def __init__(self, seconds: Mapping[str, float], start: str, num_trials: int = 1000) -> None:
        self.seconds = seconds
        self.num_trials = num_trials
        self.tried: list[str] = []
        self.measured_placements: dict[PlacementKey, tuple[Mapping[str, str], float]] = {}
        self.best = self.measure(start)

    def measure(self, placement: str) -> Any:
        candidate = self.candidate(placement)
        self.measured_placements[candidate.key] = candidate.ops, self.seconds.get(placement, 3600.0)
        return candidate

    def candidate(self, placement: str) -> Any:
        ops = placed(placement)
        executable = SimpleNamespace(report_data=report(placement))
        return SimpleNamespace(key=placement_tuple(ops, {}), ops=ops, executable=executable, placement=placement)

    def build_policy(self, _: str, policy: Any) -> Any:
        return self.candidate("".join(policy.ops[f"main/{name}"].replace("host", "-") for name in OPS))

    def profile_calls(self, _: Any) -> Any:
        return SimpleNamespace(regions=())

    def try_policies(self, policies: Mapping[str, Any]) -> bool:
        is_better = False
        for policy in policies.values():
            if isinstance(policy, PlacedOps):
                found = self.measure(self.build_policy("", policy).placement)
                self.tried.append(found.placement)
                if self.seconds.get(found.placement, 3600.0) < self.seconds[self.best.placement]:
                    self.best, is_better = found, True
        return is_better

    def has_time_to_place(self) -> bool:
        return len(self.tried) < self.num_trials


def search(bench: Bench, able: str = "ab") -> bool:
    alone = {backend: placed(backend * len(OPS)) for backend in able}
    times = {backend: dict.fromkeys(alone[backend], 1.0) for backend in able}
    return PlacementSearch(bench, times, {}, alone, {}).run()


def test_two_moves_gain_what_each_alone_loses() -> None:
    bench = Bench({"aba": 10.0, "bba": 10.2, "baa": 7.0, "aaa": 12.0, "bbb": 12.0}, "aba")
    assert search(bench)
    assert bench.best.placement == "baa"
    assert bench.tried.index("bba") < bench.tried.index("baa")


def test_slow_placements_are_no_origins() -> None:
    bench = Bench({"aba": 10.0, "bba": 11.5, "baa": 7.0, "aaa": 12.0, "bbb": 12.0}, "aba")
    assert search(bench)
    assert bench.best.placement == "aba"
    assert "baa" not in bench.tried


def test_the_end_of_the_time_ends_the_search() -> None:
    bench = Bench({"aba": 10.0, "bba": 10.2, "baa": 7.0}, "aba", num_trials=1)
    assert not search(bench)
    assert len(bench.tried) == 1


@given(
    st.lists(st.floats(1.0, 2.0), min_size=8, max_size=8),
    st.sampled_from(["".join(p) for p in itertools.product("ab", repeat=3)]),
)
def test_no_placement_is_tried_twice_and_the_best_tried_is_found(times: list[float], start: str) -> None:
    seconds = dict(zip(("".join(p) for p in itertools.product("ab", repeat=3)), times, strict=True))
    bench = Bench(seconds, start)
    assert search(bench)
    assert len({start, *bench.tried}) == 1 + len(bench.tried)
    assert bench.best.placement == min([start, *bench.tried], key=seconds.__getitem__)


def test_only_able_backends_get_ops() -> None:
    bench = Bench({"aba": 10.0, "aaa": 11.5, "bba": 8.0, "a-a": 8.0}, "aba")
    assert search(bench, able="a")
    assert bench.tried == ["aaa"]


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        ("aabb", ["abbb", "aaab"]),  # from either side of the border
        ("abba", ["aaba", "abaa"]),  # regions of one op move as regions
        ("aaaa", []),
        ("a--a", []),
    ],
)
def test_borders_move_over_the_ops_on_both_sides(placement: str, expected: list[str]) -> None:
    ops = ("p", "q", "r", "s")
    able = {backend: placed(backend * 4, ops) for backend in "ab"}
    moves = list(moved_borders(report(placement, ops), placed(placement, ops), able, {}))
    assert sorted("".join(move.ops[f"main/{name}"] for name in ops) for move in moves) == sorted(expected)


def test_borders_of_large_values_come_first() -> None:
    ops = ("p", "q", "r", "s", "t", "u")
    able = {backend: placed(backend * 6, ops) for backend in "ab"}
    names = [move.name for move in moved_borders(report("aabbaa", ops), placed("aabbaa", ops), able, {})]
    assert names == [
        "main/t across the border to b",
        "main/s across the border to a",
        "main/r across the border to a",
        "main/q across the border to b",
    ]
