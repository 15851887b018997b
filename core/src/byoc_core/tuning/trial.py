"""Trials: races of two artifacts in another process, by any :class:`concurrent.futures.Executor`.

Both artifacts race in one process, so each ratio is of one machine. The process has compiled neither
(:mod:`~byoc_core.tuning.building`): compilers leave no memory and no threads beside the race.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Self

from byoc_core.artifact import Executable, load
from byoc_core.backend.size_compiler import compiler
from byoc_core.runtime.module import NDArray
from byoc_core.runtime.threads.blas_threads import limited_blas
from byoc_core.tuning.candidates import Candidate
from byoc_core.tuning.contents import ContentStore
from byoc_core.tuning.judging import agree
from byoc_core.tuning.race import challenge

__all__ = ["Trial", "TrialOutcome", "run_trial"]


@dataclass(frozen=True)
class Trial:
    """A race of a new placement against the best placement.

    Attributes:
        name: for messages.
        best: the digest of the best placement's artifact.
        challenger: the digest of the new placement's artifact.
        function: the function to call.
        inputs: of the calls, by name.
        num_threads: the number of threads of a call.
        tolerance: of results relative to the best placement's (:func:`byoc_core.tuning.judging.rounding_tolerance`).
        artifacts: artifacts by digest, as far as the worker may not have these.
    """

    name: str
    best: str
    challenger: str
    function: str
    inputs: Mapping[str, NDArray]
    num_threads: int
    tolerance: float = 0.0
    artifacts: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def with_artifacts(self, artifacts: Mapping[str, bytes]) -> Self:
        """Return the trial with artifacts."""
        return replace(self, artifacts=artifacts)


@dataclass(frozen=True)
class TrialOutcome:
    """The outcome of a trial.

    Attributes:
        ratio: the time of the new placement over the time of the best.
        agrees: whether the results of both placements agree.
    """

    ratio: float
    agrees: bool


_executables: ContentStore[Executable] = ContentStore()


def run_trial(trial: Trial) -> TrialOutcome:
    """Run a trial in this process.

    Raises:
        MissingContentError: this process does not have an artifact, and the trial does not bring the artifact.
        ByocError: a placement cannot be loaded or run.
    """
    champion, challenger = (
        Candidate.of(digest, _executable(trial, digest), trial.function, trial.inputs, trial.num_threads)
        for digest in (trial.best, trial.challenger)
    )
    with limited_blas(trial.num_threads):
        ratio, _ = challenge(champion.run, challenger.run)
    return TrialOutcome(ratio, agree(challenger.results, champion.results, trial.tolerance))


def _executable(trial: Trial, digest: str) -> Executable:
    content = trial.artifacts.get(digest)
    return _executables.get(digest, None if content is None else partial(_load, content))


def _load(content: bytes) -> Executable:
    """Load an artifact made by a builder of the same search: the user trusts the native code."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        path = Path(folder) / "placement.byoc"
        path.write_bytes(content)
        return load(path, allow_native=True, compiler=compiler())
