"""Paired, interleaved timing: contestants run in rounds, in random order within each round.

Machines drift, so only contestants of the same round are comparable; the answer is the median of the ratios within
rounds, with the spread that says how far to trust it. Ratios nearer to 1 than 1.03 prove nothing.
"""

from __future__ import annotations

import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["Samples", "describe_machine", "measure", "paired_ratio", "time_call", "write_result"]


@dataclass(frozen=True)
class Samples:
    """The measured values of one contestant, one per round, in the unit that the caller chose."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle value."""
        return statistics.median(self.values)

    @property
    def best(self) -> float:
        """The least value."""
        return min(self.values)

    @property
    def spread(self) -> float:
        """Half of the distance between the quartiles; 0 for a single round."""
        if len(self.values) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return (high - low) / 2.0

    def to_json(self) -> dict[str, Any]:
        """Gives the figures as plain values."""
        return {"median": self.median, "best": self.best, "spread": self.spread, "rounds": len(self.values)}

    def __str__(self) -> str:
        return f"{self.median:.4g} +- {self.spread:.2g} (best {self.best:.4g}, {len(self.values)} rounds)"


def measure(contestants: Mapping[str, Callable[[], float]], *, num_rounds: int, seed: int = 0) -> dict[str, Samples]:
    """Gives the samples of each contestant; a contestant measures itself and returns its value.

    Each contestant first runs once unmeasured. The order within a round is drawn anew from ``seed``.
    """
    shuffler = random.Random(seed)
    for contestant in contestants.values():
        contestant()
    values: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(num_rounds):
        for name in shuffler.sample(list(contestants), len(contestants)):
            values[name].append(contestants[name]())
    return {name: Samples(tuple(found)) for name, found in values.items()}


def paired_ratio(numerator: Samples, denominator: Samples) -> Samples:
    """Gives the ratios of two contestants, round by round."""
    pairs = zip(numerator.values, denominator.values, strict=True)
    return Samples(tuple(above / below for above, below in pairs))


def time_call(function: Callable[[], object], *, num_calls: int = 1, rest_s: float = 0.0) -> Callable[[], float]:
    """Returns a contestant that calls a function and gives the mean seconds of one call.

    Args:
        function: what is called.
        num_calls: how many calls are timed.
        rest_s: seconds to sleep before, and then to call once untimed: for contestants of one process, whose threads
            look for work for a while after a call, on the processors that the other wants.
    """

    def contestant() -> float:
        if rest_s:
            time.sleep(rest_s)
            function()
        start = time.perf_counter()
        for _ in range(num_calls):
            function()
        return (time.perf_counter() - start) / num_calls

    return contestant


def describe_machine(distributions: Sequence[str] = ("byoc-core", "numpy", "onnx", "onnxruntime")) -> dict[str, Any]:
    """Gives processor, cores, system, Python and the versions of the distributions that are installed."""
    versions = {}
    for name in distributions:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "processor": read_processor_name(),
        "num_cpus": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def read_processor_name() -> str:
    """Gives the processor's name as Linux tells it, else what Python knows."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def write_result(path: Path, figures: Mapping[str, Any]) -> None:
    """Writes figures as JSON, beside the command and the machine that gave them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"command": sys.argv, "machine": describe_machine(), "figures": dict(figures)}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
