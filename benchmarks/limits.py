"""The distance of the zoo's models from the limits of the machine, by placement by cost.

The shares are the least possible time of a call over the time. At 1 a call is as fast as the multipliers permit, or as
the memory permits, with each constant read once. More than 1 is possible: Winograd's algorithm needs fewer
multiplications than the definition of a convolution, constants in caches are not read from memory, and the peak is that
of float32, not of bytes. Limits and times are measured together, because the clock of the processor drifts.

If some layers are limited by multipliers and others by memory, the sum of both shares is near 1 at the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import byoc_core
from byoc_core.profiling import measure_peaks, profile

from benchmarks.models import THREADS, check_names, load_model
from benchmarks.pairing import Samples
from benchmarks.placements import ZOO, place_by_cost

__all__ = ["run"]

MULTIPLIERS, MEMORY = "of the multipliers", "of the memory"
SECONDS = 0.3
"""Seconds of calls of a round."""


def run(num_rounds: int, models: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the shares of each model, with one and two threads.

    Args:
        num_rounds: the number of rounds.
        models: the names of the models; by default the whole zoo.
    """
    check_names(models or ())
    tables: dict[str, Any] = {"rows_are": "model", "unit": "share"}
    for num_threads in THREADS:
        count = f"{num_threads} thread{'s' * (num_threads > 1)}"
        rows = tables[f"{count}: shares"] = {}
        for name in models or ZOO:
            found = _measure(name, num_threads, num_rounds)
            rows[name] = {column: samples.to_json() for column, samples in found.items()}
            shares = ", ".join(f"{column} {samples.median:.2f}" for column, samples in found.items())
            print(f"  {name}, {count}: {shares}", flush=True)
    return tables


def _measure(name: str, num_threads: int, num_rounds: int) -> dict[str, Samples]:
    """Return the shares of a model by limit."""
    model, inputs = load_model(name)
    executable = place_by_cost(byoc_core.from_onnx(model), num_threads)
    flops = float(executable.report_data["total_flops"])
    nbytes = float(sum(array.nbytes for array in executable.constants.values()))
    shares: dict[str, list[float]] = {MULTIPLIERS: [], MEMORY: []}
    for _ in range(num_rounds):
        peaks = measure_peaks(num_threads)
        seconds = profile(executable, inputs, num_threads=num_threads, seconds=SECONDS, peaks=peaks).seconds
        shares[MULTIPLIERS].append(flops / peaks.flops / seconds)
        shares[MEMORY].append(nbytes / peaks.bandwidth / seconds)
    return {limit: Samples(tuple(values)) for limit, values in shares.items()}
