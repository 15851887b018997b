"""Rounds of engines: all engines are started, then sampled in turn; the others sleep meanwhile.

Equal processes differ in speed by several percent, so the rounds are shared among several starts. The order of the
engines changes from round to round: A B, B A, A B. Noise of the machine hits all alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from byoc_core.benchmarking.process import EngineProcess, MeasuredModel, StartCosts
from byoc_core.errors import ExecutionError
from byoc_core.runtime.module import NDArray

__all__ = ["Effort", "EngineRun", "measure_engines", "rotated", "rounds_of_start"]

_NUM_ROUNDS = 12
_MIN_ROUNDS = 3

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a measurement.

    Attributes:
        seconds: of measured calls of an engine. Slow models take longer: a round has one call at least.
        num_starts: the number of fresh processes of an engine.
    """

    seconds: float
    num_starts: int


@dataclass
class EngineRun:
    """The measurements of an engine.

    Attributes:
        starts: the costs of each start.
        rounds: the seconds of single calls of each round.
        outputs: of the first call of the first start.
        failure: the reason for missing measurements; empty if the engine ran.
    """

    starts: list[StartCosts] = field(default_factory=list)
    rounds: list[Sequence[float]] = field(default_factory=list)
    outputs: list[NDArray] = field(default_factory=list)
    failure: str = ""


def measure_engines(
    models: Sequence[MeasuredModel],
    effort: Effort,
    folder: Path,
    say: Callable[[str], object],
    compare: Callable[[Mapping[str, EngineRun]], object],
) -> dict[str, EngineRun]:
    """Return the measurements of engines, by name; an engine that fails once is measured no longer.

    Args:
        models: of the engines; with the failure of the first engine, the measurement ends.
        effort: the effort.
        folder: for files.
        say: called with the name of each stage.
        compare: called once before the first round, with the outputs of the first starts.

    Raises:
        ExecutionError: the first engine failed.
    """
    runs = {model.engine: EngineRun() for model in models}
    for start in range(effort.num_starts):
        processes: dict[str, EngineProcess] = {}
        with ExitStack() as stack:
            for model in rotated([model for model in models if not runs[model.engine].failure], start):
                say(f"{model.engine}, start {start + 1} of {effort.num_starts}")
                processes[model.engine] = EngineProcess(model, folder)
                stack.callback(processes[model.engine].stop)
                with _failure_noted(runs[model.engine], is_required=model is models[0]):
                    _open(processes[model.engine], runs[model.engine])
            if start == 0:
                say("compare outputs")
                compare(runs)
            _run_rounds(processes, runs, models[0].engine, effort, say)
    return runs


def rounds_of_start(effort: Effort, slowest: float) -> int:
    """Return the number of rounds of a start.

    All starts together have 12 rounds, or fewer, but at least 3, if single calls exceed the budget.

    Args:
        effort: the effort.
        slowest: the seconds of a call of the slowest engine.
    """
    least, most = -(-_MIN_ROUNDS // effort.num_starts), -(-_NUM_ROUNDS // effort.num_starts)
    return max(least, min(most, int(effort.seconds / effort.num_starts / max(slowest, 1e-9))))


def rotated(items: Sequence[Item], number: int) -> list[Item]:
    """Return items with the first ``number`` items moved to the end, counted in circles."""
    first = number % len(items) if items else 0
    return [*items[first:], *items[:first]]


def _open(process: EngineProcess, run: EngineRun) -> None:
    run.starts.append(process.open())
    run.outputs = run.outputs or process.read_outputs()


def _run_rounds(
    processes: Mapping[str, EngineProcess],
    runs: Mapping[str, EngineRun],
    required: str,
    effort: Effort,
    say: Callable[[str], object],
) -> None:
    """Add the rounds of a start to the runs of the engines without a failure."""
    engines = [engine for engine, run in runs.items() if not run.failure]
    num_rounds = rounds_of_start(effort, max(runs[engine].starts[-1].typical_seconds for engine in engines))
    seconds = effort.seconds / effort.num_starts / num_rounds
    for number in range(num_rounds):
        say(f"round {number + 1} of {num_rounds}")
        for engine in rotated([engine for engine in engines if not runs[engine].failure], number):
            with _failure_noted(runs[engine], is_required=engine == required):
                runs[engine].rounds.append(processes[engine].sample(seconds))


@contextmanager
def _failure_noted(run: EngineRun, *, is_required: bool) -> Iterator[None]:
    """Note the failure of an engine within the context; the failure of the required engine is raised."""
    try:
        yield
    except ExecutionError as error:
        if is_required:
            raise
        run.failure = error.detail or error.problem
