"""New placements: from measured times of single ops, and by moving regions of a placement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from byoc_core.partitioning.policies import placement_key
from byoc_core.profiling import Profile
from byoc_core.reporting.shares import HOST_NAME, items_of
from byoc_core.tuning.borders import Border

__all__ = ["FIRST_BORDERS", "Move", "measured_ops", "moved_regions"]

FIRST_BORDERS: tuple[Border, ...] = ((1e-6, 2e-10), (3e-6, 6e-10))
"""Borders to try before any is learned: values are copied, at 5 GB/s; with changes of layouts on both sides."""


def measured_ops(found: Profile, backend: str) -> dict[str, float]:
    """Return the seconds of the ops of a backend in a call, by placement key, from a profile of the backend alone.

    The time of a part belongs to the ops of the part, by FLOPs: ops computed together would take about this share in
    other parts. The time of a region outside of parts with ops, for conversions and the call, belongs to all ops by
    their time.
    """
    functions = {
        (str(row.get("region")), str(row.get("name"))): str(row.get("function"))
        for row in items_of(found.report.get("ops"))
    }
    flops = {
        (str(row.get("region")), str(row.get("name"))): _number(row.get("flops"))
        for row in items_of(found.report.get("ops"))
    }
    seconds: dict[str, float] = {}
    for region in found.regions:
        if region.backend != backend:
            continue
        own: dict[str, float] = {}
        for part in region.parts:
            keys = [(region.name, op.value) for op in part.ops if (region.name, op.value) in functions]
            if not keys:
                continue
            total_flops = sum(flops[key] for key in keys)
            for key in keys:
                name = placement_key((functions[key], key[1]))
                share = flops[key] / total_flops if total_flops else 1 / len(keys)
                own[name] = own.get(name, 0.0) + part.seconds * share
        total = sum(own.values())
        if total:
            own = {name: value * region.seconds / total for name, value in own.items()}
        seconds.update(own)
    return seconds


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class Move:
    """A placement with a region given to another backend.

    Attributes:
        name: for messages.
        ops: the placement.
    """

    name: str
    ops: Mapping[str, str]


def moved_regions(
    report: Mapping[str, Any],
    placement: Mapping[str, str],
    seconds: Mapping[str, float],
    able: Mapping[str, Mapping[str, str]],
) -> Iterator[Move]:
    """Yield placements with one region each given to another backend, slow regions first.

    Args:
        report: the offload report of the placement.
        placement: the backend of each op.
        seconds: the seconds of regions, by name.
        able: the placement of each backend alone: only ops taken there may move to the backend.
    """
    members: dict[str, list[str]] = {}
    for row in items_of(report.get("ops")):
        if row.get("region"):
            members.setdefault(str(row["region"]), []).append(placement_key((str(row["function"]), str(row["name"]))))
    names = sorted(members, key=lambda name: -seconds.get(name, 0.0))
    for region in names:
        current = placement.get(members[region][0], HOST_NAME)
        for backend, alone in able.items():
            moving = [op for op in members[region] if alone.get(op) == backend]
            if backend != current and moving:
                yield Move(f"{region} to {backend}", {**placement, **dict.fromkeys(moving, backend)})
