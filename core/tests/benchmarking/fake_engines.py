"""Entries of engines for tests, by the reference kernels in numpy, with chosen faults; run in measuring processes."""

from __future__ import annotations

import os

import numpy as np
from byoc_core.benchmarking import EngineTask, OpenedEngine, Peer
from byoc_core.runtime.module import NDArray

__all__ = ["PEERS", "open_crashing", "open_raising", "open_refusing", "open_right", "open_wrong", "open_wrong_place"]


def compute(task: EngineTask) -> list[NDArray]:
    """Return the outputs of the model of the tests: ``y = relu(x @ w)`` and the places of the largest elements."""
    x, w = task.inputs["x"], task.inputs["w"]
    y = np.maximum(x @ w, 0)
    return [y, np.argmax(y, axis=1)]


def open_right(task: EngineTask) -> OpenedEngine:
    return OpenedEngine(lambda: compute(task), lambda: compute(task), "1.0")


def open_wrong(task: EngineTask) -> OpenedEngine:
    y, places = compute(task)
    return OpenedEngine(lambda: compute(task), lambda: [y + np.float32(0.25), places], "1.0")


def open_wrong_place(task: EngineTask) -> OpenedEngine:
    y, places = compute(task)
    return OpenedEngine(lambda: compute(task), lambda: [y, places + 1], "1.0")


def open_wide(task: EngineTask) -> OpenedEngine:
    y, places = compute(task)
    return OpenedEngine(lambda: compute(task), lambda: [y.astype(np.float64), places], "1.0")


def open_refusing(task: EngineTask) -> OpenedEngine:
    raise NotImplementedError(f"no operator Relu on {task.num_threads} thread")


def open_raising(task: EngineTask) -> OpenedEngine:
    """Open an engine with failing calls after the first call."""
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("the second call")

    return OpenedEngine(call, lambda: compute(task), "1.0")


def open_crashing(task: EngineTask) -> OpenedEngine:
    os._exit(3)


PEERS = {
    name: Peer("numpy", "pip install numpy", f"{__name__}:open_{name}", "a fake")
    for name in ("right", "wrong", "wrong_place", "wide", "refusing", "raising", "crashing")
}
