"""The search for schedules: alternatives of the heaviest ops of a placement, measured in place.

Ops of equal structure share a choice. A build tries an alternative of each of several choices at once: the times of the
parts of a profile tell the gain of each. The combination of the gains then has to win a race against the best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from byoc_core.backend import BackendHandle
from byoc_core.driver import Compiler, CompileRequest
from byoc_core.errors import ByocError
from byoc_core.ir import Binding, Function, IRModule
from byoc_core.partitioning import Policy
from byoc_core.partitioning.op_function import as_function
from byoc_core.partitioning.op_sites import members_of, op_key
from byoc_core.partitioning.op_structure import OpNumbers
from byoc_core.partitioning.policies import PlacedOps, placement_key
from byoc_core.partitioning.policies.neighbours import Neighbours, Site, neighbours_of
from byoc_core.profiling import Profile
from byoc_core.tuning.candidates import Candidate
from byoc_core.tuning.proposals import measured_ops

__all__ = ["OpChoice", "ScheduleSearch", "TrialBench", "choices_of"]

_LEAST_SHARE = 0.005
"""The share of a call's time from which an op's alternatives are tried."""
_GAIN = 0.97
"""The ratio of an op's times below which an alternative goes into the combination."""
_MAX_ALONE = 6
"""Gains tried alone, if the combination is not faster."""
_PROFILE_S = 0.15
_REPEATS = 5
"""Profiles of an alternative, and seconds of each."""
_BATCH = 4
"""Alternatives tried by an executor at once."""


Offers = Mapping[str, tuple[str, ...]]
"""The names of alternatives, by the name of an op's result."""


@dataclass
class OpChoice:
    """Equal ops of a placement, with a single choice of a schedule.

    Attributes:
        handle: the backend.
        function: the op or composite as a function, for the database of measured ops.
        op: the name of the named op, or of the heaviest, such as ``nn.conv2d``.
        keys: the named op of each place, by ``"FUNCTION/RESULT"``; these bear the schedule.
        members: all ops of all places.
        names: the names of the alternatives.
        num_trials: the number of tried alternatives.
        times: the ratio of each alternative's time to the time of the backend's own choice.
    """

    handle: BackendHandle
    function: Function
    op: str
    names: tuple[str, ...]
    keys: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)
    num_trials: int = 0
    times: dict[str, float] = field(default_factory=dict)

    def seconds(self, by_op: Mapping[str, float]) -> float:
        """Return the seconds of all places."""
        return sum(by_op.get(member, 0.0) for member in self.members)

    def named(self, schedule: str) -> dict[str, str]:
        """Return the schedule for all places."""
        return dict.fromkeys(self.keys, schedule)

    @property
    def label(self) -> str:
        """The name for messages."""
        more = f" and {len(self.keys) - 1} equal" if len(self.keys) > 1 else ""
        return f"{self.op} {self.keys[0]}{more}"


class TrialBench(Protocol):
    """The means of a search: builds, profiles and races."""

    def build_policy(self, name: str, policy: Policy) -> Candidate | None:
        """Build a placement; ``None`` if the placement does not work or the results differ."""

    def profile_calls(self, candidate: Candidate, seconds: float) -> Profile:
        """Profile calls of a placement."""

    def try_policies(self, policies: Mapping[str, Policy]) -> bool:
        """Race placements against the best; return whether one of these is the new best."""

    def best_schedules(self) -> Mapping[str, str]:
        """Return the schedules of the best placement."""

    def is_over(self) -> bool:
        """Return whether the time is over."""

    def say(self, line: str) -> object:
        """Tell the user."""


def choices_of(
    module: IRModule, handles: Sequence[BackendHandle], offered: Callable[[BackendHandle, Function], Offers]
) -> list[OpChoice]:
    """Return the choices of a module before codegen, equal ops with equal alternatives together.

    Args:
        module: a partitioned module.
        handles: the backends; only backends with the hook ``byoc_schedules`` offer choices.
        offered: returns the alternatives of a backend in a region, by the name of an op's result.
    """
    by_name = {handle.name: handle for handle in handles if handle.names_schedules}
    found: dict[tuple[str, int, Neighbours, tuple[str, ...]], OpChoice] = {}
    numbers = OpNumbers()
    for function in module.functions.values():
        handle = by_name.get(str(function.attrs.get("Codegen")))
        if handle is None:
            continue
        source = str(function.attrs.get("source", function.name))
        offers = offered(handle, function)
        open_function = replace(function, attrs={})  # neighbours of regions are not counted
        sites = neighbours_of(IRModule({function.name: open_function}))
        for binding in function.bindings:
            members = members_of(binding)
            site = sites.get(op_key(function.name, members[0]), Site())
            named = [(op, offers[result.name]) for op in members for result in op.results if result.name in offers]
            bearer, names = named[-1] if named else (max(members, key=_flops), ())
            key = (handle.name, numbers.number(binding), site.neighbours, names)
            if key not in found:
                op = as_function(binding, handle.name, site.neighbours._asdict())
                found[key] = OpChoice(handle, op, bearer.op.name, names)
            found[key].keys.append(placement_key(op_key(source, bearer)))
            found[key].members += [placement_key(op_key(source, member)) for member in members]
    return list(found.values())


def _flops(binding: Binding) -> int:
    flops = binding.op.flops(binding.context())
    return flops if isinstance(flops, int) else 0


class ScheduleSearch:
    """A search among the schedules of a placement's ops.

    Args:
        compiler: has the backends.
        module: the model.
        request: the choices of the compilation.
        handles: the backends.
        ops: the placement.
        bench: builds, profiles and races.
    """

    def __init__(
        self,
        compiler: Compiler,
        module: IRModule,
        request: CompileRequest,
        handles: Sequence[BackendHandle],
        ops: Mapping[str, str],
        bench: TrialBench,
    ) -> None:
        self._compiler = compiler
        self._module = module
        self._request = request
        self._ops = ops
        self._bench = bench
        self._handles = handles
        self._choices: list[OpChoice] = []
        self.num_trials: dict[str, int] = {}

    def run(self, *, has_workers: bool) -> bool:
        """Try the schedules of the heaviest ops; return whether all were tried.

        Args:
            has_workers: whether races run in other processes: then each alternative races alone.
        """
        if not any(handle.names_schedules for handle in self._handles):
            return True
        if self._bench.is_over():
            return False
        try:
            carved = self._compiler.carve(self._module, self._request.updated(policy=PlacedOps(self._ops)))
        except ByocError as error:
            self._bench.say(f"no schedules are tried: {error}")
            return False
        own = self._bench.build_policy("own schedules", PlacedOps(self._ops))
        if own is None:
            return False
        self._own = own
        usual, choices = self._seconds(own), choices_of(carved, self._handles, partial(self._offers, carved))
        least = _LEAST_SHARE * sum(usual.values())
        heavy = sorted((choice for choice in choices if choice.seconds(usual) > least), key=lambda c: -c.seconds(usual))
        open_choices = [(choice, choice.names) for choice in heavy if choice.names]
        is_complete = (self._race_each if has_workers else self._try_together)(open_choices)
        self._choices = heavy
        for choice in heavy:
            self.num_trials.update(dict.fromkeys(choice.members, choice.num_trials))
        return is_complete

    def timed_choices(self, schedules: Mapping[str, str]) -> Iterator[tuple[OpChoice, str]]:
        """Yield the choices with a measured time of the schedule in a placement, and the schedule.

        Args:
            schedules: of the placement, by op.
        """
        for choice in self._choices:
            name = schedules.get(choice.keys[0], "")
            if name in choice.times:
                yield choice, name

    def _offers(self, carved: IRModule, handle: BackendHandle, region: Function) -> Offers:
        context = handle.context(carved, self._request.options.get(handle.name, {}))
        try:
            return handle.schedules(region, context)
        except ByocError as error:
            self._bench.say(f"{region.name}: {error}")
            return {}

    def _seconds(self, candidate: Candidate) -> dict[str, float]:
        """Return the seconds of the ops of a placement."""
        found = self._bench.profile_calls(candidate, _PROFILE_S)
        by_backend = (measured_ops(found, handle.name) for handle in self._handles)
        return {op: seconds for times in by_backend for op, seconds in times.items()}

    def _try_together(self, choices: Sequence[tuple[OpChoice, Sequence[str]]]) -> bool:
        """Try an alternative of each choice in each build, then race the combination of the gains."""
        is_complete = True
        for number in range(max((len(names) for _, names in choices), default=0)):
            if self._bench.is_over():
                is_complete = False
                break
            self._try_round([(choice, names[number]) for choice, names in choices if number < len(names)])
        gains = sorted(self._gains([choice for choice, _ in choices]), key=lambda gain: gain[0])
        return self._race_gains([(choice, name) for _, choice, name in gains]) and is_complete

    def _try_round(self, tried: Sequence[tuple[OpChoice, str]]) -> None:
        schedules = {key: name for choice, name in tried for key in choice.keys}
        candidate = self._bench.build_policy("schedules", PlacedOps(self._ops, schedules))
        if candidate is None:
            return
        # The machine drifts, and other processes disturb: both are measured in turn, and the least time counts.
        usual, changed = dict[str, float](), dict[str, float]()
        for _ in range(_REPEATS):
            for measured, least in ((self._own, usual), (candidate, changed)):
                for op, seconds in self._seconds(measured).items():
                    least[op] = min(seconds, least.get(op, seconds))
        for choice, name in tried:
            choice.num_trials += 1
            before, after = choice.seconds(usual), choice.seconds(changed)
            if before and after:
                choice.times[name] = after / before
                self._bench.say(f"{after * 1e6:.1f} us  {choice.label}: {name}  (own choice {before * 1e6:.1f} us)")

    def _gains(self, choices: Sequence[OpChoice]) -> Iterator[tuple[float, OpChoice, str]]:
        """Yield the ratio, choice and name of the fastest alternative of each choice, if faster beyond noise."""
        for choice in choices:
            name = min(choice.times, key=lambda name: choice.times[name], default=None)
            if name is not None and choice.times[name] < _GAIN:
                yield choice.times[name], choice, name

    def _race_gains(self, gains: Sequence[tuple[OpChoice, str]]) -> bool:
        """Race all gains at once; if these are not faster, some alone. Return whether the time suffices."""
        together = {key: name for choice, name in gains for key in choice.keys}
        if not gains or self._race(f"schedules of {len(gains)} kinds of ops", together) or len(gains) == 1:
            return True
        accepted: dict[str, str] = {}
        for choice, name in gains[:_MAX_ALONE]:
            if self._bench.is_over():
                return False
            if self._race(f"{choice.label}: {name}", {**accepted, **choice.named(name)}):
                accepted.update(choice.named(name))
        return True

    def _race_each(self, choices: Sequence[tuple[OpChoice, Sequence[str]]]) -> bool:
        """Race the alternatives of each choice, several at once."""
        accepted: dict[str, str] = {}
        for choice, names in choices:
            for first in range(0, len(names), _BATCH):
                if self._bench.is_over():
                    return False
                batch = names[first : first + _BATCH]
                choice.num_trials += len(batch)
                policies: dict[str, Policy] = {
                    f"{choice.label}: {name}": PlacedOps(self._ops, {**accepted, **choice.named(name)})
                    for name in batch
                }
                if self._bench.try_policies(policies):
                    accepted = dict(self._bench.best_schedules())
        return True

    def _race(self, label: str, schedules: Mapping[str, str]) -> bool:
        return self._bench.try_policies({label: PlacedOps(self._ops, schedules)})
