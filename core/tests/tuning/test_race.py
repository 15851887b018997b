"""Races: threads still computing behind a call do not disturb the next contestant."""

from __future__ import annotations

import importlib

import pytest
from byoc_core.tuning.race import race, settle

RACE = importlib.import_module("byoc_core.tuning.race")


class Clock:
    """A clock of a process with other threads computing for some time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy_s: float) -> None:
        self.now = 0.0
        self.computed = 0.0
        self.busy_until = busy_s
        monkeypatch.setattr(RACE, "perf_counter", lambda: self.now)
        monkeypatch.setattr(RACE, "process_time", lambda: self.computed)
        monkeypatch.setattr(RACE, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.computed += min(seconds, max(0.0, self.busy_until - self.now))
        self.now += seconds


@pytest.mark.parametrize(("busy_s", "wait_s"), [(0.0, 0.012), (0.0301, 0.048), (10.0, 0.2)])
def test_a_sample_waits_for_computing_threads_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, busy_s: float, wait_s: float
) -> None:
    clock = Clock(monkeypatch, busy_s)
    settle()
    assert clock.now == pytest.approx(wait_s, abs=5e-3)


def test_each_sample_of_a_race_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contestant leaving threads behind does not slow the others."""
    clock = Clock(monkeypatch, 0.0)
    disturbed = []

    def leaving() -> None:
        clock.now += 0.01
        clock.busy_until = clock.now + 0.03

    def calm() -> None:
        clock.now += 0.01
        disturbed.append(clock.busy_until > clock.now)

    race({"leaving": leaving, "calm": calm}, 5)
    assert len(disturbed) > 5
    assert not any(disturbed[2:])  # the first two calls count calls, before any round
