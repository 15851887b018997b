"""The bench of a search: candidates of a model are built, checked against the reference, and profiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from byoc_core.backend import BackendHandle
from byoc_core.backend.registry import HOST_NAME
from byoc_core.driver import Compiler, CompileRequest
from byoc_core.errors import ByocError, ExecutionError
from byoc_core.ir import IRModule
from byoc_core.partitioning import Policy
from byoc_core.profiling import Peaks, Profile, profile
from byoc_core.runtime.arguments import bind_symbols
from byoc_core.runtime.drawn_inputs import draw_inputs
from byoc_core.tuning.candidates import Candidate, PlacementKey, schedules_of
from byoc_core.tuning.entrants import OneBackend
from byoc_core.tuning.judging import Judge
from byoc_core.tuning.op_times import RecordingPolicy

if TYPE_CHECKING:
    from byoc_core.artifact import Executable

__all__ = ["Bench"]

_PROFILE_S = 0.5


class Bench:
    """A bench for the candidates of a model.

    Args:
        module: the model.
        request: the choices of the compilation, without a policy.
        compiler: compiles the candidates.
        handles: the backends.
        function: the function to call.
        inputs: of the calls, by name; ``None``: drawn at random with the first candidate.
        sizes: the sizes of symbols of drawn inputs.
        num_threads: the number of threads of a call.
        seed: of drawn inputs.
        say: called with a line for each candidate left out.

    Attributes:
        module: as given.
        request: as given.
        compiler: as given.
        handles: as given.
        function: as given.
        num_threads: as given.
        host: the model on the host, if allowed to win.
        records: the modules behind each backend alone, by name.
    """

    def __init__(
        self,
        module: IRModule,
        request: CompileRequest,
        compiler: Compiler,
        handles: Sequence[BackendHandle],
        function: str,
        inputs: Mapping[str, object] | None,
        sizes: Mapping[str, int],
        num_threads: int,
        seed: int,
        say: Callable[[str], object],
    ) -> None:
        self.module = module
        self.request = request
        self.compiler = compiler
        self.handles = handles
        self.function = function
        self.num_threads = num_threads
        self.host: Candidate | None = None
        self.records: dict[str, RecordingPolicy] = {}
        self._inputs = inputs
        self._sizes = sizes
        self._seed = seed
        self._say = say
        self._seen: dict[PlacementKey, Candidate] = {}
        self._reference: Candidate | None = None
        self._host_seconds = 0.0
        self._judge: Judge | None = None
        self._peaks: Peaks | None = None

    @property
    def inputs(self) -> Mapping[str, object]:
        """The inputs of the calls, by name; known with the first candidate."""
        assert self._inputs is not None
        return self._inputs

    @property
    def tolerance(self) -> float:
        """The tolerance of results in other processes; known with the first candidate."""
        assert self._judge is not None
        return self._judge.tolerance

    def compute_reference(self) -> None:
        """Compute the results on the host; a model unable to run there has the first placement as reference."""
        request = self.request.updated(policy=OneBackend(HOST_NAME), fallback="allow")
        try:
            executable = self.compiler.build(self.module, request)
        except ByocError as error:
            self._say(f"no results of the host: {error}")
            return
        if self._inputs is None:
            self._inputs = self._draw(executable)
        try:
            host = Candidate.of("the host", executable, self.function, self._inputs, self.num_threads)
        except ExecutionError as error:
            self._say(f"no results of the host: {error}")
            return
        self._reference, self._host_seconds = host, host.first_seconds
        self.host = None if self.request.fallback == "error" else host

    def build(self, name: str, policy: Policy, request: CompileRequest | None = None) -> Candidate | None:
        """Return the candidate of a policy, or an equal earlier candidate; ``None`` if the placement does not work.

        Args:
            name: for messages.
            policy: gives the placement.
            request: in place of the request of the bench.

        Raises:
            ByocError: the only backend compiles nothing.
        """
        recorded = policy
        if isinstance(policy, OneBackend):
            recorded = self.records[policy.name] = RecordingPolicy(policy)
        try:
            executable = self.compiler.build(self.module, (request or self.request).updated(policy=recorded))
            if self._inputs is None:
                self._inputs = self._draw(executable)
            candidate = Candidate.of(
                name, executable, self.function, self._inputs, self.num_threads, schedules_of(policy)
            )
        except ByocError as error:
            if not self._seen and len(self.handles) == 1:
                raise
            self._say(f"{name}: {error}")
            return None
        reference = self._reference = self._reference or candidate
        if not self._judge_of(candidate).accepts(candidate.results, reference.results):
            self._say(f"{name}: the results differ from {reference.name}; the placement is left out")
            return None
        return self.keep(candidate)

    def build_with_host(self, name: str, policy: Policy) -> Candidate | None:
        """Return the candidate of a backend alone if refused only for ops left to the host; else ``None``.

        The candidate is no result of the search; the times of its ops serve placements without the host.
        """
        if self.request.fallback != "error":
            return None
        candidate = self.build(name, policy, self.request.updated(fallback="allow", strict=True))
        if candidate is not None:
            self._seen.pop(candidate.key, None)
        return candidate

    def keep(self, candidate: Candidate) -> Candidate:
        """Return an earlier candidate equal to a candidate, or keep the candidate for later ones."""
        return self._seen.setdefault(candidate.key, candidate)

    def release_all_but(self, best: Candidate | None) -> None:
        """Keep no candidate but the best: others hold memory, and their placements are known."""
        self._seen = {key: candidate for key, candidate in self._seen.items() if candidate is best}

    def profile(self, candidate: Candidate, seconds: float = _PROFILE_S) -> Profile:
        """Return a profile of calls of a candidate."""
        found = profile(
            candidate.executable,
            self.inputs,
            function=self.function,
            seconds=seconds,
            num_threads=self.num_threads,
            peaks=self._peaks,
        )
        self._peaks = found.peaks  # measured once
        return found

    def _judge_of(self, candidate: Candidate) -> Judge:
        """Return the judge of results, made with the first candidate."""
        if self._judge is None:
            specs = candidate.executable.signature(self.function).inputs
            inputs = [np.asarray(self.inputs[spec.name]) for spec in specs]
            infos = [handle.info(self.request.options.get(handle.name)) for handle in self.handles]
            sizes = bind_symbols(specs, inputs)
            self._judge = Judge(self.module, self.function, inputs, sizes, infos, self._host_seconds)
        return self._judge

    def _draw(self, executable: Executable) -> dict[str, object]:
        return dict(draw_inputs(executable.signature(self.function).inputs, self._sizes, self._seed))
