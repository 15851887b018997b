"""How many processors this process may use: for its threads, and for the compilers that it starts."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["count_cpus"]

_ROOT = Path("/sys/fs/cgroup")


def count_cpus() -> int:
    """Gives the processors of the process's affinity mask, or what its control groups pay for, if that is less.

    A quota of part of a processor counts for nothing, but one processor there always is: more threads than the quota
    pays for are stopped for the rest of each period, all at once.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for group in _control_groups() if (quota := _quota(group)) is not None]
    return max(1, min([allowed, *(int(quota) for quota in quotas)]))


def _control_groups(listing: Path = Path("/proc/self/cgroup"), root: Path = _ROOT) -> list[Path]:
    """Gives the folders of the groups that may limit this process's time: its own and those around it, 1 and 2 alike.

    In a container the path inside ``/proc`` is often that of the machine outside; then the root's own limit counts.
    """
    try:
        lines = listing.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root / controllers.removeprefix("name=") if controllers else root
        group = base / path.lstrip("/")
        folders += [folder for folder in (group, *group.parents) if folder.is_relative_to(base)]
    return folders


def _quota(group: Path) -> float | None:
    """Gives the processors that a group may keep busy; ``None`` where nothing limits it."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            words = [word for name in names for word in (group / name).read_text(encoding="ascii").split()]
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):  # not there, or "max"
            continue
        if quota > 0 and period > 0:
            return quota / period
    return None
