"""A contestant of ``benchmarks.threads``: waits for a line, does the task, prints the seconds of a call; and again."""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import byoc_core
import numpy as np
import onnxruntime
from byoc_core.runtime.threads import num_threads

IDLE_S = 0.05


class Tasks:
    """The tasks of contestants: each method returns the seconds of some calls.

    Args:
        folder: the folder of model and inputs.
        backend: the compiling backend.
        num_calls: the number of calls.
    """

    def __init__(self, folder: Path, backend: str, num_calls: int) -> None:
        self._folder = folder
        self._num_calls = num_calls
        self._inputs = dict(np.load(folder / "inputs.npz"))
        self._machine = byoc_core.VirtualMachine(byoc_core.load(folder / f"{backend}.byoc", allow_native=True))
        self._matrix = np.ones((512, 512), np.float32)
        self._tasks_before = _list_tasks()

    def call(self) -> list[float]:
        """Call repeatedly."""
        return [_time(self._run) for _ in range(self._num_calls)]

    def call_pinned(self) -> list[float]:
        """Call repeatedly, with the worker on the last processor allowed for the process."""
        self._run()
        last = max(os.sched_getaffinity(0))
        for task in _list_tasks() - self._tasks_before:
            os.sched_setaffinity(task, {last})
        return self.call()

    def call_after_idling(self) -> list[float]:
        """Call after a pause."""
        return [_time(self._run, lambda: time.sleep(IDLE_S)) for _ in range(self._num_calls)]

    def call_after_matmul(self) -> list[float]:
        """Call right after a product by numpy's BLAS, with the threads of BLAS still spinning."""
        return [_time(self._run, lambda: self._matrix @ self._matrix) for _ in range(self._num_calls)]

    def call_onnxruntime(self) -> list[float]:
        """Call ONNX Runtime alone, with as many threads."""
        return [_time(self._run_onnxruntime) for _ in range(self._num_calls)]

    def call_beside_onnxruntime(self) -> list[float]:
        """Call right after a call of ONNX Runtime in this process."""
        return [_time(self._run, self._run_onnxruntime) for _ in range(self._num_calls)]

    def call_onnxruntime_beside(self) -> list[float]:
        """Call ONNX Runtime right after a call of byoc."""
        return [_time(self._run_onnxruntime, self._run) for _ in range(self._num_calls)]

    def call_from_8(self) -> list[float]:
        """Call from 8 threads at once; return the seconds divided by the number of all calls."""
        return [self._call_from(8)]

    def call_from_32(self) -> list[float]:
        """Call from 32 threads at once; return the seconds divided by the number of all calls."""
        return [self._call_from(32)]

    def _call_from(self, num_callers: int) -> float:
        def work() -> None:
            for _ in range(self._num_calls):
                self._run()

        callers = [threading.Thread(target=work) for _ in range(num_callers)]
        start = time.perf_counter()
        for caller in callers:
            caller.start()
        self.tasks = len(_list_tasks())
        for caller in callers:
            caller.join()
        return (time.perf_counter() - start) / (num_callers * self._num_calls)

    @cached_property
    def tasks(self) -> int:
        """The number of threads of the process."""
        return len(_list_tasks())

    def _run(self) -> object:
        return self._machine.run("main", self._inputs)

    def _run_onnxruntime(self) -> object:
        return self._session.run(None, self._inputs)

    @cached_property
    def _session(self) -> Any:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads()
        return onnxruntime.InferenceSession(str(self._folder / "model.onnx"), options)


def _time(function: Callable[[], object], before: Callable[[], object] = int) -> float:
    before()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _list_tasks() -> set[int]:
    """Return the threads of this process by the numbers of the system."""
    return {int(path.name) for path in Path("/proc/self/task").iterdir()}


def main() -> None:
    """Answer each line of the input."""
    folder, backend, task, num_calls = sys.argv[1:]
    tasks = Tasks(Path(folder), backend, int(num_calls))
    for _ in sys.stdin:
        seconds = statistics.median(getattr(tasks, task)())
        print(json.dumps({"seconds": seconds, "tasks": tasks.tasks}), flush=True)


if __name__ == "__main__":
    main()
