"""Builds and trials in other processes: submission, failures, and doubtful answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from importlib import import_module
from time import monotonic
from typing import Any, Protocol, TypeVar

from byoc_core.errors import OptionsError
from byoc_core.tuning.building import BuiltPlacement, PlacementBuild, build_placement
from byoc_core.tuning.contents import MissingContentError, PackedModel
from byoc_core.tuning.trial import Trial, TrialOutcome, run_trial

__all__ = ["Workers", "open_scheduler"]


class _Request(Protocol):
    @property
    def name(self) -> str: ...


Request = TypeVar("Request", bound=_Request)


class Workers:
    """The builders and runners of a search, for placements of one model.

    A build or trial that fails, hangs or disagrees is lost, the others go on. A placement counts as faster only if two
    trials say so: a single machine may be disturbed, or lie. Builds and trials take turns, so builders on the machine
    of the runners do not disturb a trial.

    Args:
        runners: runs trials in other processes, perhaps of other machines of the same kind.
        builders: compiles in other processes, on machines of the same kind too.
        model: the model.
        trial_seconds: the time after which a build or a trial is given up.
        say: called with a line for each lost build or trial.

    Attributes:
        is_broken: whether an executor takes no more requests.
    """

    def __init__(
        self,
        runners: Executor,
        builders: Executor,
        model: PackedModel,
        trial_seconds: float,
        say: Callable[[str], object],
    ) -> None:
        self._runners = runners
        self._builders = builders
        self._model = model
        self._digest = model.digest
        self._trial_seconds = trial_seconds
        self._say = say
        self.is_broken = False

    @property
    def digest(self) -> str:
        """The digest of the model."""
        return self._digest

    def build(self, requests: Sequence[PlacementBuild]) -> dict[str, BuiltPlacement]:
        """Build placements at once, and return the results by name; lost builds are left out."""
        answers = self._gather(self._builders, build_placement, requests, lambda build: build.with_model(self._model))
        return {
            name: built for name, built in answers.items() if self._is_sane(name, isinstance(built, BuiltPlacement))
        }

    def run(self, trials: Sequence[Trial], artifacts: Mapping[str, bytes]) -> dict[str, TrialOutcome]:
        """Run trials at once, and return the outcomes by name; lost trials are left out.

        Args:
            trials: the trials.
            artifacts: all artifacts of the trials, by digest.
        """

        def complete(trial: Trial) -> Trial:
            return trial.with_artifacts({digest: artifacts[digest] for digest in (trial.best, trial.challenger)})

        answers = self._gather(self._runners, run_trial, trials, complete)
        return {name: outcome for name, outcome in answers.items() if self._is_usable(name, outcome)}

    def confirms(self, trial: Trial, artifacts: Mapping[str, bytes], margin: float) -> bool:
        """Return whether a second trial says that the placement is faster by the margin."""
        outcome = self.run([trial], artifacts).get(trial.name)
        return outcome is not None and outcome.ratio < margin

    def _gather(
        self,
        executor: Executor,
        function: Callable[[Request], Any],
        requests: Sequence[Request],
        complete: Callable[[Request], Request],
    ) -> dict[str, Any]:
        """Return the answers to requests by name; a worker without a content gets the request again with all."""
        answers: dict[str, Any] = {}
        without_content: list[Request] = []
        for request, future in self._submit(executor, function, requests):
            try:
                answers[request.name] = self._result(future)
            except MissingContentError:
                without_content.append(complete(request))
            except Exception as error:  # noqa: BLE001 - whatever a worker raises costs the request only
                self._lose(request, error)
        for request, future in self._submit(executor, function, without_content):
            try:
                answers[request.name] = self._result(future)
            except Exception as error:  # noqa: BLE001 - as above
                self._lose(request, error)
        return answers

    def _submit(
        self, executor: Executor, function: Callable[[Request], Any], requests: Sequence[Request]
    ) -> list[tuple[Request, Future[Any]]]:
        futures = []
        for request in requests:
            try:
                futures.append((request, executor.submit(function, request)))
            except (BrokenExecutor, RuntimeError) as error:  # no more requests: dead workers, or a closed executor
                self.is_broken = True
                self._lose(request, error)
        return futures

    def _result(self, future: Future[Any]) -> Any:
        start = monotonic()
        try:
            return future.result(self._trial_seconds)
        except FutureTimeoutError:
            future.cancel()
            raise TimeoutError(f"no answer after {monotonic() - start:.0f} s") from None

    def _lose(self, request: _Request, error: Exception) -> None:
        if isinstance(error, BrokenExecutor):
            self.is_broken = True
        self._say(f"{request.name}: the trial is lost: {type(error).__name__}: {error}")

    def _is_sane(self, name: str, is_sane: bool) -> bool:
        if not is_sane:
            self._say(f"{name}: the trial is lost: the answer makes no sense")
        return is_sane

    def _is_usable(self, name: str, outcome: object) -> bool:
        """Return whether an answer is an outcome of sane numbers and equal results."""
        is_outcome = isinstance(outcome, TrialOutcome) and outcome.ratio > 0
        if not self._is_sane(name, is_outcome):
            return False
        assert isinstance(outcome, TrialOutcome)
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
