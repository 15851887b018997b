"""Races: calls of machines in turn, compared within rounds.

Machines drift, and other processes disturb: only samples of the same round are compared. The answer is the median of
the ratios. The threads of a library may spin for some time after a call, as OpenBLAS does behind products of numpy, and
would slow down the next contestant: a sample begins when no thread of the process computes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter

from byoc_core.runtime.threads.idle import settle

__all__ = ["Runner", "challenge", "race"]

Runner = Callable[[], object]
"""A call of a model, without arguments."""

_SAMPLE_S = 5e-3
"""Least seconds of a sample; short calls are repeated."""
_WARM_UP_S = 5e-3
"""Least seconds of unmeasured calls before a sample. After a pause threads wake up, clocks rise and caches fill: of a
perceptron of 7.5 MB on two threads, five calls take 0.4 to 0.15 ms, later ones 0.13."""


def race(runners: Mapping[str, Runner], num_rounds: int, seed: int = 0) -> dict[str, list[float]]:
    """Return the seconds of a call of each runner in each round, runners in random order within rounds."""
    shuffler = random.Random(seed)  # noqa: S311 - the order of measurements
    counts = {name: _count(run) for name, run in runners.items()}
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(num_rounds):
        for name in shuffler.sample(list(runners), len(runners)):
            samples[name].append(_sample(runners[name], counts[name]))
    return samples


def challenge(champion: Runner, challenger: Runner, num_rounds: int = 15, give_up: float = 1.05) -> tuple[float, float]:
    """Return the median ratio of the challenger's to the champion's time, and the challenger's median seconds.

    A challenger slower by ``give_up`` in the first third of the rounds is measured no longer.
    """
    counts = _count(champion), _count(challenger)
    ratios: list[float] = []
    seconds: list[float] = []
    for number in range(num_rounds):
        if number % 2:
            ours, theirs = _sample(challenger, counts[1]), _sample(champion, counts[0])
        else:
            theirs, ours = _sample(champion, counts[0]), _sample(challenger, counts[1])
        ratios.append(ours / theirs)
        seconds.append(ours)
        if number + 1 == (num_rounds + 2) // 3 and median(ratios) > give_up:
            break
    return median(ratios), median(seconds)


def _warm_up(run: Runner) -> None:
    """Make unmeasured calls."""
    start = perf_counter()
    run()
    while perf_counter() - start < _WARM_UP_S:
        run()


def _count(run: Runner) -> int:
    """Return the number of calls in a sample."""
    _warm_up(run)
    start = perf_counter()
    run()
    return max(1, round(_SAMPLE_S / max(perf_counter() - start, 1e-9)))


def _sample(run: Runner, count: int) -> float:
    """Return the seconds of a call behind others, in a process otherwise idle."""
    settle()
    _warm_up(run)
    start = perf_counter()
    for _ in range(count):
        run()
    return (perf_counter() - start) / count
