"""The parent's side of a measuring process (:mod:`byoc_core.benchmarking.worker`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from byoc_core.errors import ExecutionError
from byoc_core.isolation import Ended, Worker
from byoc_core.runtime.array_files import load_arrays
from byoc_core.runtime.module import NDArray

__all__ = ["EngineProcess", "MeasuredModel", "StartCosts"]

_OPEN_SECONDS = 1800.0
"""Seconds allowed for load, first call and warm-up."""
_GRACE_SECONDS = 60.0
_SLOWDOWN = 20.0
"""The permitted slowdown of calls on a busy machine."""


@dataclass(frozen=True, slots=True)
class MeasuredModel:
    """The model of an engine, as files.

    Attributes:
        engine: the name of the engine.
        entry: the entry of the engine (:data:`~byoc_core.benchmarking.engine.OpenEngine`).
        file: an artifact or an ONNX file.
        function: the function to call.
        inputs: a file of arrays (:mod:`byoc_core.runtime.array_files`).
        num_threads: the number of threads of a call.
    """

    engine: str
    entry: str
    file: Path
    function: str
    inputs: Path
    num_threads: int


@dataclass(frozen=True, slots=True)
class StartCosts:
    """The costs of a start; the attributes are explained in :class:`~byoc_core.benchmarking.results.BenchmarkRow`.

    Attributes:
        version: of the engine.
        load_seconds: import and load.
        first_call_seconds: of the first call.
        peak_nbytes: memory added; ``None`` if unknown.
        num_warm_up_calls: calls behind the first call.
        typical_seconds: of a call after the warm-up.
    """

    version: str
    load_seconds: float
    first_call_seconds: float
    peak_nbytes: int | None
    num_warm_up_calls: int
    typical_seconds: float


class EngineProcess:
    """A process with an engine; use :meth:`stop` in any case.

    Args:
        model: the model of the engine.
        folder: for the files of the process.
    """

    def __init__(self, model: MeasuredModel, folder: Path) -> None:
        self._model = model
        self._outputs = folder / f"{model.engine}-outputs.npz"
        setup = {
            "entry": model.entry,
            "file": str(model.file),
            "function": model.function,
            "inputs": str(model.inputs),
            "outputs": str(self._outputs),
            "num_threads": model.num_threads,
        }
        self._worker = Worker("byoc_core.benchmarking.worker:main", setup, folder / f"{model.engine}-stderr.txt")
        self._typical = 0.0

    def open(self) -> StartCosts:
        """Load the model, call once, and warm up.

        Raises:
            ExecutionError: the engine failed, or the process ended.
        """
        costs = StartCosts(**self._ask({}, _OPEN_SECONDS))
        self._typical = costs.typical_seconds
        return costs

    def read_outputs(self) -> list[NDArray]:
        """Return the outputs of the first call, in the order of the model."""
        return list(load_arrays(self._outputs).values())

    def sample(self, seconds: float) -> Sequence[float]:
        """Return the seconds of single calls within a budget, one call at least.

        Raises:
            ExecutionError: the engine failed, or the process ended.
        """
        deadline = _GRACE_SECONDS + _SLOWDOWN * (seconds + self._typical)
        times: Sequence[float] = self._ask({"seconds": seconds}, deadline)["seconds"]
        return times

    def stop(self) -> None:
        """End the process."""
        self._worker.stop()

    def _ask(self, request: Mapping[str, object], deadline: float) -> dict[str, Any]:
        reply = self._worker.ask(request, deadline)
        where = f"engine `{self._model.engine}`"
        if isinstance(reply, Ended):
            raise ExecutionError(where, "failed in the measuring process", detail=reply.text)
        if "failure" in reply:
            raise ExecutionError(where, "failed in the measuring process", detail=str(reply["failure"]))
        return reply
