"""Trials in other processes: submission, failures, and doubtful answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from importlib import import_module
from time import monotonic
from typing import Any

from byoc_core.errors import OptionsError
from byoc_core.tuning.trial import PackedModel, Trial, TrialOutcome, UnknownModelError, run_trial

__all__ = ["Workers", "open_scheduler"]


class Workers:
    """The processes of an executor, for trials of one model.

    A trial that fails, hangs or disagrees is lost, the others go on. A placement counts as faster only if two trials
    say so: a single machine may be disturbed, or lie.

    Args:
        executor: runs functions in other processes, perhaps of other machines of the same kind.
        model: the model.
        trial_seconds: the time after which a trial is given up.
        say: called with a line for each lost trial.
    """

    def __init__(
        self, executor: Executor, model: PackedModel, trial_seconds: float, say: Callable[[str], object]
    ) -> None:
        self._executor = executor
        self._model = model
        self._digest = model.digest
        self._trial_seconds = trial_seconds
        self._say = say
        self.is_broken = False

    @property
    def digest(self) -> str:
        """The digest of the model."""
        return self._digest

    def run(self, trials: Sequence[Trial]) -> dict[str, TrialOutcome]:
        """Run trials at once, and return the outcomes by name; lost trials are left out."""
        futures = self._submit(trials)
        outcomes: dict[str, TrialOutcome] = {}
        without_model: list[Trial] = []
        for trial, future in futures:
            try:
                outcomes[trial.name] = self._result(future)
            except UnknownModelError:
                without_model.append(trial.with_model(self._model))
            except Exception as error:  # noqa: BLE001 - whatever a worker raises costs the trial only
                self._lose(trial, error)
        for trial, future in self._submit(without_model):
            try:
                outcomes[trial.name] = self._result(future)
            except Exception as error:  # noqa: BLE001 - as above
                self._lose(trial, error)
        return {name: outcome for name, outcome in outcomes.items() if self._is_usable(name, outcome)}

    def confirms(self, trial: Trial, margin: float) -> bool:
        """Return whether a second trial says that the placement is faster by the margin."""
        outcome = self.run([trial]).get(trial.name)
        return outcome is not None and outcome.ratio < margin

    def _submit(self, trials: Sequence[Trial]) -> list[tuple[Trial, Future[TrialOutcome]]]:
        futures = []
        for trial in trials:
            try:
                futures.append((trial, self._executor.submit(run_trial, trial)))
            except (BrokenExecutor, RuntimeError) as error:  # no more trials: dead workers, or a closed executor
                self.is_broken = True
                self._lose(trial, error)
        return futures

    def _result(self, future: Future[TrialOutcome]) -> TrialOutcome:
        start = monotonic()
        try:
            return future.result(self._trial_seconds)
        except FutureTimeoutError:
            future.cancel()
            raise TimeoutError(f"no answer after {monotonic() - start:.0f} s") from None

    def _lose(self, trial: Trial, error: Exception) -> None:
        if isinstance(error, BrokenExecutor):
            self.is_broken = True
        self._say(f"{trial.name}: the trial is lost: {type(error).__name__}: {error}")

    def _is_usable(self, name: str, outcome: object) -> bool:
        """Return whether an answer is an outcome of sane numbers and equal results."""
        if not isinstance(outcome, TrialOutcome) or not outcome.ratio > 0:
            self._say(f"{name}: the trial is lost: the answer makes no sense")
            return False
        if not outcome.agrees:
            self._say(f"{name}: the results differ; the placement is left out")
        return outcome.agrees


def open_scheduler(address: str) -> tuple[Executor, Callable[[], None]]:
    """Return the executor of a Dask cluster and a function to close the connection.

    Args:
        address: ``dask://HOST:PORT`` of the scheduler; the workers need byoc and the backends.

    Raises:
        OptionsError: the address has another form, or the package ``distributed`` is missing.
        OSError: the scheduler does not answer.
    """
    scheme, _, location = address.partition("://")
    if scheme != "dask" or not location:
        raise OptionsError("--scheduler", "is no address", got=repr(address), expected="dask://HOST:PORT")
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        hint = 'Install the extra: pip install "byoc-core[distributed]"'
        raise OptionsError("--scheduler", "needs the package `distributed`", hint=hint) from error
    client = distributed.Client(f"tcp://{location}", timeout=10)
    return client.get_executor(pure=False, retries=0), client.close


def request_data(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain data of a request for trials, without policy, placement and paths of this machine."""
    return {name: value for name, value in request.items() if name not in ("policy", "placement", "dump")}
