"""The wait for threads of the process still computing, or spinning, behind a call."""

from __future__ import annotations

from time import perf_counter, process_time, sleep

__all__ = ["settle"]

_PAUSE_S = 12e-3
"""Longer than a tick of the kernel's clock, 10 ms or less: threads on other processors are accounted by tick."""
_IDLE_SHARE = 0.2
"""The share of a pause used by all threads of an idle process."""
_LONGEST_PAUSE_S = 0.2


def settle() -> None:
    """Wait until no other thread of the process computes, but no longer than a fifth of a second."""
    stop = perf_counter() + _LONGEST_PAUSE_S
    while perf_counter() < stop:
        before, start = process_time(), perf_counter()
        sleep(_PAUSE_S)
        if process_time() - before < _IDLE_SHARE * (perf_counter() - start):
            return
