"""Gains from threads, and costs of other threads in the process: light_squeezenet compiled by ccompiler, and by dnnl.

Each contestant is a separate process with a separate environment. All processes are started first, and then asked in
turn; the others sleep meanwhile. Each answer is the median of some calls. The names in the table ``CONTESTANTS``
describe the work of the contestants; see docs/threads.md.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import byoc_core
import numpy as np
import onnx

from benchmarks.pairing import Samples, measure, paired_ratio
from benchmarks.workers import Worker
from benchmarks.zoo.light import SEED, draw_inputs, load_light_model

MODEL = "light_squeezenet"
NUM_CALLS = 15


class Contestant(NamedTuple):
    """A process: work in a round, environment, and reference for comparison.

    Attributes:
        task: a function of ``benchmarks.threads_process``.
        environment: variables added to the environment of all.
        base: the reference contestant; ratios are over the seconds of this contestant.
        backend: the compiling backend.
    """

    task: str
    environment: Mapping[str, str]
    base: str
    backend: str = "ccompiler"


SINGLE_THREAD, TWO_THREADS = {"BYOC_NUM_THREADS": "1"}, {"BYOC_NUM_THREADS": "2"}
LONG, PASSIVE = {**TWO_THREADS, "GOMP_SPINCOUNT": "20000"}, {**TWO_THREADS, "OMP_WAIT_POLICY": "passive"}
LONGER = {**TWO_THREADS, "GOMP_SPINCOUNT": "300000"}
QUIET_BLAS = {**TWO_THREADS, "OPENBLAS_NUM_THREADS": "1"}
CONTESTANTS = {
    "1 thread": Contestant("call", SINGLE_THREAD, "1 thread"),
    "2 threads": Contestant("call", TWO_THREADS, "1 thread"),
    "2, spinning 20,000 times": Contestant("call", LONG, "2 threads"),
    "2, spinning as libgomp does": Contestant("call", LONGER, "2 threads"),
    "2, passive": Contestant("call", PASSIVE, "2 threads"),
    "2, worker pinned": Contestant("call_pinned", TWO_THREADS, "2 threads"),
    "after 50 ms, 1 thread": Contestant("call_after_idling", SINGLE_THREAD, "1 thread"),
    "after 50 ms": Contestant("call_after_idling", TWO_THREADS, "after 50 ms, 1 thread"),
    "after 50 ms, spinning 20,000 times": Contestant("call_after_idling", LONG, "after 50 ms"),
    "after 50 ms, passive": Contestant("call_after_idling", PASSIVE, "after 50 ms"),
    "after a matmul of numpy": Contestant("call_after_matmul", TWO_THREADS, "2 threads"),
    "after a matmul, OPENBLAS_NUM_THREADS=1": Contestant("call_after_matmul", QUIET_BLAS, "2 threads"),
    "ONNX Runtime alone": Contestant("call_onnxruntime", TWO_THREADS, "ONNX Runtime alone"),
    "beside ONNX Runtime": Contestant("call_beside_onnxruntime", TWO_THREADS, "2 threads"),
    "beside it, spinning 20,000 times": Contestant("call_beside_onnxruntime", LONG, "2 threads"),
    "ONNX Runtime beside us": Contestant("call_onnxruntime_beside", TWO_THREADS, "ONNX Runtime alone"),
    "dnnl, 1 thread": Contestant("call", SINGLE_THREAD, "dnnl, 1 thread", "dnnl"),
    "dnnl, 2 threads": Contestant("call", TWO_THREADS, "dnnl, 1 thread", "dnnl"),
    "dnnl after 50 ms": Contestant("call_after_idling", TWO_THREADS, "dnnl, 2 threads", "dnnl"),
    "dnnl after a matmul of numpy": Contestant("call_after_matmul", TWO_THREADS, "dnnl, 2 threads", "dnnl"),
    "dnnl beside ONNX Runtime": Contestant("call_beside_onnxruntime", TWO_THREADS, "dnnl, 2 threads", "dnnl"),
    "8 callers": Contestant("call_from_8", TWO_THREADS, "1 thread"),
    "32 callers": Contestant("call_from_32", TWO_THREADS, "1 thread"),
}


class _Counted(Worker):
    """The process of a contestant, and the highest number of threads."""

    def __init__(self, contestant: Contestant, folder: Path) -> None:
        arguments = [str(folder), contestant.backend, contestant.task, str(NUM_CALLS)]
        super().__init__("benchmarks.threads_process", arguments, contestant.environment)
        self.most_tasks = 0

    def ask_seconds(self) -> float:
        """Return the seconds of a call."""
        answer = self.ask()
        self.most_tasks = max(self.most_tasks, answer["tasks"])
        return float(answer["seconds"])


@contextlib.contextmanager
def _workers() -> Iterator[dict[str, _Counted]]:
    model = load_light_model(MODEL)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        onnx.save(model, str(folder / "model.onnx"))
        np.savez(folder / "inputs.npz", **draw_inputs(model, SEED))  # type: ignore[arg-type]
        for backend in sorted({contestant.backend for contestant in CONTESTANTS.values()}):
            byoc_core.build(byoc_core.from_onnx(model), [backend]).save(folder / f"{backend}.byoc")
        workers = {label: _Counted(contestant, folder) for label, contestant in CONTESTANTS.items()}
        try:
            yield workers
        finally:
            for worker in workers.values():
                worker.stop()


def run(num_rounds: int) -> dict[str, Any]:
    """Return milliseconds of a call, the ratio to the reference contestant, and the highest number of threads."""
    with _workers() as workers:
        seconds = measure({label: worker.ask_seconds for label, worker in workers.items()}, num_rounds=num_rounds)
        tasks = {label: worker.most_tasks for label, worker in workers.items()}
    figures: dict[str, Any] = {"unit": "ms", "model": MODEL}
    for label, contestant in CONTESTANTS.items():
        found = Samples(tuple(1e3 * value for value in seconds[label].values))
        ratio = paired_ratio(seconds[label], seconds[contestant.base])
        figures[label] = {**found.to_json(), "ratio": ratio.to_json(), "base": contestant.base, "tasks": tasks[label]}
        print(f"  {label}: {found} ms; {ratio.median:.2f} times `{contestant.base}`; {tasks[label]} threads")
    return figures
