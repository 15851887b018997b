"""The table of tasks of a tuned model: each kind of kernel once, with its weight in a call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

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
        trials: the number of backends and of schedules measured on the ops of the first part.
        peak_share: the share of the machine's peak operations per second; 0 if unknown.
        schedule: the schedule chosen for the ops; empty for the choice of the backend.
    """

    name: str
    backend: str
    flops: float
    weight: float
    seconds: float
    trials: int
    peak_share: float
    schedule: str = ""


def tasks_of(
    found: Profile,
    measured: Mapping[str, Mapping[str, float]],
    schedules: Mapping[str, str] = MappingProxyType({}),
    schedule_trials: Mapping[str, int] = MappingProxyType({}),
) -> list[Task]:
    """Return the tasks of a profile, most time first.

    Args:
        found: the profile.
        measured: the measured ops of each backend, by ``"FUNCTION/RESULT"``.
        schedules: the schedules chosen for ops, by the same names.
        schedule_trials: the numbers of schedules tried for ops, by the same names.
    """
    by_result = {key.partition("/")[2]: name for key, name in schedules.items()}
    trials_by_result = {key.partition("/")[2]: count for key, count in schedule_trials.items()}
    groups: dict[tuple[str, str, float, float, str], list[PartProfile]] = {}
    for region in found.regions:
        for part in region.parts:
            name = " ".join(op.op for op in part.ops) or part.name
            calls = part.calls or 1.0
            schedule = next((by_result[op.value] for op in part.ops if op.value in by_result), "")
            key = (name, region.backend, part.flops / calls, part.nbytes / calls, schedule)
            groups.setdefault(key, []).append(part)
    peak = found.peaks.flops if found.peaks is not None else 0.0
    tasks = []
    for (name, backend, flops, _, schedule), parts in groups.items():
        weight = sum(part.calls for part in parts)
        seconds = sum(part.seconds for part in parts) / weight if weight else 0.0
        values = {op.value for op in parts[0].ops}
        trials = sum(any(key.partition("/")[2] in values for key in ops) for ops in measured.values())
        trials += max((trials_by_result.get(value, 0) for value in values), default=0)
        share = flops / seconds / peak if peak and seconds else 0.0
        tasks.append(Task(name, backend, flops, weight, seconds, trials, share, schedule))
    return sorted(tasks, key=lambda task: -task.seconds * task.weight)
