"""Engines on a model: each a process of its own, all running the same inputs, outputs compared before the rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pairing import Samples, measure
from benchmarks.workers import Worker

__all__ = ["Comparison", "Effort", "compare_engines"]

Environment = Mapping[str, str]
"""Variables of a process."""


@dataclass(frozen=True)
class Effort:
    """The effort of a measurement.

    Attributes:
        num_rounds: the number of rounds.
        num_starts: the number of fresh processes of an engine. The rounds are spread over the processes, because equal
            processes differ in speed by several percent.
        budget_s: the seconds of calls for an answer.
        least_calls: the least number of calls for an answer.
    """

    num_rounds: int
    num_starts: int = 3
    budget_s: float = 0.3
    least_calls: int = 3


@dataclass(frozen=True)
class Comparison:
    """The figures of the engines on a model.

    Attributes:
        seconds: the seconds of a call by engine, and the values of the other contestants of the rounds.
        starts: the costs of each start by engine (``benchmarks.models_process``).
        reference: the engine with the expected outputs; None without.
        errors: the largest distance of an engine's outputs from the reference's, over the largest output.
        failures: the engines without figures, and the reasons.
    """

    seconds: Mapping[str, Samples]
    starts: Mapping[str, Sequence[Mapping[str, float]]]
    reference: str | None
    errors: Mapping[str, float]
    failures: Mapping[str, str]

    def starts_to_json(self) -> dict[str, dict[str, dict[str, float]]]:
        """Return the costs of the starts as plain values."""
        return {
            engine: {key: Samples(tuple(start[key] for start in starts)).to_json() for key in starts[0]}
            for engine, starts in self.starts.items()
        }


def compare_engines(
    folder: Path,
    engines: Mapping[str, Environment],
    num_threads: int,
    effort: Effort,
    *,
    references: Sequence[str] = (),
    contestants: Mapping[str, Callable[[], float]] | None = None,
) -> Comparison:
    """Return the figures of engines running the model of a folder.

    Args:
        folder: with ``model.onnx``, ``inputs.npz``, and ``<engine>.byoc`` for each engine of byoc.
        engines: the environment of each engine's process, by name.
        num_threads: the number of threads of an engine.
        effort: the effort of the measurement.
        references: engines with the expected outputs; the first without a failure counts. Without, there are no errors.
        contestants: further contestants of the rounds.
    """
    starts: dict[str, list[Mapping[str, float]]] = {engine: [] for engine in engines}
    failures: dict[str, str] = {}
    errors: dict[str, float] = {}
    reference: str | None = None
    values: dict[str, list[float]] = {name: [] for name in (*engines, *(contestants or {}))}
    for start, num_rounds in enumerate(_share_rounds(effort.num_rounds, effort.num_starts)):
        with ExitStack() as stack:
            workers = _start_engines(folder, engines, num_threads, effort, stack, starts, failures, seed=start)
            if start == 0:
                reference = next((engine for engine in references if engine in workers), None)
                errors = {} if reference is None else _errors(folder, list(workers), reference)
            of_engines = {engine: worker.ask for engine, worker in workers.items()}
            found = measure({**of_engines, **(contestants or {})}, num_rounds=num_rounds, seed=start)
        for name, samples in found.items():
            values[name] += samples.values
    seconds = {name: Samples(tuple(found)) for name, found in values.items() if name not in failures}
    return Comparison(
        seconds, {engine: found for engine, found in starts.items() if engine in seconds}, reference, errors, failures
    )


def _share_rounds(num_rounds: int, num_starts: int) -> list[int]:
    """Return the numbers of rounds of the starts, none without rounds."""
    num_starts = min(num_starts, num_rounds)
    return [num_rounds * (start + 1) // num_starts - num_rounds * start // num_starts for start in range(num_starts)]


def _start_engines(
    folder: Path,
    engines: Mapping[str, Environment],
    num_threads: int,
    effort: Effort,
    stack: ExitStack,
    starts: Mapping[str, list[Mapping[str, float]]],
    failures: dict[str, str],
    *,
    seed: int,
) -> dict[str, Worker]:
    """Start the engines without a failure so far, in random order; note the costs of the starts, and failures."""
    workers = {}
    candidates = [engine for engine in engines if engine not in failures]
    for engine in random.Random(seed).sample(candidates, len(candidates)):
        arguments = [str(folder), engine, str(num_threads), str(effort.budget_s), str(effort.least_calls)]
        worker = Worker("benchmarks.models_process", arguments, engines[engine])
        stack.callback(worker.stop)
        try:
            starts[engine].append(worker.ask())
        except (RuntimeError, OSError) as error:
            failures[engine] = str(error)
        else:
            workers[engine] = worker
    return workers


def _errors(folder: Path, engines: Sequence[str], reference: str) -> dict[str, float]:
    outputs = {engine: dict(np.load(folder / f"{engine}.npz")) for engine in engines}
    expected = outputs[reference]
    errors = {}
    for engine in engines:
        if engine != reference:
            pairs = [(outputs[engine][key].astype(np.float64), expected[key].astype(np.float64)) for key in expected]
            errors[engine] = max(float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30)) for a, b in pairs)
    return errors
