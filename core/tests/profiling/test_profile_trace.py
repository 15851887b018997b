"""The trace of a profile obeys the Trace Event Format: bars nest, and times are times of the calls."""

from __future__ import annotations

import json
from typing import Any

import pytest
from byoc_core.profiling import Profile

from core.tests.conftest import FakeBackend
from core.tests.profiled_toys import MODELS, PartsBackend, profile_of

ROUNDING = 1e-6
"""Microseconds: the sum of two rounded numbers."""


def bars_of(profile: Profile) -> list[dict[str, Any]]:
    """Return the bars of the trace, after a way through JSON."""
    events = json.loads(json.dumps(profile.to_trace(), allow_nan=False))["traceEvents"]
    return [event for event in events if event["ph"] == "X"]


def nested(bars: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return each bar with the bars around, outermost first; check that no bar crosses the end of another."""
    paths: list[list[dict[str, Any]]] = []
    around: list[dict[str, Any]] = []
    for bar in sorted(bars, key=lambda bar: (bar["ts"], -bar["dur"])):  # stable: of equal bars, the first is around
        while around and bar["ts"] >= around[-1]["ts"] + around[-1]["dur"] - ROUNDING:
            around.pop()
        for outer in around:
            assert bar["ts"] + bar["dur"] <= outer["ts"] + outer["dur"] + ROUNDING
        around.append(bar)
        paths.append(list(around))
    return paths


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("num_calls", [1, 3, 20])
def test_bars_nest_by_call_region_and_part(model: str, num_calls: int) -> None:
    profile = profile_of(model, num_calls=num_calls)
    bars = bars_of(profile)
    assert all(bar["ts"] >= 0 and bar["dur"] >= 0 for bar in bars)
    calls = [bar for bar in bars if bar["cat"] == "call"]
    assert len(calls) == len(profile.records) == min(num_calls, 8)
    parts = {part.name for region in profile.regions for part in region.parts}
    regions = {region.name for region in profile.regions}
    assert parts
    depths = {1: {"main"}, 2: regions, 3: parts}
    found: dict[int, set[str]] = {}
    for path in nested(bars):
        found.setdefault(len(path), set()).add(path[-1]["name"])
        if len(path) == 3:
            assert path[2]["name"].startswith(path[1]["name"]) or path[2]["cat"] != "parts"
            assert path[2]["cat"] == path[1]["cat"]
    assert found == depths


@pytest.mark.parametrize("model", MODELS)
def test_events_have_the_fields_of_the_format(model: str) -> None:
    trace = profile_of(model).to_trace()
    assert trace["displayTimeUnit"] in ("ms", "ns")
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X"}
    for event in trace["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["args"], dict)
        assert type(event["pid"]) is type(event["tid"]) is int
        if event["ph"] == "X":
            assert isinstance(event["cat"], str)
            assert isinstance(event["ts"], float)
            assert isinstance(event["dur"], float)
        else:
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)


@pytest.mark.parametrize("model", MODELS)
def test_bars_are_the_calls_of_the_profile(model: str) -> None:
    """With as many calls as records, each region has as many bars as calls."""
    profile = profile_of(model, num_calls=1)
    bars = bars_of(profile)
    assert sum(bar["dur"] for bar in bars if bar["cat"] == "call") == pytest.approx(profile.seconds * 1e6)
    for region in profile.regions:
        own = [bar for bar in bars if bar["name"] == region.name]
        assert len(own) == region.calls
        assert {bar["cat"] for bar in own} == {region.backend}
        assert sum(bar["dur"] for bar in own) == pytest.approx(region.seconds * 1e6)
        for part in region.parts if region.backend == "parts" else ():
            own = [bar for bar in bars if bar["name"] == part.name]
            assert len(own) == part.calls
            assert sum(bar["dur"] for bar in own) == pytest.approx(part.seconds * 1e6)
            lines = [[f"{op.op} {op.value}" for op in part.ops]] * len(own)
            assert part.name.endswith("first") or [bar["args"]["ops"] for bar in own] == lines


def test_a_region_in_a_loop_has_a_bar_for_each_turn() -> None:
    bars = bars_of(profile_of("loop", num_calls=1))
    assert sum(bar["name"] == "whole_main_0" for bar in bars) == int(MODELS["loop"][1]()[0]) == 5


def test_sizes_of_the_inputs_stand_at_the_calls() -> None:
    for model, (_, _, sizes) in MODELS.items():
        (call,) = (bar for bar in bars_of(profile_of(model, num_calls=1)) if bar["cat"] == "call")
        assert call["args"] == {"num_threads": 1, "sizes": sizes}


def test_without_parts_the_regions_are_the_deepest_bars() -> None:
    profile = profile_of("plain", [FakeBackend("whole", None)])
    assert [region.backend for region in profile.regions] == ["whole"]
    assert profile.regions[0].parts == ()
    assert {len(path) for path in nested(bars_of(profile))} == {1, 2}
    assert "no backend reports parts of regions" in str(profile)


def test_several_backends_with_parts_keep_their_parts() -> None:
    profile = profile_of("plain", [PartsBackend("aone", ["add", "nn.relu"]), PartsBackend("btwo", ["tanh", "sin"])])
    with_parts = {region.backend for region in profile.regions if region.parts}
    assert with_parts >= {"aone", "btwo"}
    for path in nested(bars_of(profile)):
        assert len({bar["cat"] for bar in path[1:]}) <= 1


def test_a_profile_without_records_gives_a_trace_without_bars() -> None:
    assert bars_of(Profile("main", {}, 1, 1, 1.0, ())) == []
