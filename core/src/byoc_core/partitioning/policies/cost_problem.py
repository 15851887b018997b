"""The placement problems of a module's bodies: one item per op, and a label for each slot of ops, the host's last.

A slot is a backend, or one of several numbered devices of a backend (:mod:`.cost_slots`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from byoc_core.backend import Estimate
from byoc_core.backend.registry import HOST_NAME
from byoc_core.ir import COMPOSITE, STRUCTURAL_OPS, Binding, Constant, Function, IRModule, Var
from byoc_core.measurements import Calibration
from byoc_core.partitioning.claiming.request import PartitionRequest
from byoc_core.partitioning.layouts.expected import ExpectedOrder
from byoc_core.partitioning.op_sites import OpKey, bodies_of, members_of, op_key
from byoc_core.partitioning.op_structure import OpNumbers
from byoc_core.partitioning.policies.cost_model import (
    BackendCosts,
    MachineModel,
    Sizes,
    guess_host,
    to_units,
)
from byoc_core.partitioning.policies.cost_slots import DeviceSlots
from byoc_core.partitioning.policies.neighbours import Neighbours, Site, neighbours_of
from byoc_core.partitioning.policies.placed import placement_key
from byoc_core.partitioning.policies.placement import Cost, Flow, PlacementProblem
from byoc_core.pattern import Rejection

__all__ = ["WRONG_PLACE", "Body", "Prices", "Unit", "backends_of"]

_NO_SITE = Site(maker="", reader="")
WRONG_PLACE = to_units(math.inf)
"""The cost of an op at a place not allowed: 30 years, more than all other costs of a module together."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A group of ops taken by one backend as a whole.

    Attributes:
        ops: names of the ops' first results.
        cost: in femtoseconds, on that backend.
    """

    ops: tuple[str, ...]
    cost: int


def backends_of(module: IRModule) -> dict[OpKey, str]:
    """Return the backend of every claimed op outside regions."""
    return {
        op_key(source, op): binding.codegen
        for source, body in bodies_of(module)
        for binding in body.bindings
        if binding.codegen is not None
        for op in members_of(binding)
    }


class Prices:
    """The costs of ops and transfers, for a module and a request.

    Args:
        module: the module with the original claims.
        request: the backends taking part.
        machines: by name; replace the core's figures for the host, and the estimates of backends.
        sizes: the expected sizes.
        measured: seconds of ops by backend, in place of estimates; see :class:`ByCost`.
        border_seconds: see :class:`ByCost`.
        calibrations: corrections of estimates by measurements, by backend.
        orders: the values with permuted axes in regions of a backend, by backend, then by function and name.
        num_threads: the number of threads of a call.
        kept_off_host: ops not to run on the host.

    Attributes:
        labels: the names of the backends, the host's last.
        slots: the slots of ops.
        sizes: as given.
        refused: the ops with failed estimates, with the backends' names.
    """

    def __init__(
        self,
        module: IRModule,
        request: PartitionRequest,
        machines: Mapping[str, MachineModel],
        sizes: Sizes,
        measured: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
        border_seconds: tuple[float, float] = (0.0, 0.0),
        calibrations: Mapping[str, Calibration] = MappingProxyType({}),
        orders: Mapping[str, Mapping[OpKey, ExpectedOrder]] = MappingProxyType({}),
        num_threads: int = 1,
        kept_off_host: Collection[OpKey] = (),
    ) -> None:
        self.labels = (*(handle.name for handle in request.backends), HOST_NAME)
        self.slots = DeviceSlots(len(self.labels) - 1, request.devices)
        self.sizes = sizes
        self.refused: dict[tuple[str, OpKey], Rejection] = {}
        machine = machines.get(HOST_NAME)
        self._host = guess_host if machine is None else machine.estimate
        self._numbers = request.answers.numbers if request.answers is not None else OpNumbers()
        self._host_costs: dict[int, int] = {}
        self._backends = []
        for handle in request.backends:
            context = handle.context(module, request.options.get(handle.name, {}))
            context = replace(context, num_threads=num_threads)
            calibration, machine = calibrations.get(handle.name), machines.get(handle.name)
            costs = BackendCosts(handle, context, machine, sizes, self._numbers, calibration)
            self._backends.append(costs)
        self._neighbours = neighbours_of(module)
        self._measured = [measured.get(name, {}) for name in self.labels]
        self._border_seconds = border_seconds
        self._moves: dict[tuple[int, tuple[ExpectedOrder, ...]], Sequence[Sequence[int]]] = {}
        self._orders = [orders.get(name, {}) for name in self.labels]
        self._host_filter = request.claim_filters(HOST_NAME)
        self._kept_off_host = kept_off_host

    def cost(self, source: str, binding: Binding, label: int, labels: Mapping[str, int] | None = None) -> int:
        """Return the cost of an op or composite in femtoseconds.

        The cost is :data:`WRONG_PLACE` after a failed estimate, and on the host if the user wants another place.

        Args:
            source: the op's original function in the module.
            binding: the op.
            label: the label of the running backend.
            labels: the labels of other ops, by the name of the first result; by default, neighbours have this label.

        Raises:
            HookError: the backend's hook failed.
        """
        measured = self._measured_cost(source, binding, label) if self._measured[label] else None
        if label < len(self._backends):
            if measured is not None:
                return measured
            members = members_of(binding)
            neighbours = self._neighbours_at(source, members, label, labels)
            cost = self._backends[label].cost(binding, neighbours)
            if not isinstance(cost, Rejection):
                return cost
            self.refused.update(((self.labels[label], op_key(source, op)), cost) for op in members)
            return WRONG_PLACE
        if binding.op in STRUCTURAL_OPS and binding.op is not COMPOSITE:
            return 0
        is_kept_off = op_key(source, binding) in self._kept_off_host
        if is_kept_off or self._host_filter(source, binding) is not None:
            return WRONG_PLACE
        if measured is not None:
            return measured
        number = self._numbers.number(binding)
        if number not in self._host_costs:
            self._host_costs[number] = to_units(self._host(*self.sizes.work(binding)).seconds)
        return self._host_costs[number]

    def schedules(self, module: IRModule, before: Collection[OpKey]) -> dict[str, str]:
        """Return the fastest measured schedules of the claimed ops of a module, by placement key.

        Args:
            module: the module with claims.
            before: the ops claimed before the policy.
        """
        found: dict[str, str] = {}
        if not any(costs.has_schedules for costs in self._backends):
            return found
        for source, body in bodies_of(module):
            for binding in body.bindings:
                if binding.codegen not in self.labels or op_key(source, members_of(binding)[0]) in before:
                    continue
                label = self.labels.index(binding.codegen)
                neighbours = self._neighbours_at(source, members_of(binding), label, None)
                name = self._backends[label].schedule(binding, neighbours) if label < len(self._backends) else ""
                if name:
                    found.update((placement_key(op_key(source, op)), name) for op in members_of(binding))
        return found

    def _neighbours_at(
        self, source: str, members: Sequence[Binding], label: int, labels: Mapping[str, int] | None
    ) -> Neighbours:
        """Return the neighbours of an op, or of the first and the last op of a composite."""
        first = self._neighbours.get(op_key(source, members[0]), _NO_SITE)
        before = first.neighbours if labels is None else first.within(labels, label)
        if len(members) == 1:
            return before
        last = self._neighbours.get(op_key(source, members[-1]), _NO_SITE)
        after = last.neighbours if labels is None else last.within(labels, label)
        return Neighbours(before.maker, after.reader)

    def _measured_cost(self, source: str, binding: Binding, label: int) -> int | None:
        """Return the measured cost of an op or composite; ``None`` without any measured op."""
        measured = self._measured[label]
        seconds = [measured.get(placement_key(op_key(source, op))) for op in members_of(binding)]
        found = [value for value in seconds if value is not None]
        return to_units(sum(found)) if found else None

    def moves(self, source: str, value: Var) -> Sequence[Sequence[int]]:
        """Return the cost of moving a value in femtoseconds, by source slot and target slot.

        A move between two devices goes through the host's memory, except for direct copies between devices of one
        backend. A value changes its layout between two backends with other orders of axes; the host has no permuted
        axes. All ops must have been priced before.

        Args:
            source: the original function of the value.
            value: the value.
        """
        nbytes, key = self.sizes.nbytes(value.type), (source, value.name)
        orders = tuple(permuted.get(key, ExpectedOrder()) for permuted in self._orders)
        if (nbytes, orders) not in self._moves:
            labels = range(len(self.labels))
            moves = [
                [0 if leaving == entering else self._move(leaving, entering, nbytes, orders) for entering in labels]
                for leaving in labels
            ]
            self._moves[nbytes, orders] = self.slots.expand(moves, [self._peer_move(label, nbytes) for label in labels])
        return self._moves[nbytes, orders]

    def _move(self, leaving: int, entering: int, nbytes: int, orders: Sequence[ExpectedOrder]) -> int:
        """Return the cost of moving a value from a label to another in femtoseconds."""
        constant, seconds_per_byte = self._border_seconds
        seconds = self._borders[entering].call_seconds + constant + seconds_per_byte * nbytes
        written, read = orders[leaving].written, orders[entering].read
        for label, order in ((leaving, written), (entering, read)):
            border = self._borders[label]
            seconds += nbytes / border.bytes_per_second if border.bytes_per_second else 0.0
            if border.layout_bytes_per_second and order is not None and written != read:
                seconds += nbytes / border.layout_bytes_per_second
        return to_units(seconds)

    def _peer_move(self, label: int, nbytes: int) -> int:
        """Return the cost of moving a value between two devices of a backend in femtoseconds."""
        border, (constant, seconds_per_byte) = self._borders[label], self._border_seconds
        seconds = border.call_seconds + constant + seconds_per_byte * nbytes
        if border.bytes_per_second:
            is_direct = border.peer_bytes_per_second > 0
            seconds += nbytes / border.peer_bytes_per_second if is_direct else 2 * nbytes / border.bytes_per_second
        return to_units(seconds)

    @functools.cached_property
    def _borders(self) -> list[Estimate]:
        return [*(costs.border() for costs in self._backends), self._host(0, 0)]

    def units(self, before: IRModule, claimed: IRModule, label: int) -> dict[OpKey, Unit]:
        """Return the ops of a module taken by a backend, as units, by each member op.

        Args:
            before: the module.
            claimed: the same with claims of that backend.
            label: the backend's label.
        """
        claimed_before = backends_of(before)
        found: dict[OpKey, Unit] = {}
        for source, body in bodies_of(claimed):
            for binding in body.bindings:
                names = tuple(op.results[0].name for op in members_of(binding))
                if binding.codegen is not None and (source, names[0]) not in claimed_before:
                    unit = Unit(names, self.cost(source, binding, label))
                    for name in names:
                        found[source, name] = unit
        return found

    def total(self, module: IRModule) -> Cost:
        """Return the cost of a module with claims: the cost of all items of :class:`Body` at their homes."""
        return sum(self._total_of(source, body) for source, body in bodies_of(module))

    def _total_of(self, source: str, function: Function) -> Cost:
        label_of, host = {name: label for label, name in enumerate(self.labels)}, self.slots.host
        makers: dict[int, tuple[Var, int]] = {id(param): (param, host) for param in function.params}
        labels: dict[str, int] = {}
        entered: dict[int, set[int]] = {}  # by the id of a value: the slots of readers elsewhere
        for binding in function.bindings:
            label = label_of.get(binding.codegen or "", len(self.labels) - 1)
            members = members_of(binding)
            slot = self.slots.slot(label, source, members[-1].results[0].name)
            for op in members:
                labels[op.results[0].name] = label
            for operand in binding.operands:
                if not isinstance(operand, Constant) and makers[id(operand)][1] != slot:
                    entered.setdefault(id(operand), set()).add(slot)
            for result in binding.results:
                makers[id(result)] = (result, slot)
        for returned in function.results:
            if not isinstance(returned, Constant) and makers[id(returned)][1] != host:
                entered.setdefault(id(returned), set()).add(host)
        total = sum(
            self.cost(source, binding, labels[binding.results[0].name], labels) for binding in function.bindings
        )
        for key, targets in entered.items():
            value, leaving = makers[key]
            row = self.moves(source, value)[leaving]
            total += sum(row[entering] for entering in targets)
        return total


class Body:
    """The placement problem of a body.

    The outside world consists of items at the host: an item for each parameter and each result. Ops claimed already
    have a fixed label. Constants are available everywhere.

    Args:
        source: the original function of the body in the module.
        function: the body.
        prices: the costs.
        units: by label, the units each backend would take of the module.

    Attributes:
        source: as given.
        problem: the problem; labels are slots.
        items: the item of each op, by the name of the first result.
    """

    def __init__(self, source: str, function: Function, prices: Prices, units: Sequence[Mapping[OpKey, Unit]]) -> None:
        self.source = source
        self.items: dict[str, int] = {}
        self._prices = prices
        self._host = prices.slots.host
        self._costs: list[list[Cost]] = []
        self._homes: list[int] = []
        self._units = units
        flows = self._flows(function)
        for binding in function.bindings:
            self._set_costs(binding, units)
        self.problem = PlacementProblem(self._costs, self._homes, flows, self._groups(units))

    def labels(self, choice: Mapping[OpKey, str]) -> list[int]:
        """Return the labels of all items with some ops given to backends; others are at home."""
        labels = list(self._homes)
        for name, item in self.items.items():
            backend = choice.get((self.source, name))
            if backend in self._prices.labels:  # others have the module's original claims
                labels[item] = self.slot(name, self._prices.labels.index(backend))
        return labels

    def slot(self, name: str, label: int) -> int:
        """Return the slot of an op on a backend, by the name of the op's first result."""
        unit = self._units[label].get((self.source, name)) if label < len(self._units) else None
        return self._prices.slots.slot(label, self.source, name if unit is None else unit.ops[-1])

    def choice(self, labels: Sequence[int]) -> dict[OpKey, str]:
        """Return the backends of the ops given to a backend by labels."""
        named_labels = ((name, labels[item]) for name, item in self.items.items())
        names, slots = self._prices.labels, self._prices.slots
        return {(self.source, name): names[slots.label(label)] for name, label in named_labels if label != self._host}

    def label_name(self, label: int) -> str:
        """Return a slot for messages."""
        if label == self._host:
            return "the host"
        slots = self._prices.slots
        device = f" on device {slots.number(label)}" if slots.has_numbers else ""
        return f"`{self._prices.labels[slots.label(label)]}`{device}"

    def _add_item(self, home: int) -> int:
        self._costs.append([math.inf] * (self._host + 1))
        self._costs[-1][home] = 0
        self._homes.append(home)
        return len(self._homes) - 1

    def _flows(self, function: Function) -> list[Flow]:
        """Make the items, parameters first and results last, and return the flows between items."""
        producers = {id(param): self._add_item(self._host) for param in function.params}
        values = {id(param): param for param in function.params}
        readers: dict[int, dict[int, None]] = {id(param): {} for param in function.params}
        for binding in function.bindings:
            claim = binding.codegen
            backend = self._prices.labels.index(claim) if claim in self._prices.labels else len(self._prices.labels) - 1
            last = members_of(binding)[-1].results[0].name
            item = self._add_item(self._prices.slots.slot(backend, self.source, last))
            self.items[binding.results[0].name] = item
            for operand in binding.operands:
                if not isinstance(operand, Constant):
                    readers[id(operand)][item] = None
            for result in binding.results:
                producers[id(result)], values[id(result)], readers[id(result)] = item, result, {}
        for returned in function.results:
            if not isinstance(returned, Constant):
                readers[id(returned)][self._add_item(self._host)] = None
        return [self._flow(values[key], producers[key], tuple(items)) for key, items in readers.items() if items]

    def _flow(self, value: Var, producer: int, readers: tuple[int, ...]) -> Flow:
        return Flow(producer, readers, self._prices.moves(self.source, value))

    def _set_costs(self, binding: Binding, units: Sequence[Mapping[OpKey, Unit]]) -> None:
        name = binding.results[0].name
        item = self.items[name]
        home = self._homes[item]
        self._costs[item][home] = self._prices.cost(self.source, binding, self._prices.slots.label(home))
        for label, backend_units in enumerate(units if binding.codegen is None else ()):
            unit = backend_units.get((self.source, name))
            if unit is not None:
                share, rest = divmod(unit.cost, len(unit.ops))
                self._costs[item][self.slot(name, label)] = share + (rest if name == unit.ops[0] else 0)

    def _groups(self, units: Sequence[Mapping[OpKey, Unit]]) -> list[dict[int, tuple[int, ...]]]:
        groups: list[dict[int, tuple[int, ...]]] = [{} for _ in range(len(self._prices.slots))]
        for label, backend_units in enumerate(units):
            for name, item in self.items.items():
                unit = backend_units.get((self.source, name))
                if unit is not None and len(unit.ops) > 1:
                    groups[self.slot(name, label)][item] = tuple(self.items[op] for op in unit.ops)
        return groups
