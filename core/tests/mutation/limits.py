"""A pytest plugin that bounds each test of a mutant, in processor time first, so that a busy machine kills no mutant.

mutmut bounds the tests of a mutant all together, in real time. A mutant that never ends is nearly always seen in a test
of milliseconds, so a bound for each test is short. It follows from the time that the test took without a mutant. A
mutant that passes it counts as killed, since the test would not end. The memory of a mutant is bounded too.
"""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from types import FrameType

import pytest
from mutmut.state import state

__all__ = ["cpu_limit_s", "real_limit_s"]

TIMED_OUT = 36  # the exit status that mutmut reads as a timeout
MEMORY_NBYTES = 8 << 30


def cpu_limit_s(duration_s: float) -> float:
    """Return the seconds of processor time that a test may take which took so many seconds without a mutant."""
    return 3.0 + 5.0 * duration_s


def real_limit_s(duration_s: float) -> float:
    """Return the seconds of real time for the same test: a bound for what waits without computing."""
    return 120.0 + 50.0 * duration_s


def is_of_a_mutant() -> bool:
    """Return whether this process tries a mutant, and neither lists the tests nor measures them."""
    return "__mutmut_" in os.environ.get("MUTANT_UNDER_TEST", "")


def pytest_sessionstart() -> None:
    """Bound the memory of a mutant, and let the end of a test's time end the process."""
    if not is_of_a_mutant():
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_NBYTES, hard))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _end)


def _end(_signal: int, _frame: FrameType | None) -> None:
    os._exit(TIMED_OUT)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Start the clocks of a test, and stop them after it."""
    if not is_of_a_mutant():
        return (yield)
    duration = state().duration_by_test.get(item.nodeid, 0.0)
    signal.setitimer(signal.ITIMER_PROF, cpu_limit_s(duration))
    signal.setitimer(signal.ITIMER_REAL, real_limit_s(duration))
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
