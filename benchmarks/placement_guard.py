"""The standing of placements: against the better peer, and against the best backend alone, with a guard of both.

Ratios are above 1 where the placement is faster. A model falls below a limit if the ratio and the spread together do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.pairing import Samples, paired_ratio

__all__ = ["LEAST_OF_PEER", "LEAST_OF_SINGLE", "Guard", "Standing", "find_fastest", "geometric_mean", "stand"]

LEAST_OF_SINGLE = 0.98
"""The least ratio of the best single backend's time to the time of a placement."""
LEAST_OF_PEER = 1.0
"""The least ratio of the better peer's time to the time of a placement."""


@dataclass(frozen=True)
class Standing:
    """A model by all contestants of byoc.

    Attributes:
        model: the name.
        peer: the better peer; None without peers.
        single: the best single backend; None without a single backend.
        over_peer: the better peer's time over the contestant's, for each contestant of byoc.
        over_single: the best single backend's time over the contestant's, for each placement among several backends.
        same: the contestants with the same program as the best single backend; only noise is between the times.
    """

    model: str
    peer: str | None
    single: str | None
    over_peer: Mapping[str, Samples]
    over_single: Mapping[str, Samples]
    same: frozenset[str] = frozenset()


def stand(
    model: str,
    seconds: Mapping[str, Samples],
    *,
    peers: Sequence[str],
    singles: Sequence[str],
    placed: Sequence[str],
    programs: Mapping[str, object] | None = None,
) -> Standing:
    """Return the standing of a model; contestants without seconds are left out.

    Args:
        model: the name.
        seconds: the seconds of a call by contestant.
        peers: the other engines.
        singles: the contestants of a single backend.
        placed: the contestants of several backends.
        programs: the program by contestant, to be compared for equality.
    """
    peer, single = find_fastest(seconds, peers), find_fastest(seconds, singles)
    of_single = None if single is None or programs is None else programs.get(single)
    ours = [name for name in (*placed, *singles) if name in seconds]
    return Standing(
        model,
        peer,
        single,
        {} if peer is None else {name: paired_ratio(seconds[peer], seconds[name]) for name in ours},
        {}
        if single is None
        else {name: paired_ratio(seconds[single], seconds[name]) for name in ours if name in placed},
        frozenset(name for name in placed if of_single is not None and (programs or {}).get(name) == of_single),
    )


def find_fastest(seconds: Mapping[str, Samples], names: Iterable[str]) -> str | None:
    """Return the name with the least median among the names with seconds; None if there are none."""
    return min((name for name in names if name in seconds), key=lambda name: seconds[name].median, default=None)


def geometric_mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers.

    Raises:
        ValueError: there are no numbers, or a number is not positive.
    """
    numbers = list(values)
    if not numbers or min(numbers) <= 0:
        raise ValueError(f"a geometric mean needs at least one number, all positive; got {numbers}")
    return math.exp(sum(map(math.log, numbers)) / len(numbers))


@dataclass(frozen=True)
class Guard:
    """The standings of all models on a number of threads."""

    standings: Sequence[Standing]

    def means(self) -> dict[str, float]:
        """Return the geometric mean of the better peer's time over the time of each contestant."""
        return {name: geometric_mean(values) for name, values in self._medians().items()}

    def minima(self) -> dict[str, float]:
        """Return the least ratio of the better peer's time to the time of each contestant."""
        return {name: min(values) for name, values in self._medians().items()}

    def mean_of_best_single(self) -> float | None:
        """Return the geometric mean of the better peer's time over the time of the best single backend per model."""
        best = [
            standing.over_peer[standing.single].median
            for standing in self.standings
            if standing.peer is not None and standing.single is not None
        ]
        return geometric_mean(best) if best else None

    def below_single(self, contestant: str) -> list[str]:
        """Return a line for each model with a best single backend faster than the placement beyond noise."""
        lines = []
        for standing in self.standings:
            ratio = standing.over_single.get(contestant)
            if ratio is not None and _is_below(ratio, LEAST_OF_SINGLE):
                same = " (the same program)" if contestant in standing.same else ""
                lines.append(f"{standing.model}: {_text(ratio)} of {standing.single} alone{same}")
        return lines

    def below_peer(self, contestant: str) -> list[str]:
        """Return a line for each model with a better peer faster than the contestant, within noise or beyond."""
        lines = []
        for standing in self.standings:
            ratio = standing.over_peer.get(contestant)
            if ratio is not None and ratio.median < LEAST_OF_PEER:
                noise = "" if _is_below(ratio, LEAST_OF_PEER) else " (within noise)"
                lines.append(f"{standing.model}: {_text(ratio)} of {standing.peer}{noise}")
        return lines

    def _medians(self) -> dict[str, list[float]]:
        medians: dict[str, list[float]] = {}
        for standing in self.standings:
            for name, ratio in standing.over_peer.items():
                medians.setdefault(name, []).append(ratio.median)
        return medians


def _is_below(ratio: Samples, limit: float) -> bool:
    return ratio.median + ratio.quartile_deviation < limit


def _text(ratio: Samples) -> str:
    return f"{ratio.median:.2f} +- {ratio.quartile_deviation:.2f}"
