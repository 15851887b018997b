"""Figures of measured calls: percentiles, and ratios within rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

__all__ = ["Latency", "Ratio"]


@dataclass(frozen=True, slots=True)
class Latency:
    """The seconds of a call, over all measured calls.

    Attributes:
        num_calls: the number of measured calls.
        median: the middle time.
        mean: total time over calls; ``1 / mean`` is the throughput.
        least: the shortest time.
        p90: the time not exceeded by 90% of the calls.
        p99: the time not exceeded by 99% of the calls.
        quartile_deviation: half of the distance between the quartiles.
    """

    num_calls: int
    median: float
    mean: float
    least: float
    p90: float
    p99: float
    quartile_deviation: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Self:
        """Return the figures of calls, one at least; percentiles are interpolated linearly."""
        low, middle, high, p90, p99 = (float(value) for value in np.percentile(seconds, (25, 50, 75, 90, 99)))
        return cls(len(seconds), middle, float(np.mean(seconds)), min(seconds), p90, p99, (high - low) / 2)

    def to_data(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The time of an engine over the time of byoc; above 1, byoc is faster.

    Machines drift, so only calls of the same round are compared: a round has a ratio of two medians.

    Attributes:
        median: the middle ratio of the rounds.
        low: the lower quartile.
        high: the upper quartile.
        num_rounds: the number of rounds.
    """

    median: float
    low: float
    high: float
    num_rounds: int

    @classmethod
    def of(cls, engine_rounds: Sequence[Sequence[float]], byoc_rounds: Sequence[Sequence[float]]) -> Self:
        """Return the ratio of rounds of calls: seconds of single calls, the rounds in the same order."""
        ratios = [
            float(np.median(ours) / np.median(byoc)) for ours, byoc in zip(engine_rounds, byoc_rounds, strict=True)
        ]
        low, middle, high = (float(value) for value in np.percentile(ratios, (25, 50, 75)))
        return cls(middle, low, high, len(ratios))

    def to_data(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return asdict(self)
