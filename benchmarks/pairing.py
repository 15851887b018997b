"""Paired, interleaved timing: contestants run in rounds, in random order within each round.

Machines drift: only contestants of the same round are comparable. The answer is the median of the ratios within
rounds, with the spread as a measure of trust. Ratios nearer to 1 than 1.03 prove nothing.
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
    """The measured values of a contestant, one per round, in the unit chosen by the caller."""

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
    def quartile_deviation(self) -> float:
        """Half of the distance between the quartiles; 0 for a single round."""
        if len(self.values) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return (high - low) / 2.0

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {"median": self.median, "best": self.best, "spread": self.quartile_deviation, "rounds": len(self.values)}

    def __str__(self) -> str:
        return f"{self.median:.4g} +- {self.quartile_deviation:.2g} (best {self.best:.4g}, {len(self.values)} rounds)"


def measure(contestants: Mapping[str, Callable[[], float]], *, num_rounds: int, seed: int = 0) -> dict[str, Samples]:
    """Return the samples of each contestant; a contestant measures itself and returns the value.

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
    """Return the ratios of two contestants, round by round."""
    pairs = zip(numerator.values, denominator.values, strict=True)
    return Samples(tuple(above / below for above, below in pairs))


def time_call(function: Callable[[], object], *, num_calls: int = 1, rest_s: float = 0.0) -> Callable[[], float]:
    """Return a contestant calling a function and returning the mean seconds of a call.

    Args:
        function: the timed function.
        num_calls: the number of timed calls.
        rest_s: seconds to sleep before an untimed call and the timed calls: for contestants in the same process,
            because after a call the threads of one contestant look for work for a while, on the processors of the next.
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
    """Return processor, cores, system, Python and the versions of the installed distributions."""
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
    """Return the processor's name from Linux, else from Python."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def write_result(path: Path, figures: Mapping[str, Any]) -> None:
    """Write figures as JSON, with the command and the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    result = {"command": sys.argv, "machine": describe_machine(), "figures": dict(figures)}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
