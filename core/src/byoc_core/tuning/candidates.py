"""Candidates: a model compiled in one placement, ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from byoc_core.artifact import Executable
from byoc_core.partitioning.policies import PlacedOps, placement_key
from byoc_core.reporting.shares import HOST_NAME, VIEW, items_of
from byoc_core.runtime.module import NDArray
from byoc_core.tuning.race import Runner
from byoc_core.vm import VirtualMachine

__all__ = ["Candidate", "PlacementKey", "placement_of", "placement_tuple", "schedules_of"]

PlacementKey = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""A placement and its schedules as a key."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A compiled placement.

    Attributes:
        name: for tables and messages.
        executable: the model.
        ops: the backend of each op (:func:`placement_of`).
        run: a call on the inputs.
        results: of a call.
        first_seconds: of the first call.
        schedules: the chosen schedules, by op.
    """

    name: str
    executable: Executable
    ops: Mapping[str, str]
    run: Runner
    results: tuple[NDArray, ...]
    first_seconds: float
    schedules: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        executable: Executable,
        function: str,
        inputs: Mapping[str, object],
        num_threads: int,
        schedules: Mapping[str, str] | None = None,
    ) -> Candidate:
        """Return the candidate of an executable, after a first call."""
        call = VirtualMachine(executable, num_threads=num_threads)[function]
        start = perf_counter()
        returned = call.run(inputs)  # checks the names
        first_seconds = perf_counter() - start
        arrays = [inputs[param.name] for param in call.params]
        results = returned if isinstance(returned, tuple) else (returned,)
        ops = placement_of(executable.report_data)
        return cls(name, executable, ops, lambda: call(*arrays), results, first_seconds, schedules or {})

    @property
    def key(self) -> PlacementKey:
        """The placement and the schedules as a key."""
        return placement_tuple(self.ops, self.schedules)

    def is_made_by(self, policy: PlacedOps) -> bool:
        """Return whether a policy leads to this placement with these schedules."""
        return placement_tuple(policy.ops, policy.schedules) == self.key


def placement_tuple(ops: Mapping[str, str], schedules: Mapping[str, str]) -> PlacementKey:
    """Return a placement and schedules as a key."""
    return tuple(sorted(ops.items())), tuple(sorted(schedules.items()))


def schedules_of(policy: object) -> Mapping[str, str]:
    """Return the schedules chosen by a policy."""
    return policy.schedules if isinstance(policy, PlacedOps) else {}


def placement_of(report: Mapping[str, Any]) -> dict[str, str]:
    """Return the backend of each op of an offload report; views follow the op with their operand."""
    outcomes: dict[tuple[str, str], str] = {}
    placement: dict[str, str] = {}
    for row in items_of(report.get("ops")):
        function, name, backend = str(row["function"]), str(row["name"]), str(row["outcome"])
        if backend == VIEW:
            sources = (outcomes.get((function, source)) for source in row.get("inputs") or ())
            backend = next(filter(None, sources), HOST_NAME)
        for output in row.get("outputs") or [name]:
            outcomes[function, output] = backend
        placement[placement_key((function, name))] = backend
    return placement
