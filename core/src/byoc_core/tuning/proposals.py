"""New placements: from measured times of single ops, and by moving regions, borders and ops of a placement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from byoc_core.partitioning.policies import placement_key
from byoc_core.profiling import Peaks, Profile
from byoc_core.reporting.shares import HOST_NAME, items_of
from byoc_core.tuning.borders import Border, sized_count

__all__ = ["FIRST_BORDERS", "Move", "measured_ops", "moved_borders", "moved_ops", "moved_regions", "spread_ops"]

_PEAKS = Peaks(5e10, 1e10)
"""Operations and bytes per second of a machine without figures: only the ratio counts."""

FIRST_BORDERS: tuple[Border, ...] = ((5e-7, 0.0), (1e-6, 2e-10), (3e-6, 6e-10))
"""Borders to try before any is learned: calls alone; copies of values at 5 GB/s; with changes of layouts on both sides.
"""


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


def spread_ops(found: Profile, backend: str) -> dict[str, float]:
    """Return the seconds of ops of a backend's regions without times of parts, by placement key.

    The time of a region is shared by the ops in the ratio of their least times on the machine: operations or bytes,
    whichever takes longer. Such times are less certain than times of parts.

    Args:
        found: a profile of the backend alone.
        backend: the backend.
    """
    members: dict[str, list[Mapping[str, Any]]] = {}
    for row in items_of(found.report.get("ops")):
        members.setdefault(str(row.get("region")), []).append(row)
    peaks = found.peaks or _PEAKS
    seconds: dict[str, float] = {}
    for region in found.regions:
        rows = members.get(region.name, [])
        names = {str(row.get("name")) for row in rows}
        if region.backend != backend or any(op.value in names for part in region.parts for op in part.ops):
            continue
        weights = {_placement_key(row): _least_seconds(row, peaks, found.sizes) for row in rows}
        total = sum(weights.values())
        for key, weight in weights.items():
            seconds[key] = region.seconds * (weight / total if total else 1 / len(weights))
    return seconds


def _placement_key(row: Mapping[str, Any]) -> str:
    return placement_key((str(row["function"]), str(row["name"])))


def _least_seconds(row: Mapping[str, Any], peaks: Peaks, sizes: Mapping[str, int]) -> float:
    flops, nbytes_read, nbytes_written = (
        sized_count(row.get(key), sizes) for key in ("flops", "nbytes_read", "nbytes_written")
    )
    return peaks.fastest_seconds(flops, nbytes_read + nbytes_written)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


@dataclass(frozen=True)
class Move:
    """A placement with a region or an op given to another backend.

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


def moved_borders(
    report: Mapping[str, Any],
    placement: Mapping[str, str],
    able: Mapping[str, Mapping[str, str]],
    sizes: Mapping[str, int],
) -> Iterator[Move]:
    """Yield placements with one border each moved over an op: the op goes to the backend on the other side.

    Borders of large values come first. Ops in regions of their own are left to :func:`moved_regions`.

    Args:
        report: the offload report of the placement.
        placement: the backend of each op.
        able: the placement of each backend alone: only ops taken there may move to the backend.
        sizes: the sizes of symbols.
    """
    rows = list(items_of(report.get("ops")))
    region_sizes = Counter(row.get("region") for row in rows)
    makers: dict[tuple[str, str], Mapping[str, Any]] = {}
    moves: dict[tuple[str, str], int] = {}
    for row in rows:
        function = str(row["function"])
        for source in row.get("inputs") or ():
            maker = makers.get((function, str(source)))
            if maker is None:
                continue
            nbytes = sized_count(maker.get("nbytes_written"), sizes)
            for moved, other in ((row, maker), (maker, row)):
                op, backend = _placement_key(moved), placement.get(_placement_key(other), HOST_NAME)
                is_alone = not moved.get("region") or region_sizes[moved["region"]] == 1
                if backend == placement.get(op) or is_alone or able.get(backend, {}).get(op) != backend:
                    continue
                moves[op, backend] = max(nbytes, moves.get((op, backend), 0))
        makers.update(((function, str(output)), row) for output in row.get("outputs") or [row["name"]])
    for op, backend in sorted(moves, key=lambda move: -moves[move]):
        yield Move(f"{op} across the border to {backend}", {**placement, op: backend})


def moved_ops(
    report: Mapping[str, Any],
    placement: Mapping[str, str],
    uncertain: Mapping[str, Mapping[str, float]],
    able: Mapping[str, Mapping[str, str]],
) -> Iterator[Move]:
    """Yield placements with one op each given to another backend, slow ops first, where a time is uncertain.

    Ops in regions of their own are left to :func:`moved_regions`.

    Args:
        report: the offload report of the placement.
        placement: the backend of each op.
        uncertain: by backend, the seconds of ops known from whole regions only (:func:`spread_ops`).
        able: the placement of each backend alone: only ops taken there may move to the backend.
    """
    rows = [row for row in items_of(report.get("ops")) if row.get("region")]
    sizes = Counter(row["region"] for row in rows)
    ops = [_placement_key(row) for row in rows if sizes[row["region"]] > 1]
    none: Mapping[str, float] = {}

    def known_seconds(op: str) -> float:
        return max((seconds[op] for seconds in uncertain.values() if op in seconds), default=0.0)

    for op in sorted(ops, key=lambda op: -known_seconds(op)):
        current = placement.get(op, HOST_NAME)
        for backend, alone in able.items():
            is_uncertain = op in uncertain.get(current, none) or op in uncertain.get(backend, none)
            if backend != current and alone.get(op) == backend and is_uncertain:
                yield Move(f"{op} to {backend}", {**placement, op: backend})
