"""Races: threads still computing behind a call do not disturb the next contestant."""

from __future__ import annotations

import pytest
from byoc_core.runtime.threads import idle
from byoc_core.runtime.threads.idle import settle
from byoc_core.tuning import race as racing
from byoc_core.tuning.race import challenge, race


class Clock:
    """A clock of a process with other threads computing for some time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, busy_s: float, tick_s: float = 0.0) -> None:
        self.now = 0.0
        self.computed = self.accounted = 0.0
        self.tick_s = tick_s
        self.busy_until = busy_s
        monkeypatch.setattr(racing, "perf_counter", lambda: self.now)
        monkeypatch.setattr(idle, "perf_counter", lambda: self.now)
        monkeypatch.setattr(idle, "process_time", lambda: self.accounted)
        monkeypatch.setattr(idle, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.computed += min(seconds, max(0.0, self.busy_until - self.now))
        ticks_before, self.now = self.now // self.tick_s if self.tick_s else -1, self.now + seconds
        if not self.tick_s or self.now // self.tick_s > ticks_before:
            self.accounted = self.computed


@pytest.mark.parametrize(("busy_s", "wait_s"), [(0.0, 0.012), (0.0301, 0.048), (10.0, 0.2)])
def test_a_sample_waits_for_computing_threads_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch, busy_s: float, wait_s: float
) -> None:
    clock = Clock(monkeypatch, busy_s)
    settle()
    assert clock.now == pytest.approx(wait_s, abs=5e-3)


def test_threads_accounted_by_tick_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels account threads on other processors up to every 10 ms: a shorter look sees nothing."""
    clock = Clock(monkeypatch, 0.1, tick_s=0.01)
    settle()
    assert 0.1 <= clock.now < 0.15


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


def test_calls_behind_a_pause_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads wake up and caches fill in the first calls: the contestant faster in a loop wins."""
    clock = Clock(monkeypatch, 0.0)
    ended = [0.0]
    num_calls = [0]

    def waking() -> None:
        num_calls[0] = 0 if clock.now > ended[0] else num_calls[0] + 1
        clock.now += 4e-4 if num_calls[0] < 8 else 1e-4
        ended[0] = clock.now

    def steady() -> None:
        clock.now += 2e-4

    ratio, seconds = challenge(steady, waking)
    assert ratio == pytest.approx(0.5)
    assert seconds == pytest.approx(1e-4)
    samples = race({"waking": waking, "steady": steady}, 5)
    assert samples["waking"] == pytest.approx([1e-4] * 5)
