"""The outcome of tuning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from byoc_core.driver.lock import Lock
from byoc_core.profiling import Profile
from byoc_core.tuning.table import Task

if TYPE_CHECKING:
    from byoc_core.artifact import Executable

__all__ = ["Tuning"]


@dataclass(frozen=True)
class Tuning:
    """The outcome of tuning.

    Attributes:
        lock: the fastest placement.
        executable: the model in this placement.
        profile: the times of its regions and parts.
        tasks: the kinds of kernels in the placement, most time first.
        trials: the measured placements with their seconds, in the order of measurement.
        is_complete: whether the search ended before the budget and without an interruption.
    """

    lock: Lock
    executable: Executable
    profile: Profile
    tasks: tuple[Task, ...]
    trials: tuple[tuple[str, float], ...]
    is_complete: bool

    def __str__(self) -> str:
        lines = [f"{len(self.trials)} placements measured; fastest: {self.lock.seconds * 1e3:.3f} ms"]
        lines += [
            f"  {seconds * 1e3:9.3f} ms  {name}" for name, seconds in sorted(self.trials, key=lambda t: t[1])[:12]
        ]
        return "\n".join([*lines, "", str(self.profile)])
