"""A measuring process: open an engine, then time calls on request (:mod:`byoc_core.benchmarking.process`).

Only the engine in use is imported, within the measured time to load. The inputs are in memory before.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

from byoc_core.benchmarking.engine import EngineTask, OpenedEngine
from byoc_core.benchmarking.memory import PeakMemory
from byoc_core.benchmarking.timing import sample, warm_up
from byoc_core.isolation import serve
from byoc_core.runtime.array_files import load_arrays, save_arrays
from byoc_core.runtime.threads.idle import settle

__all__ = ["main"]


def main(setup: Mapping[str, Any]) -> None:
    """Serve requests until the parent ends the process.

    Args:
        setup: ``entry``, ``file``, ``function``, ``inputs``, ``outputs`` and ``num_threads`` of the engine.
    """
    serve(lambda: _Worker(setup).answer)


class _Worker:
    def __init__(self, setup: Mapping[str, Any]) -> None:
        self._setup = setup
        inputs = load_arrays(setup["inputs"])
        self._task = EngineTask(Path(setup["file"]), setup["function"], inputs, setup["num_threads"])
        self._opened: OpenedEngine | None = None
        self._typical = 0.0

    def answer(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Return the costs of the start, or the seconds of calls; ``{"failure": text}`` if the engine fails."""
        try:
            return self._open() if self._opened is None else self._sample(self._opened, request["seconds"])
        except Exception as error:  # noqa: BLE001 - the border of an engine
            return {"failure": f"{type(error).__name__}: {error}"}

    def _open(self) -> dict[str, object]:
        memory = PeakMemory()
        start = perf_counter()
        module, _, name = self._setup["entry"].partition(":")
        opened: OpenedEngine = getattr(import_module(module), name)(self._task)
        loaded = perf_counter()
        opened.call()
        first = perf_counter()
        nbytes = memory.read_growth()
        save_arrays(self._setup["outputs"], {str(i): array for i, array in enumerate(opened.read_outputs())})
        num_calls, self._typical = warm_up(opened.call)
        self._opened = opened
        settle()
        return {
            "version": opened.version,
            "load_seconds": loaded - start,
            "first_call_seconds": first - loaded,
            "peak_nbytes": nbytes,
            "num_warm_up_calls": num_calls,
            "typical_seconds": self._typical,
        }

    def _sample(self, opened: OpenedEngine, seconds: float) -> dict[str, object]:
        times = sample(opened.call, seconds, self._typical)
        settle()  # threads still spinning would take processors from the next engine
        return {"seconds": times}
