"""The table of tasks of a tuned model: each kind of kernel once, with its weight in a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from byoc_core.profiling import PartProfile, Profile

__all__ = ["Task", "tasks_of"]


@dataclass(frozen=True, slots=True)
class Task:
    """Parts of regions with equal ops and equal work.

    Attributes:
        name: the ops.
        backend: of the parts.
        flops: operations of a part.
        weight: the number of such parts in a call.
        seconds: of a part, the mean.
        trials: the number of backends measured on the ops of the first part.
        peak_share: the share of the machine's peak operations per second; 0 if unknown.
    """

    name: str
    backend: str
    flops: float
    weight: float
    seconds: float
    trials: int
    peak_share: float


def tasks_of(found: Profile, measured: Mapping[str, Mapping[str, float]]) -> list[Task]:
    """Return the tasks of a profile, most time first.

    Args:
        found: the profile.
        measured: the measured ops of each backend, by ``"FUNCTION/RESULT"``.
    """
    groups: dict[tuple[str, str, float, float], list[PartProfile]] = {}
    for region in found.regions:
        for part in region.parts:
            name = " ".join(op.op for op in part.ops) or part.name
            calls = part.calls or 1.0
            key = (name, region.backend, part.flops / calls, part.nbytes / calls)
            groups.setdefault(key, []).append(part)
    peak = found.peaks.flops if found.peaks is not None else 0.0
    tasks = []
    for (name, backend, flops, _), parts in groups.items():
        weight = sum(part.calls for part in parts)
        seconds = sum(part.seconds for part in parts) / weight if weight else 0.0
        values = {op.value for op in parts[0].ops}
        trials = sum(any(key.partition("/")[2] in values for key in ops) for ops in measured.values())
        share = flops / seconds / peak if peak and seconds else 0.0
        tasks.append(Task(name, backend, flops, weight, seconds, trials, share))
    return sorted(tasks, key=lambda task: -task.seconds * task.weight)
