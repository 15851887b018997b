"""The result of a benchmark: a row for each engine, number of threads, and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from byoc_core.benchmarking.statistics import Latency, Ratio

__all__ = ["Benchmark", "BenchmarkRow", "EngineVersion", "OutputCheck"]


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """An engine.

    Attributes:
        name: ``"byoc"``, or the name of a peer.
        version: of the engine; empty if the engine failed before.
        settings: of the engine, for people.
    """

    name: str
    version: str
    settings: str


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """The comparison of an engine's outputs with byoc's.

    Attributes:
        agrees: whether the outputs differ by roundings only.
        max_error: the largest distance of two floats over the largest float of the output; ``None`` without
            comparable floats.
        problem: the difference; empty if the outputs agree.
    """

    agrees: bool
    max_error: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """The figures of an engine for a number of threads and sizes.

    Attributes:
        sizes: the sizes of the inputs' symbols.
        num_threads: the number of threads of a call.
        engine: ``"byoc"``, or the name of a peer.
        batch_size: the size of the symbol in front of all inputs; ``None`` without such a symbol.
        latency: of the measured calls; ``None`` if the engine failed.
        load_seconds: import of the engine, and load of the model; the median of the starts.
        first_call_seconds: of the first call; the median of the starts.
        peak_nbytes: the memory added by load and first call to a process with Python, numpy and the inputs; the median
            of the starts; ``None`` if unknown to the system.
        num_warm_up_calls: calls between the first and the measured calls, over all starts.
        ratio: the time over byoc's time; ``None`` for byoc, for other outputs than byoc's, and after a failure.
        outputs: the comparison with byoc's outputs; ``None`` for byoc, and after a failure.
        failure: the reason for missing figures; empty if the engine ran.
    """

    sizes: Mapping[str, int]
    num_threads: int
    engine: str
    batch_size: int | None = None
    latency: Latency | None = None
    load_seconds: float | None = None
    first_call_seconds: float | None = None
    peak_nbytes: int | None = None
    num_warm_up_calls: int = 0
    ratio: Ratio | None = None
    outputs: OutputCheck | None = None
    failure: str = ""

    @property
    def calls_per_second(self) -> float | None:
        """The throughput of calls, one after the other; ``None`` after a failure."""
        return None if self.latency is None else 1 / self.latency.mean

    @property
    def items_per_second(self) -> float | None:
        """The throughput of items of the batch; ``None`` without a batch size."""
        calls = self.calls_per_second
        return None if calls is None or self.batch_size is None else self.batch_size * calls

    def to_data(self) -> dict[str, Any]:
        """Return the row as plain JSON values; times in seconds, memory in bytes."""
        return {
            "sizes": dict(self.sizes),
            "num_threads": self.num_threads,
            "engine": self.engine,
            "batch_size": self.batch_size,
            "latency": None if self.latency is None else self.latency.to_data(),
            "calls_per_second": self.calls_per_second,
            "items_per_second": self.items_per_second,
            "load_seconds": self.load_seconds,
            "first_call_seconds": self.first_call_seconds,
            "peak_nbytes": self.peak_nbytes,
            "num_warm_up_calls": self.num_warm_up_calls,
            "ratio": None if self.ratio is None else self.ratio.to_data(),
            "outputs": None if self.outputs is None else asdict(self.outputs),
            "failure": self.failure,
        }


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The result of a benchmark.

    Attributes:
        function: the called function.
        machine: processor and system.
        seconds: the budget of measured calls of each row.
        num_starts: the number of fresh processes of each row.
        engines: byoc, then the peers in the given order.
        rows: by sizes, then threads, then engines, each in the given order.
    """

    function: str
    machine: str
    seconds: float
    num_starts: int
    engines: tuple[EngineVersion, ...]
    rows: tuple[BenchmarkRow, ...]

    @property
    def agrees(self) -> bool:
        """Whether all compared outputs agree."""
        return all(row.outputs is None or row.outputs.agrees for row in self.rows)

    @property
    def is_complete(self) -> bool:
        """Whether no engine failed."""
        return not any(row.failure for row in self.rows)

    def to_data(self) -> dict[str, Any]:
        """Return the benchmark as plain JSON values; see ``docs/bench.md`` for the keys."""
        return {
            "schema": 1,
            "function": self.function,
            "machine": self.machine,
            "seconds": self.seconds,
            "num_starts": self.num_starts,
            "agrees": self.agrees,
            "is_complete": self.is_complete,
            "engines": [asdict(engine) for engine in self.engines],
            "rows": [row.to_data() for row in self.rows],
        }

    def __str__(self) -> str:
        from byoc_core.benchmarking.text import render_benchmark

        return render_benchmark(self)
