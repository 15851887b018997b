"""Candidates: a model compiled in one placement, ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from byoc_core.artifact import Executable
from byoc_core.partitioning.policies import placement_key
from byoc_core.reporting.shares import HOST_NAME, VIEW, items_of
from byoc_core.runtime.module import NDArray
from byoc_core.tuning.race import Runner
from byoc_core.vm import VirtualMachine

__all__ = ["Candidate", "placement_of"]


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
    """

    name: str
    executable: Executable
    ops: Mapping[str, str]
    run: Runner
    results: tuple[NDArray, ...]
    first_seconds: float

    @classmethod
    def of(
        cls, name: str, executable: Executable, function: str, inputs: Mapping[str, object], num_threads: int
    ) -> Candidate:
        """Return the candidate of an executable, after a first call."""
        call = VirtualMachine(executable, num_threads=num_threads)[function]
        start = perf_counter()
        returned = call.run(inputs)  # checks the names
        first_seconds = perf_counter() - start
        arrays = [inputs[param.name] for param in call.params]
        results = returned if isinstance(returned, tuple) else (returned,)
        ops = placement_of(executable.report_data)
        return cls(name, executable, ops, lambda: call(*arrays), results, first_seconds)


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
