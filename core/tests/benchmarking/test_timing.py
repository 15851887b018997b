"""Warm-up and samples, with a clock of the test."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from byoc_core.benchmarking.timing import MAX_SAMPLE_CALLS, sample, warm_up


class Clock:
    """A clock moved by calls of known length."""

    def __init__(self, length: Callable[[int], float]) -> None:
        self.now = 0.0
        self.num_calls = 0
        self._length = length

    def __call__(self) -> float:
        return self.now

    def call(self) -> None:
        self.now += self._length(self.num_calls)
        self.num_calls += 1


def test_the_warm_up_ends_with_two_equal_windows() -> None:
    clock = Clock(lambda number: 0.01 if number >= 10 else 0.1 / (number + 1))
    count, typical = warm_up(clock.call, clock)
    assert count == clock.num_calls
    assert 11 <= count <= 20
    assert typical == pytest.approx(0.01)


def test_an_unstable_warm_up_ends_after_a_second() -> None:
    clock = Clock(lambda number: 0.03 * 2 ** (number % 3))
    warm_up(clock.call, clock)
    assert 1.0 <= clock.now < 1.2


def test_a_slow_call_is_made_twice() -> None:
    clock = Clock(lambda _number: 0.6)
    assert warm_up(clock.call, clock) == (2, 0.6)


def test_a_sample_skips_the_calls_behind_a_pause() -> None:
    clock = Clock(lambda number: 0.002 if number < 3 else 0.001)
    times = sample(clock.call, 0.0105, 0.001, clock)
    assert times == pytest.approx([0.001] * 11)
    assert clock.num_calls == 3 + 11


def test_a_sample_of_slow_calls_has_one_call_at_least_and_no_others() -> None:
    clock = Clock(lambda _number: 0.2)
    assert sample(clock.call, 0.0, 0.2, clock) == pytest.approx([0.2])
    assert clock.num_calls == 1


def test_a_sample_of_short_calls_is_bounded() -> None:
    clock = Clock(lambda _number: 1e-6)
    assert len(sample(clock.call, 1.0, 1e-6, clock)) == MAX_SAMPLE_CALLS
