"""The search for the fastest placement: the first race, placements by measured ops, and moves of regions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from statistics import median
from time import monotonic

import numpy as np

from byoc_core.driver import Compiler, CompileRequest
from byoc_core.driver.automatic import compiling_backends
from byoc_core.driver.lock import Lock, versions_of
from byoc_core.driver.request_policy import policy_to_data
from byoc_core.errors import ArtifactError, ByocError, OptionsError
from byoc_core.ir import IRModule
from byoc_core.measurements import Measurement, Measurements
from byoc_core.measurements.keys import op_key
from byoc_core.measurements.setting import BackendSetting
from byoc_core.partitioning import Policy
from byoc_core.partitioning.policies import ByCost, PlacedOps
from byoc_core.profiling import Profile
from byoc_core.runtime.threads.blas_threads import limited_blas
from byoc_core.tuning import op_times
from byoc_core.tuning.bench import Bench
from byoc_core.tuning.building import BuiltPlacement, PlacementBuild, build_request
from byoc_core.tuning.candidates import Candidate, PlacementKey
from byoc_core.tuning.contents import PackedModel
from byoc_core.tuning.entrants import InOrder, OneBackend
from byoc_core.tuning.placing import PlacementSearch
from byoc_core.tuning.proposals import measured_ops, spread_ops
from byoc_core.tuning.race import challenge, race
from byoc_core.tuning.result import Tuning
from byoc_core.tuning.schedules import ScheduleSearch
from byoc_core.tuning.table import tasks_of
from byoc_core.tuning.trial import Trial
from byoc_core.tuning.workers import Workers

__all__ = ["Search"]

_FIRST_ROUNDS = 9
_MARGIN = 0.985
"""The ratio of times below which a challenger replaces the champion: less is noise."""
_PROFILE_S = 0.5
_MAX_ORDERS = 6
_PLACEMENT_SHARE = 0.6
"""The share of the time for placements; the rest is for schedules."""
_BATCH = 4
"""Trials of an executor at once."""
_SHORT_S = 0.02
"""Seconds of the host's first call below which the host always races."""
_HOPELESS = 3.0
"""The ratio of first calls above which the host does not race."""


class Search:
    """A search among the placements of a model; see :func:`byoc_core.tune` for the arguments.

    Args:
        module: the model.
        request: the choices of the compilation; policy and placement are the search's.
        compiler: has the backends for names.
        function: the function to call.
        inputs: of the calls, by name; ``None``: drawn at random.
        sizes: the sizes of symbols of drawn inputs.
        num_threads: the number of threads of a call.
        deadline: the end of the search, by :func:`time.monotonic`.
        seed: of drawn inputs.
        say: called with a line for each placement.
        measurements: the database to add measured ops to.
    """

    def __init__(
        self,
        module: IRModule,
        request: CompileRequest,
        compiler: Compiler,
        function: str,
        inputs: Mapping[str, object] | None,
        sizes: Mapping[str, int],
        num_threads: int,
        deadline: float,
        seed: int,
        say: Callable[[str], object],
        measurements: Measurements | None = None,
    ) -> None:
        self._deadline = deadline
        self._placement_deadline = monotonic() + _PLACEMENT_SHARE * (deadline - monotonic())
        self._say = say
        self._handles = compiling_backends(request, compiler.backends, "tune, backends")
        self._names = [handle.name for handle in self._handles]
        request = request.updated(backends=self._handles, policy=None, placement=None)
        self._bench = Bench(module, request, compiler, self._handles, function, inputs, sizes, num_threads, seed, say)
        self._sizes = dict(sizes)
        self._seed = seed
        self.trials: list[tuple[str, float]] = []
        self._measured_ops: dict[str, Mapping[str, float]] = {}
        self._measured_placements: dict[PlacementKey, tuple[Mapping[str, str], float]] = {}
        self._measurements = measurements
        self._schedule_trials: Mapping[str, int] = {}
        self._workers: Workers | None = None
        self._best: Candidate | None = None
        self._best_seconds = 0.0
        self._packed: tuple[Candidate, BuiltPlacement] | None = None

    def use_workers(self, runners: Executor, builders: Executor, trial_seconds: float) -> None:
        """Build and run the trials behind the first race by executors; see :class:`Workers`.

        Raises:
            OptionsError: a backend is not installed, so no other process has the backend.
        """
        registry = self._bench.compiler.backends
        for handle in self._handles:
            if not registry.holds(handle):
                raise OptionsError(f"backend `{handle.name}`", "is not installed, so no worker has it")
        model = PackedModel.of(self._bench.module, tuple(self._names))
        self._workers = Workers(runners, builders, model, trial_seconds, self._say)

    def run(self) -> Tuning:
        """Search until nothing is left to try, the time is over, or the user interrupts; return the best."""
        with limited_blas(self._bench.num_threads):
            return self._run()

    def _run(self) -> Tuning:
        alone: dict[str, Candidate] = {}
        is_complete = False
        try:
            alone = self._race_first()
            is_placed = self._improve(alone)
            is_complete = self._search_schedules() and is_placed
        except KeyboardInterrupt:
            if self._best is None:
                raise
        best = self._best
        assert best is not None
        found = self._bench.profile(best)
        rivals: dict[str, float] = {}
        for name, seconds in self.trials:
            rivals[name] = min(seconds, rivals.get(name, seconds))
        registry = self._bench.compiler.backends
        installed = [handle.name for handle in self._handles if registry.holds(handle)]
        lock = Lock(
            self._names,
            best.ops,
            self._bench.function,
            found.sizes,
            self._bench.num_threads,
            self._best_seconds,
            rivals,
            versions=versions_of(installed, registry),
            schedules=best.schedules,
        )
        tasks = tuple(tasks_of(found, self._measured_ops, best.schedules, self._schedule_trials))
        return Tuning(lock, best.executable, found, tasks, tuple(self.trials), is_complete)

    def _race_first(self) -> dict[str, Candidate]:
        """Let each backend alone, each order, the placement by cost, and the host race.

        The host takes part if the call for the reference promises a chance.

        Returns:
            The candidates of each backend alone.
        """
        policies: dict[str, Policy] = {f"{name} alone": OneBackend(name) for name in self._names}
        if len(self._handles) > 1:
            orders = itertools.islice(itertools.permutations(self._names), _MAX_ORDERS)
            policies |= {", ".join(order): InOrder(order) for order in orders}
            threads = self._bench.num_threads
            policies["by estimated cost"] = ByCost(sizes=self._sizes, num_threads=threads)
            policies["by estimated cost, any gain"] = ByCost(sizes=self._sizes, num_threads=threads, margin=0)
        self._bench.compute_reference()
        entrants: list[Candidate] = []
        alone: dict[str, Candidate] = {}
        for name, policy in policies.items():
            candidate = self._bench.build(name, policy)
            if isinstance(policy, OneBackend):
                measured = candidate or self._bench.build_with_host(name, policy)
                if measured is not None:
                    alone[policy.name] = measured
            if candidate is None:
                continue
            if candidate not in entrants:
                entrants.append(candidate)
        if not entrants:
            raise OptionsError("tune", "no placement of the model can be compiled and run")
        host = None if self._bench.host is None else self._bench.keep(self._bench.host)
        if host is not None and host not in entrants and _may_win(host, entrants):
            entrants.append(host)
        samples = race({candidate.name: candidate.run for candidate in entrants}, _FIRST_ROUNDS, self._seed)
        medians = {name: median(values) for name, values in samples.items()}
        for candidate in entrants:
            self.trials.append((candidate.name, medians[candidate.name]))
            self._measured_placements[candidate.key] = candidate.ops, medians[candidate.name]
        self._best = min(entrants, key=lambda candidate: medians[candidate.name])
        self._best_seconds = medians[self._best.name]
        for name, value in self.trials:
            self._say(f"{value * 1e3:.3f} ms  {name}")
        return alone

    def _improve(self, alone: dict[str, Candidate]) -> bool:
        """Search on until nothing is left to try or the time is over; return whether all was tried.

        Args:
            alone: the candidates of each backend alone; emptied, to release their memory.
        """
        measured: dict[str, Mapping[str, float]] = {}
        uncertain: dict[str, Mapping[str, float]] = {}
        for name, candidate in alone.items():
            found = self._bench.profile(candidate)
            self._measured_ops[name] = measured_ops(found, name)
            uncertain[name] = spread_ops(found, name)
            measured[name] = {**uncertain[name], **self._measured_ops[name]}
            self._keep_measurements(name, found)
        if len(alone) < 2:
            return True
        able = {name: candidate.ops for name, candidate in alone.items()}
        alone.clear()
        self._bench.release_all_but(self._best)
        return PlacementSearch(self, measured, uncertain, able, self._sizes).run()

    def _keep_measurements(self, name: str, found: Profile) -> None:
        """Add the ops of a backend to the database, from a profile of the backend alone."""
        record = self._bench.records.get(name)
        if self._measurements is None or record is None or record.module is None:
            return
        handle = next(handle for handle in self._handles if handle.name == name)
        ops = list(op_times.measured_ops(found, name, record.module, scale=True))
        options = self._bench.request.options.get(name, {})
        rows = op_times.measurements_of(ops, record, handle, options, found.sizes, found.num_threads, found.num_calls)
        self._add_measurements(rows)

    def _search_schedules(self) -> bool:
        """Try other schedules of the heaviest ops of the best placement; return whether all were tried."""
        assert self._best is not None
        bench, ops = self._bench, self._best.ops
        search = ScheduleSearch(bench.compiler, bench.module, bench.request, self._handles, ops, self)
        is_complete = search.run(has_workers=self._workers is not None)
        self._schedule_trials = search.num_trials
        self._keep_schedules(search)
        return is_complete

    def _keep_schedules(self, search: ScheduleSearch) -> None:
        """Add the schedules of the best placement to the database, beside the times of the backends' own choices."""
        if self._measurements is None or self._best is None:
            return
        rows = []
        for choice, name in search.timed_choices(self._best.schedules):
            options = self._bench.request.options.get(choice.handle.name, {})
            setting = BackendSetting.of(choice.handle, options, self._bench.num_threads)
            key = op_key(choice.function)
            ratio = choice.times[name]
            usual = self._measurements.usable_rows(**setting._asdict(), key=key, schedule="")
            rows += [replace(row, schedule=name, seconds=row.seconds * ratio) for row in usual]
        self._add_measurements(rows)

    def _add_measurements(self, rows: Iterable[Measurement]) -> None:
        if self._measurements is None:
            return
        try:
            self._measurements.add(rows)
        except ArtifactError as error:
            self._say(f"the measured ops are not kept: {error}")
            self._measurements = None

    @property
    def best(self) -> Candidate:
        """The best placement; known with the first race."""
        assert self._best is not None
        return self._best

    @property
    def measured_placements(self) -> Mapping[PlacementKey, tuple[Mapping[str, str], float]]:
        """The backend of each op and the seconds of a call, for each measured placement."""
        return self._measured_placements

    @property
    def num_moves_at_once(self) -> int:
        """The number of placements to be tried at once."""
        return 1 if self._workers is None else _BATCH

    def has_time_to_place(self) -> bool:
        """Return whether time for placements is left, and a worker."""
        return monotonic() <= self._placement_deadline and not self.is_over()

    def build_policy(self, name: str, policy: Policy) -> Candidate | None:
        """Build a placement; ``None`` if the placement does not work or the results differ."""
        self._bench.release_all_but(self._best)
        best = self._best
        is_best = isinstance(policy, PlacedOps) and best is not None and best.is_made_by(policy)
        return best if is_best else self._bench.build(name, policy)

    def profile_calls(self, candidate: Candidate, seconds: float = _PROFILE_S) -> Profile:
        """Profile calls of a placement."""
        return self._bench.profile(candidate, seconds)

    def try_policies(self, policies: Mapping[str, Policy]) -> bool:
        """Race placements against the best; return whether one of these is the new best."""
        return self._try(policies)

    def best_schedules(self) -> Mapping[str, str]:
        """Return the schedules of the best placement."""
        return {} if self._best is None else self._best.schedules

    def is_over(self) -> bool:
        """Return whether the time is over, or no worker is left."""
        return monotonic() > self._deadline or (self._workers is not None and self._workers.is_broken)

    def say(self, line: str) -> object:
        """Tell the user."""
        return self._say(line)

    def _try(self, policies: Mapping[str, Policy]) -> bool:
        """Measure placements; return whether one of these is the new best."""
        if self._workers is not None:
            return self._try_by_workers(self._workers, policies)
        outcomes = [self._try_here(name, policy) for name, policy in policies.items()]
        return any(outcomes)

    def _try_by_workers(self, workers: Workers, policies: Mapping[str, Policy]) -> bool:
        request = build_request(self._bench.request.to_data())
        built = workers.build(
            [PlacementBuild(name, workers.digest, request, policy_to_data(policy)) for name, policy in policies.items()]
        )
        new = {
            placement.key: name for name, placement in built.items() if placement.key not in self._measured_placements
        }
        built = {name: built[name] for name in new.values()}
        if not built:
            return False
        try:
            best = self._pack_best()
        except ByocError as error:
            self._say(f"no trials elsewhere: the best placement cannot be saved: {error}")
            workers.is_broken = True
            return False
        artifacts = {placement.digest: placement.artifact for placement in (best, *built.values())}
        inputs = {name: np.asarray(value) for name, value in self._bench.inputs.items()}
        trials = {
            name: Trial(
                name,
                best.digest,
                placement.digest,
                self._bench.function,
                inputs,
                self._bench.num_threads,
                self._bench.tolerance,
                {placement.digest: placement.artifact},
            )
            for name, placement in built.items()
        }
        outcomes = workers.run(list(trials.values()), artifacts)
        is_better = False
        for name, outcome in sorted(outcomes.items(), key=lambda item: (item[1].ratio, item[0])):
            placement = built[name]
            seconds = outcome.ratio * self._best_seconds
            self._measured_placements[placement.key] = placement.ops, seconds
            self.trials.append((name, seconds))
            if not is_better and outcome.ratio < _MARGIN and workers.confirms(trials[name], artifacts, _MARGIN):
                candidate = self._bench.build(name, PlacedOps(placement.ops, placement.schedules))
                if candidate is not None:
                    self._best, self._best_seconds, is_better = candidate, seconds, True
            self._say_trial(name, seconds)
        return is_better

    def _pack_best(self) -> BuiltPlacement:
        """Return the best placement as an artifact, packed once."""
        best = self._best
        assert best is not None
        if self._packed is None or self._packed[0] is not best:
            self._packed = best, BuiltPlacement.of(best.executable, best.schedules)
        return self._packed[1]

    def _say_trial(self, name: str, seconds: float) -> None:
        best = f"best {self._best_seconds * 1e3:.3f} ms, {len(self.trials)} trials"
        self._say(f"{seconds * 1e3:.3f} ms  {name}  ({best})")

    def _try_here(self, name: str, policy: Policy) -> bool:
        """Build and measure a placement; return whether the placement is the new best."""
        candidate = self._bench.build(name, policy)
        best = self._best
        assert best is not None
        if candidate is None or candidate.key in self._measured_placements:
            return False
        ratio, seconds = challenge(best.run, candidate.run)
        # The machine drifts: the time in units of the best placement's first time.
        self._measured_placements[candidate.key] = candidate.ops, ratio * self._best_seconds
        self.trials.append((name, seconds))
        is_better = ratio < _MARGIN
        if is_better:
            self._best, self._best_seconds = candidate, seconds
        self._bench.release_all_but(self._best)
        self._say_trial(name, seconds)
        return is_better


def _may_win(host: Candidate, entrants: Iterable[Candidate]) -> bool:
    """Return whether the host may be the fastest, by first calls.

    A first call of a backend may load and pack; a slow host cannot make up for more.
    """
    fastest = min(candidate.first_seconds for candidate in entrants)
    return host.first_seconds < max(_SHORT_S, _HOPELESS * fastest)
