"""Races: threads still computing behind a call do not disturb the next contestant."""

from __future__ import annotations

import threading
import time

from byoc_core.tuning.race import race, settle

SPIN_S = 0.05


def spin(seconds: float) -> threading.Thread:
    def run() -> None:
        stop = time.perf_counter() + seconds
        while time.perf_counter() < stop:
            pass

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_sample_waits_for_spinning_threads() -> None:
    thread = spin(SPIN_S)
    settle()
    assert not thread.is_alive()


def test_endless_work_of_the_process_ends_the_wait() -> None:
    thread = spin(1.0)
    start = time.perf_counter()
    settle()
    assert thread.is_alive()
    assert time.perf_counter() - start < 0.9
    thread.join()


def test_a_contestant_leaving_threads_behind_does_not_slow_the_others() -> None:
    threads = []

    def leaving() -> None:
        threads.append(spin(0.02))

    alive = []

    def calm() -> None:
        alive.append(any(thread.is_alive() for thread in threads))

    race({"leaving": leaving, "calm": calm}, 5)
    for thread in threads:
        thread.join()
    assert alive
    assert not any(alive[2:])  # the first two calls count calls, before any round
