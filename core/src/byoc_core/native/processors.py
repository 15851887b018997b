"""The number of processors available to this process, for threads and for compiler processes."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["count_cpus"]

_ROOT = Path("/sys/fs/cgroup")


def count_cpus() -> int:
    """Return the size of the process's affinity mask, or the CPU quota of the control groups if that is less.

    A quota is rounded down to whole processors, but the result is at least one. With more threads than the quota
    allows, all threads are stopped together for the rest of each period.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for group in _control_groups() if (quota := _quota(group)) is not None]
    return max(1, min([allowed, *(int(quota) for quota in quotas)]))


def _control_groups(listing: Path = Path("/proc/self/cgroup"), root: Path = _ROOT) -> list[Path]:
    """Return the folders of the control groups with a possible time limit: the own group and all parents, v1 and v2.

    In a container the path inside ``/proc`` is often the path on the machine outside; then the root's limit counts.
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
    """Return the number of processors that a group may keep busy; ``None`` without a limit."""
    for names in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            words = [word for name in names for word in (group / name).read_text(encoding="ascii").split()]
            quota, period = int(words[0]), int(words[1])
        except (OSError, ValueError, IndexError):  # missing, or "max"
            continue
        if quota > 0 and period > 0:
            return quota / period
    return None
