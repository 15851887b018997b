"""The policy weighing the costs of ops on each backend against the costs of moving data between backends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from byoc_core.backend import BackendHandle
from byoc_core.backend.registry import HOST_NAME
from byoc_core.errors import OptionsError, near_names
from byoc_core.ir import Binding, IRModule
from byoc_core.measurements import Calibration, Measurements
from byoc_core.measurements.setting import expected_threads, find_calibrations
from byoc_core.partitioning.claiming.answers import SupportAnswers
from byoc_core.partitioning.claiming.claim_filters import with_refused_ops
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.layouts.expected import expect_orders
from byoc_core.partitioning.log import PartitionLog
from byoc_core.partitioning.op_sites import OpKey, bodies_of, op_key
from byoc_core.partitioning.op_structure import OpNumbers
from byoc_core.partitioning.policies.cost_model import MachineModel, Sizes, to_seconds
from byoc_core.partitioning.policies.cost_problem import WRONG_PLACE, Body, Prices, backends_of
from byoc_core.partitioning.policies.labelling import Labelling, find_labelling
from byoc_core.partitioning.policies.placed import with_schedules
from byoc_core.pattern import Rejection

__all__ = ["ByCost"]


@dataclass(frozen=True)
class ByCost:
    """A policy giving each op to a backend or to the host, for the least expected total time.

    Each backend first claims as much as possible, to find the candidate ops and the costs there (``byoc_estimate``, or
    a :class:`MachineModel`). Function :func:`byoc_core.partitioning.policies.labelling.find_labelling` then assigns the
    ops to backends; a composite stays whole. A border is paid for each value crossing the border, once for each other
    backend reading the value: the call, the transfer out of one device and into the other, and the change of layout
    between a backend preferring another order of axes (``byoc_layouts``) and a backend without. A region entered by
    several values is therefore charged several calls. A value passed between two devices of one memory, placed by the
    user (``PartitionOptions.devices``), crosses a border too: directly, or by way of the host.

    If ops on the host are an error of the build (``fallback="error"``), an op stays there only if no backend takes the
    op. The result is expected to cost no more than any backend alone, nor than the host alone, and with ``margin=0`` no
    more than the result of :class:`GreedyByOrder` with any backend first. A module
    with regions of one of the backends is left unchanged: the ops outside were weighed when these regions were made.

    Attributes:
        sizes: the expected value of each symbolic size, by symbol; 1 by default.
        machines: figures by backend name, including ``"host"``, in place of own estimates; without both, the figures
            are ``HOST_MACHINE`` and ``BACKEND_MACHINE`` of this package. A policy may serve several builds: a name may
            belong to an installed backend not taking part; any other name is an error.
        measured: measured seconds of ops by backend name, including ``"host"``, then by ``"FUNCTION/RESULT"``
            (:func:`byoc_core.partitioning.policies.placement_key`), in place of estimates. Ops computed together count
            once, by any of these ops.
        border_seconds: additional seconds for each value crossing a border, such as changes of layouts: constant, and
            seconds for each byte.
        margin: the share of the time of the best backend alone, or of the host alone, to be saved at least by several
            backends together, and by backends with ops left to a host without figures in ``machines``; else the best
            alone takes its ops. Estimates have errors, and a mixture adds up the errors in its favour.
        measurements: the database of measured ops, in place of estimates of backends without ``machines``. An op
            not measured costs the estimate times a factor learned from measured ops of the family. ``None``: no
            database. The database of a user is ``Measurements()``.
        num_threads: the expected number of threads of a call; by default the number of the process.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    machines: Mapping[str, MachineModel] = field(default_factory=dict)
    measured: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    border_seconds: tuple[float, float] = (0.0, 0.0)
    margin: float = 0.15
    measurements: Measurements | None = None
    num_threads: int | None = None

    def __post_init__(self) -> None:
        _check_mapping("sizes", self.sizes, "{'batch': 32}")
        sizes: Mapping[str, object] = self.sizes
        for name, size in sizes.items():
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                where = f"ByCost, size `{name}`"
                raise OptionsError(where, "has a bad value", got=repr(size), expected="an int, 0 or more")
        _check_mapping("machines", self.machines, "{'host': MachineModel(5e10, 1e10)}")
        machines: Mapping[str, object] = self.machines
        for name, machine in machines.items():
            if not isinstance(machine, MachineModel):
                raise OptionsError(f"ByCost, machine `{name}`", "is not a MachineModel", got=repr(machine))
        _check_mapping("measured", self.measured, "{'mynpu': {'main/conv_0': 2e-5}}")
        for name, seconds in self.measured.items():
            _check_mapping(f"measured of `{name}`", seconds, "{'main/conv_0': 2e-5}")
        border: object = self.border_seconds
        if not isinstance(border, tuple | list) or len(border) != 2:
            expected = "two numbers: constant, and for each byte"
            raise OptionsError("ByCost, border_seconds", "has a bad value", got=repr(border), expected=expected)
        numbers = [*self.border_seconds, *(value for seconds in self.measured.values() for value in seconds.values())]
        if not all(map(_is_time, numbers)):
            raise OptionsError("ByCost", "has a bad number of seconds", expected="finite numbers, 0 or more")
        if not _is_time(self.margin) or self.margin >= 1:
            raise OptionsError(
                "ByCost, margin", "has a bad value", got=repr(self.margin), expected="0 or more, below 1"
            )
        measurements: object = self.measurements
        if measurements is not None and not isinstance(measurements, Measurements):
            raise OptionsError("ByCost, measurements", "is no database of measured ops", got=repr(measurements))
        threads: object = self.num_threads
        if threads is not None and (type(threads) is not int or threads < 1):
            raise OptionsError("ByCost, num_threads", "has a bad value", got=repr(threads), expected="an int above 0")

    def __call__(self, module: IRModule, request: PartitionRequest) -> IRModule:
        """Return the module with claims.

        Raises:
            OptionsError: there are figures for a backend neither taking part nor installed.
            HookError: a backend's hook failed.
            PatternError: a pattern's check raised.

        Cost: the claims of :class:`GreedyByOrder` once for each backend and three times more, seldom four, and
        near-linear in the ops beyond that.
        Each backend is asked once about each distinct op.
        """
        self._check_machines(request)
        backends = [handle for handle in request.backends if handle.name != HOST_NAME]
        if backends and not _is_partitioned(module, [handle.name for handle in backends]):
            calibrations: Mapping[str, Calibration] = {}
            if self.measurements is not None:
                calibrations = find_calibrations(self.measurements, backends, request.options, self.num_threads)
            module = _claim_best(
                self, module, replace(request, backends=backends, answers=SupportAnswers()), calibrations
            )
        for handle in request.backends:
            if handle.name == HOST_NAME:  # taking part as a backend, the host takes the rest
                module = request.claim(module, handle)
        return module

    def _check_machines(self, request: PartitionRequest) -> None:
        names = [handle.name for handle in request.backends]
        installed = {record.name for record in request.registry.list()}
        for name in self.machines:
            if name not in {*names, HOST_NAME, *installed}:
                raise OptionsError(
                    f"ByCost, machine `{name}`",
                    "no backend of this name takes part or is installed",
                    expected=", ".join([*names, HOST_NAME]),
                    hint=near_names(name, [*names, HOST_NAME]) or None,
                )


def _claim_by_order(request: PartitionRequest, module: IRModule, backends: Sequence[BackendHandle]) -> IRModule:
    """Return the module with claims of backends, each for the ops left by the backends before."""
    for handle in backends:
        module = request.claim(module, handle)
    return module


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


Choice = Mapping[OpKey, str]
"""The backend of each op to be offloaded."""


def _check_mapping(field_name: str, value: object, example: str) -> None:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionsError(
            f"ByCost, {field_name}",
            "is not a mapping with names as keys",
            got=repr(value),
            expected=f"a mapping such as {example}",
        )


def _claim_best(
    policy: ByCost, module: IRModule, request: PartitionRequest, calibrations: Mapping[str, Calibration]
) -> IRModule:
    """Claim at the least cost, and plan anew without the ops of failed estimates of a backend.

    The loop ends: each round takes one op more from a backend.
    """
    refused: dict[tuple[str, OpKey], Rejection] = {}
    while True:
        log = PartitionLog()
        claim_filters = with_refused_ops(refused, request.claim_filters)
        plan = _Plan(policy, module, replace(request, log=log, claim_filters=claim_filters), calibrations)
        claimed = plan.claim_best()
        if plan.refused.keys() <= refused.keys():
            request.log.extend(log)
            return claimed
        refused.update(plan.refused)


class _Plan:
    """The knowledge of a module before any final claim."""

    def __init__(
        self, policy: ByCost, module: IRModule, request: PartitionRequest, calibrations: Mapping[str, Calibration]
    ) -> None:
        self._module = module
        self._request = request
        unlogged = replace(request, log=PartitionLog())
        self._margin = policy.margin
        self._guesses_host = bool(calibrations) or HOST_NAME not in {*policy.machines, *policy.measured}
        trials = [unlogged.claim(module, handle) for handle in request.backends]
        self._claimed_before = backends_of(module)
        self._greedy = [
            _claim_by_order(unlogged, trial, [other for other in request.backends if other is not first])
            for first, trial in zip(request.backends, trials, strict=True)
        ]
        self._num_offered = max(len(self._claims_of(module)) for module in self._greedy)
        self._trials = trials
        sizes = Sizes(policy.sizes)
        numbers = request.answers.numbers if request.answers is not None else OpNumbers()
        orders = expect_orders(module, trials, request.backends, request.options, numbers)
        self._prices = Prices(
            module,
            request,
            policy.machines,
            sizes,
            policy.measured,
            policy.border_seconds,
            calibrations,
            orders,
            expected_threads(policy.num_threads),
            {key for trial in trials for key in backends_of(trial)} if request.forbids_host else (),
        )
        units = [self._prices.units(module, trial, label) for label, trial in enumerate(trials)]
        self._bodies = [Body(source, body, self._prices, units) for source, body in bodies_of(module)]

    @property
    def refused(self) -> Mapping[tuple[str, OpKey], Rejection]:
        """The ops with failed estimates, with the backends' names."""
        return self._prices.refused

    def claim_best(self) -> IRModule:
        """Claim at the least actual cost: the best placement, each backend first, a backend alone, or nothing at all.

        A backend first leaves the rest to the others in order. Ops computed along with others may make such a placement
        better than the placement of ops one by one. Placements on several backends count as dearer by the margin.
        """
        starts = [backends_of(module) for module in self._greedy]
        placed: dict[OpKey, str] = {}
        for body in self._bodies:
            placed.update(body.choice(find_labelling(body.problem, [body.labels(start) for start in starts]).labels))
        log = PartitionLog()
        claimed = self.claim(placed, log)
        placed_cost = self._weighed(claimed, placed)
        modules = [*self._greedy, self._module, *self._trials]
        alternatives: list[tuple[tuple[float, float], Choice]] = [
            (self._weighed(module, choice), choice) for module in modules for choice in (self._claims_of(module),)
        ]
        cost, choice = min(alternatives, key=lambda pair: pair[0])
        if cost < placed_cost:
            return self.claim(choice, self._request.log)
        self._request.log.extend(log)
        return claimed

    def _claims_of(self, module: IRModule) -> Choice:
        """Return the claims of a module beyond the original claims."""
        claims = backends_of(module).items()
        return {key: backend for key, backend in claims if key not in self._claimed_before}

    def _weighed(self, module: IRModule, choice: Choice) -> tuple[float, float]:
        """Return the number of ops at places not allowed, then the cost, of a module with the claims of a choice.

        A mixture must save the margin. The host with guessed figures is a part of a mixture too.
        """
        num_misplaced, cost = divmod(self._prices.total(module), WRONG_PLACE)
        takers = set(choice.values())
        if self._guesses_host and len(choice) < self._num_offered:
            takers.add(HOST_NAME)
        return num_misplaced, cost / (1 - self._margin) if self._margin and len(takers) > 1 else cost

    def claim(self, choice: Choice, log: PartitionLog) -> IRModule:
        """Return the module with the claims of a choice, as far as allowed by the request; the log gets the rest."""
        module, request = self._module, replace(self._request, log=log)
        explanation = _CostExplanation(self._bodies, choice)
        for label, handle in enumerate(request.backends):

            def refusal(source: str, binding: Binding, label: int = label, name: str = handle.name) -> Rejection | None:
                if choice.get(op_key(source, binding)) == name:
                    return None
                return explanation.refusal(source, binding, label)

            module = request.claim(module, handle, refusal)
        return with_schedules(module, self._prices.schedules(module, self._claimed_before))


class _CostExplanation:
    """The costs of ops on backends not chosen, against the costs under the choice."""

    def __init__(self, bodies: Sequence[Body], choice: Choice) -> None:
        self._items: dict[OpKey, tuple[Body, Labelling, int]] = {}
        for body in bodies:
            labelling = Labelling(body.problem, body.labels(choice))
            self._items.update(((body.source, name), (body, labelling, item)) for name, item in body.items.items())

    def refusal(self, source: str, binding: Binding, label: int) -> Rejection | None:
        """Return the reason against an op on a backend; ``None`` if the backend does not take the op at all."""
        body, labelling, item = self._items[op_key(source, binding)]
        costs, label = body.problem.costs, body.slot(op_key(source, binding)[1], label)
        unit = body.problem.units[label].get(item, (item,))
        backend_cost = sum(costs[member][label] for member in unit)
        if backend_cost == math.inf:
            return None
        current_cost = sum(costs[member][labelling.labels[member]] for member in unit)
        transfers = labelling.difference(labelling.changes([item], label)) - backend_cost + current_cost
        names = [body.label_name(current) for current in sorted({labelling.labels[member] for member in unit})]
        transfer_text = (
            f"plus {_microseconds(transfers)} of transfers"
            if transfers >= 0
            else f"minus {_microseconds(-transfers)} of transfers"
        )
        work_text = f"{_microseconds(backend_cost)} on {body.label_name(label)}"
        text = f"{work_text} {transfer_text} against {_microseconds(current_cost)} on {' and '.join(names)}"
        return Rejection("costs-more", text)


def _is_partitioned(module: IRModule, backends: Sequence[str]) -> bool:
    """Return whether the partitioner made regions for one of the backends before."""
    functions = module.functions.values()
    return any(function.attrs.get("Codegen") in backends and "source" in function.attrs for function in functions)


def _microseconds(cost: float) -> str:
    return f"{to_seconds(cost) * 1e6:.3g} us"
