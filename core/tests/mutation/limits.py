"""A pytest plugin limiting each test of a mutant, first in processor time: a busy machine kills no mutant.

mutmut limits the tests of a mutant together, in real time. An endless mutant nearly always appears in a test of
milliseconds, so a limit for each test ends the mutant sooner. The limit follows from the duration of the test without a
mutant. A mutant exceeding the limit counts as killed, since the test would not end. The memory of a mutant is limited
too.
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
    """Return the limit of processor time in seconds, from a test's duration without a mutant."""
    return 3.0 + 5.0 * duration_s


def real_limit_s(duration_s: float) -> float:
    """Return the limit of real time in seconds for the same test: a limit for waiting without computing."""
    return 120.0 + 50.0 * duration_s


def is_of_a_mutant() -> bool:
    """Return whether this process tries a mutant, rather than listing or measuring tests."""
    return "__mutmut_" in os.environ.get("MUTANT_UNDER_TEST", "")


def pytest_sessionstart() -> None:
    """Limit the memory of a mutant, and end the process at the end of a test's time."""
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
    """Start the clocks of a test, and stop the clocks afterwards."""
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
