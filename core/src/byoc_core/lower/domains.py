"""The memory domain of each value of a function, and the copies between domains made at the definition of a value.

A value's home is the domain of its producer: what flows between calls of one device stays there. A value is copied
once for each other domain with readers. Reshaping ops follow their operand; other rearranging ops work in the host's
memory. Results of ``if`` and carried values of ``loop`` live where branches or rounds make the values. The host reads
and writes a host-accessible domain in place, so a value of the host read on the device is made there.

A state's old and new value live in one domain (:mod:`byoc_core.lower.state_domains`). An op appending rows to a state
follows the state: only the new rows are written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from byoc_core.ir.module import Binding, Function, Value, Var
from byoc_core.ir.states import state_values, states_of
from byoc_core.ir.structural import CALL_DPS_PACKED, IF, LOOP
from byoc_core.lower.loop_values import is_unchanged
from byoc_core.lower.state_domains import choose_state_domains
from byoc_core.lower.tables import ProgramTables
from byoc_core.opset.opdef import Trait
from byoc_core.vm.program import HOST

__all__ = ["ValueDomains", "find_domains"]

_MOST_VISITS = 50_000
"""Visits of bindings for trying all choices of domains of states: less than a second."""


@dataclass(frozen=True, slots=True)
class ValueDomains:
    """The domains of a function's values.

    Attributes:
        homes: the domain of each value outside the host's memory.
        copies: the domains with a copy of a value made at the definition; a parameter of a branch stands for its
            operand, and has its copies made at the start of the branch.
        states: the domain of each state of the function; empty if all are the host's.
    """

    homes: Mapping[Var, int] = field(default_factory=dict)
    copies: Mapping[Var, tuple[int, ...]] = field(default_factory=dict)
    states: tuple[int, ...] = ()

    def home(self, value: Var) -> int:
        """Return the domain of a value."""
        return self.homes.get(value, HOST)


def find_domains(function: Function, tables: ProgramTables) -> ValueDomains:
    """Return the domains of a function's values.

    Cost: linear in the ops without devices and without loops; a loop's body is visited again for each carried value
    changing its domain, at most twice for each. With states, once more for each choice of domains tried.
    """
    symbols = [str(binding.attrs["symbol"]) for binding in function.walk() if binding.op is CALL_DPS_PACKED]
    candidates = sorted({domain for symbol in symbols if (domain := tables.domain(symbol)) != HOST})
    if not candidates:
        return ValueDomains()
    pairs = [(state.axis, *state_values(function, state)) for state in states_of(function)]
    olds = {new: old for axis, old, new in pairs if axis is not None and isinstance(new, Var)}
    appends = {binding.results[0] for binding in function.bindings if _is_append(binding, olds)}
    outputs = [function.output_names.index(state.output) for state in states_of(function)]

    def domains_of(states: tuple[int, ...]) -> ValueDomains:
        params = {old: domain for (_, old, _), domain in zip(pairs, states, strict=True) if domain != HOST}
        homes = _Homes(tables, appends, params)
        homes.assign(function)
        copies = _Copies(tables, appends, homes.found)
        copies.read_function(function, dict(zip(outputs, states, strict=True)))
        if any(domain.host_accessible for domain in tables.domains):
            _move_to_readers(function, tables, homes.found, copies.found)
        found = {var: tuple(sorted(domains)) for var, domains in copies.found.items()}
        return ValueDomains(homes.found, found, states if any(states) else ())

    def count_copies(states: tuple[int, ...]) -> int:
        return sum(map(len, domains_of(states).copies.values()))

    if not pairs:
        return domains_of(())
    num_counts = _MOST_VISITS // len(function.bindings)
    return domains_of(choose_state_domains(len(pairs), candidates, count_copies, num_counts))


def _is_append(binding: Binding, olds: Mapping[Var, Var]) -> bool:
    """Return whether an op joins the old value of a state and new rows to the new value."""
    rule = binding.op.view
    return rule is not None and rule.joins and olds.get(binding.results[0]) is binding.operands[0]


def _follows_operand(binding: Binding) -> bool:
    """Return whether the result of an op is its operand in another shape, without moved elements."""
    rule = binding.op.view
    return rule is not None and rule.is_whole and not rule.joins and binding.op.has_trait(Trait.RESHAPING)


def _move_to_readers(
    function: Function, tables: ProgramTables, homes: dict[Var, int], copies: dict[Var, set[int]]
) -> None:
    """Let functions of the host make a value in the host-accessible domain of its readers, in place of a copy."""
    for binding in function.walk():
        if binding.op is CALL_DPS_PACKED and tables.domain(str(binding.attrs["symbol"])) == HOST:
            for var in binding.results:
                readers = copies.get(var, set())
                if len(readers) == 1 and all(map(tables.is_visible, readers)):
                    (homes[var],) = copies.pop(var)


class _Homes:
    """A search for the home of each value; values of the host's memory are left out."""

    def __init__(self, tables: ProgramTables, appends: Collection[Var], params: Mapping[Var, int]) -> None:
        self._tables = tables
        self._appends = appends
        self.found: dict[Var, int] = dict(params)

    def assign(self, body: Function) -> None:
        for binding in body.bindings:
            if binding.op is IF:
                self._place_if(binding)
            elif binding.op is LOOP:
                self._place_loop(binding)
            else:
                home = HOST
                if binding.op is CALL_DPS_PACKED:
                    home = self._tables.domain(str(binding.attrs["symbol"]))
                elif _follows_operand(binding) or binding.results[0] in self._appends:
                    home = self._home(binding.operands[0])
                for var in binding.results:
                    self._set(var, home)

    def _home(self, value: Value) -> int:
        return self.found.get(value, HOST) if isinstance(value, Var) else HOST

    def _set(self, var: Var, home: int) -> None:
        if home == HOST:
            self.found.pop(var, None)
        else:
            self.found[var] = home

    def _place_if(self, binding: Binding) -> None:
        for region in binding.regions:
            for param, operand in zip(region.params, binding.operands[1:], strict=True):
                self._set(param, self._home(operand))
            self.assign(region)
        for index, var in enumerate(binding.results):
            # A constant has a copy in every domain.
            values = [region.results[index] for region in binding.regions]
            homes = {self._home(value) for value in values if isinstance(value, Var)}
            self._set(var, homes.pop() if len(homes) == 1 else HOST)

    def _place_loop(self, binding: Binding) -> None:
        (body,) = binding.regions
        operands = binding.operands[2:]
        # Values of a changing size are cloned, in the host's memory.
        fixed = {
            index
            for index, (var, operand) in enumerate(zip(binding.results, operands, strict=True))
            if var.type != operand.type
        }
        homes = [HOST if index in fixed else self._home(operand) for index, operand in enumerate(operands)]
        moved: set[int] = set()
        while True:
            for param, home in zip(body.params[1:], homes, strict=True):
                self._set(param, home)
            self.assign(body)
            found = [
                home if index in fixed or is_unchanged(body, index) or not isinstance(value, Var) else self._home(value)
                for index, (home, value) in enumerate(zip(homes, body.results[1:], strict=True))
            ]
            changed = {index for index, (old, new) in enumerate(zip(homes, found, strict=True)) if old != new}
            if not changed:
                break
            # A value moving twice has no home of its own on a device.
            fixed |= changed & moved
            moved |= changed
            homes = [HOST if index in fixed and index in changed else home for index, home in enumerate(found)]
        for var, home in zip(binding.results, homes, strict=True):
            self._set(var, home)


class _Copies:
    """A search for the domains reading each value, at the level of the value's definition.

    Attributes:
        found: the other domains reading a value in the body of its definition, or in a loop below: rounds share the
            copy made before the loop.
    """

    def __init__(self, tables: ProgramTables, appends: Collection[Var], homes: Mapping[Var, int]) -> None:
        self._tables = tables
        self._appends = appends
        self._homes = homes
        self.found: dict[Var, set[int]] = {}
        # The domains of all readers, including readers in branches.
        self._all: dict[Var, set[int]] = {}

    def read_function(self, function: Function, states: Mapping[int, int]) -> None:
        """Read a function; ``states`` has the domains of results kept as states, by index."""
        self._read_body(function)
        for index, value in enumerate(function.results):
            self._want(value, states.get(index, HOST))

    def _read_body(self, body: Function) -> None:
        for binding in body.bindings:
            if binding.op is IF:
                self._read_if(binding)
            elif binding.op is LOOP:
                self._read_loop(binding)
            else:
                domain = HOST
                if binding.op is CALL_DPS_PACKED:
                    domain = self._tables.domain(str(binding.attrs["symbol"]))
                elif _follows_operand(binding) or binding.results[0] in self._appends:
                    domain = self._homes.get(binding.results[0], HOST)
                for operand in binding.operands:
                    self._want(operand, domain)

    def _read_if(self, binding: Binding) -> None:
        self._want(binding.operands[0], HOST)
        for region in binding.regions:
            self._read_body(region)
            self._want_results(region, region.results, binding.results)
            for param, operand in zip(region.params, binding.operands[1:], strict=True):
                if isinstance(operand, Var):
                    self._all.setdefault(operand, set()).update(self._all.get(param, ()))

    def _read_loop(self, binding: Binding) -> None:
        (body,) = binding.regions
        self._want(binding.operands[0], HOST)
        self._want(binding.operands[1], HOST)
        self._read_body(body)
        self._want(body.results[0], HOST)
        self._want_results(body, body.results[1:], binding.results)
        for index, operand in enumerate(binding.operands[2:]):
            if binding.results[index].type != operand.type:
                self._want(operand, HOST)
            elif is_unchanged(body, index):
                for domain in self._all.get(body.params[index + 1], ()):
                    self._want(operand, domain)

    def _want_results(self, body: Function, values: tuple[Value, ...], results: tuple[Var, ...]) -> None:
        """Let a value made in a body be copied straight into the place of a result of the surrounding op."""
        local = {var for binding in body.bindings for var in binding.results}
        for value, result in zip(values, results, strict=True):
            if value in local:
                self._want(value, self._homes.get(result, HOST))

    def _want(self, value: Value, domain: int) -> None:
        if not isinstance(value, Var):
            return
        home = self._homes.get(value, HOST)
        if home == domain or (domain == HOST and self._tables.is_visible(home)):
            return
        # Without direct copies, a copy between two devices goes through the host's memory.
        domains = {domain} if self._tables.copies_directly(home, domain) else {domain, HOST}
        self.found.setdefault(value, set()).update(domains)
        self._all.setdefault(value, set()).update(domains)
