"""Calls after pauses: models by ccompiler and dnnl on one and two threads, beside ONNX Runtime.

Each contestant is a separate process. All processes are started first, and then asked in turn; the others sleep
meanwhile. An answer is the mean of the calls of some bursts, each after a pause, since a pause may make few calls very
long. A program calling at intervals meets sleeping threads, and systems may wake these threads beside the caller; see
docs/threads.md.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnx

from benchmarks.cost_measurement import load_sized
from benchmarks.pairing import measure, paired_ratio
from benchmarks.pauses_process import ONNXRUNTIME
from benchmarks.tables import Table, show, table_to_json
from benchmarks.workers import Worker

MODELS = ("mlp_1", "lstm", "light_squeezenet")
BACKENDS = ("ccompiler", "dnnl")
CONTESTANTS = (*BACKENDS, ONNXRUNTIME)
THREADS = (1, 2)
BURSTS = {"in a loop": (0.0, 200, 1), "after 20 ms": (0.02, 5, 10), "after 50 ms": (0.05, 1, 10)}
"""The pause in seconds, the calls of a burst, and the bursts of an answer."""


def _row(contestant: str, num_threads: int) -> str:
    return f"{contestant}, {num_threads} thread{'s' if num_threads > 1 else ''}"


@contextlib.contextmanager
def _workers(name: str) -> Iterator[dict[str, Worker]]:
    model, inputs = load_sized(name)
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        onnx.save(model, str(folder / "model.onnx"))
        np.savez(folder / "inputs.npz", **inputs)
        for backend in BACKENDS:
            byoc_core.build(byoc_core.from_onnx(model), [backend]).save(folder / f"{backend}.byoc")
        workers: dict[str, Worker] = {}
        try:
            for contestant in CONTESTANTS:
                for number in THREADS:
                    environment = {"BYOC_NUM_THREADS": str(number), "OPENBLAS_NUM_THREADS": "1"}
                    arguments = [str(folder), contestant, str(number)]
                    workers[_row(contestant, number)] = Worker("benchmarks.pauses_process", arguments, environment)
            yield workers
        finally:
            for worker in workers.values():
                worker.stop()


def _milliseconds(worker: Worker, burst: tuple[float, int, int]) -> float:
    return 1e3 * float(worker.ask(" ".join(map(str, burst))))


def run(num_rounds: int, models: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Return milliseconds of calls by network, contestant and burst, the ratios to ONNX Runtime, and to one thread."""
    table: Table = {}
    ratios: Table = {}
    for name in models or MODELS:
        with _workers(name) as workers:
            for label, burst in BURSTS.items():
                questions = {row: partial(_milliseconds, worker, burst) for row, worker in workers.items()}
                found = measure(questions, num_rounds=num_rounds)
                for contestant in CONTESTANTS:
                    for number in THREADS:
                        row = _row(contestant, number)
                        table.setdefault(f"{name}, {row}", {})[label] = found[row]
                        if contestant != ONNXRUNTIME:
                            peer = paired_ratio(found[_row(ONNXRUNTIME, number)], found[row])
                            ratios.setdefault(f"{name}, {row}: speed over ONNX Runtime", {})[label] = peer
                        if number > 1:
                            single = paired_ratio(found[row], found[_row(contestant, 1)])
                            ratios.setdefault(f"{name}, {row}: over one thread", {})[label] = single
    show("milliseconds", table)
    show("ratios", ratios)
    return {
        "unit": "ms",
        "rows_are": "network, contestant",
        "milliseconds": table_to_json(table),
        "ratios": table_to_json(ratios),
    }
