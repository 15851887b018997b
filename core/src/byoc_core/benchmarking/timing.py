"""The timing of calls in a measuring process: warm-up, and samples of single calls."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

__all__ = ["MAX_SAMPLE_CALLS", "sample", "warm_up"]

Timer = Callable[[], float]

MAX_SAMPLE_CALLS = 2_000
"""Calls of a sample at most: the times of more calls tell nothing new."""
_WINDOW_S = 20e-3
_STABLE_SHARE = 0.05
_MAX_WARM_UP_S = 1.0
_WAKE_UP_S = 5e-3
_SLOW_S = 50e-3
"""From this time of a call, the effects of a pause before the call are below one per cent."""


def warm_up(call: Callable[[], object], timer: Timer = perf_counter) -> tuple[int, float]:
    """Call until the medians of two windows of calls differ by 5% at most, or for a second.

    A window lasts 20 ms, or a single longer call.

    Returns:
        The number of calls, and the median seconds of a call in the last window.
    """
    start, count = timer(), 0
    previous: float | None = None
    while True:
        window = _time_calls(call, _WINDOW_S, None, timer)
        count += len(window)
        current = median(window)
        is_stable = previous is not None and abs(current - previous) <= _STABLE_SHARE * previous
        if is_stable or timer() - start >= _MAX_WARM_UP_S:
            return count, current
        previous = current


def sample(
    call: Callable[[], object],
    seconds: float,
    typical: float,
    timer: Timer = perf_counter,
) -> list[float]:
    """Return the seconds of single calls, one call at least.

    Short calls are first made for 5 ms without measurement: after a pause threads wake up and caches fill.

    Args:
        call: the timed call.
        seconds: of all timed calls; the call in progress at the end is finished.
        typical: seconds of a call.
        timer: a clock, in seconds.
    """
    if typical < _SLOW_S:
        _time_calls(call, _WAKE_UP_S, None, timer)
    return _time_calls(call, seconds, MAX_SAMPLE_CALLS, timer)


def _time_calls(call: Callable[[], object], seconds: float, max_calls: int | None, timer: Timer) -> list[float]:
    times: list[float] = []
    before = timer()
    end = before + seconds
    while not times or (before < end and (max_calls is None or len(times) < max_calls)):
        before = timer()
        call()
        after = timer()
        times.append(after - before)
        before = after
    return times
