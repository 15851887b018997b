"""Benchmarks: the time of a call of a compiled model, beside other inference engines on the same inputs.

:func:`bench` (:mod:`~byoc_core.benchmarking.measuring`) runs each engine in fresh processes
(:mod:`~byoc_core.benchmarking.worker`) and returns a :class:`Benchmark` (:mod:`~byoc_core.benchmarking.results`). The
other engines are the rows of a table (:mod:`~byoc_core.benchmarking.peers`).

Names are imported on first use: the measuring processes import the parts in use only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.lazy_names import lazy_names

if TYPE_CHECKING:
    from byoc_core.benchmarking.engine import EngineTask, OpenedEngine
    from byoc_core.benchmarking.measuring import bench
    from byoc_core.benchmarking.peers import PEERS, Peer
    from byoc_core.benchmarking.results import Benchmark, BenchmarkRow, EngineVersion, OutputCheck
    from byoc_core.benchmarking.statistics import Latency, Ratio

__all__ = [
    "PEERS",
    "Benchmark",
    "BenchmarkRow",
    "EngineTask",
    "EngineVersion",
    "Latency",
    "OpenedEngine",
    "OutputCheck",
    "Peer",
    "Ratio",
    "bench",
]

_HOMES = {
    "engine": ("EngineTask", "OpenedEngine"),
    "measuring": ("bench",),
    "peers": ("PEERS", "Peer"),
    "results": ("Benchmark", "BenchmarkRow", "EngineVersion", "OutputCheck"),
    "statistics": ("Latency", "Ratio"),
}

__getattr__ = lazy_names(__name__, _HOMES)
