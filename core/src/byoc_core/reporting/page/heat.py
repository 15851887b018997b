"""Measured times on the page of the report: tables of regions and parts, and a time for each op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, NamedTuple

from byoc_core.printable import to_printable

__all__ = ["Heat", "TimedOp", "TimedRow", "add_heat"]


class TimedOp(NamedTuple):
    """An op of a part, as named in the report.

    Attributes:
        op: the op, such as ``nn.conv2d``.
        name: the name of the op in the report.
        location: the origin; empty if unknown.
    """

    op: str
    name: str
    location: str = ""


class TimedRow(NamedTuple):
    """A region or a part, measured.

    Attributes:
        name: of the region in the report, or of the part.
        backend: of the region.
        calls: in a call of the model.
        seconds: in a call of the model.
        flops: operations in a call of the model; 0 if unknown.
        nbytes: bytes in a call of the model; 0 if unknown.
        roofline: the least possible seconds over the seconds; ``None`` if unknown.
        region: for a part, the position of the region in the table of regions.
        ops: the ops computed by a part.
    """

    name: str
    backend: str
    calls: float
    seconds: float
    flops: float = 0
    nbytes: float = 0
    roofline: float | None = None
    region: int = -1
    ops: Sequence[TimedOp] = ()


@dataclass(frozen=True, slots=True)
class Heat:
    """The times of a call of a model.

    Attributes:
        headline: the measurement, in a few lines.
        text: the measurement in full, for readers without scripts.
        seconds: of a call.
        regions: the table of regions.
        parts: the table of parts.
    """

    headline: str
    text: str
    seconds: float
    regions: Sequence[TimedRow]
    parts: Sequence[TimedRow]


def add_heat(heat: Heat, rows: Sequence[Mapping[str, Any]], nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the tables for the script of the page, and add times to the nodes of the graph.

    A node gets ``parts`` (positions of the op's parts in the table), ``measured`` (the position of the op's region;
    -1 if the region did not run) and ``seconds``: the sum over the parts; the seconds of the region if no part of the
    region names its ops; else ``None``.

    Args:
        heat: the times.
        rows: the ops of the report.
        nodes: the node of each op. Of several ops with the same region and names, the first gets the parts.

    Cost: linear.
    """
    op_indices: dict[tuple[str, str, str], int] = {}
    region_rows = {region.name: position for position, region in enumerate(heat.regions)}
    for position, (row, node) in enumerate(zip(rows, nodes, strict=True)):
        region = str(row.get("region") or "")
        op_indices.setdefault((region, str(row.get("op")), str(row.get("name"))), position)
        node.update(parts=[], measured=region_rows.get(region, -1) if region else -1, seconds=None)
    parts, named = [], set()
    for position, part in enumerate(heat.parts):
        region = heat.regions[part.region].name if 0 <= part.region < len(heat.regions) else ""
        ops = []
        for op in part.ops:
            op_index = op_indices.get((region, op.op, op.name), -1)
            if op_index >= 0:
                named.add(part.region)
                if position not in nodes[op_index]["parts"][-1:]:
                    nodes[op_index]["parts"].append(position)
            ops.append(
                {"op": to_printable(op.op), "name": to_printable(op.name), "location": to_printable(op.location)}
                | {"index": op_index}
            )
        parts.append({**_plain(part), "region": to_printable(region), "ops": ops})
    for node in nodes:
        if node["parts"]:
            node["seconds"] = sum(parts[position]["seconds"] for position in node["parts"])
        elif node["measured"] >= 0 and node["measured"] not in named:
            node["seconds"] = _number(heat.regions[node["measured"]].seconds)
    return {"seconds": _number(heat.seconds), "regions": [_plain(region) for region in heat.regions], "parts": parts}


def _plain(row: TimedRow) -> dict[str, Any]:
    return {
        "name": to_printable(row.name),
        "backend": to_printable(row.backend),
        "calls": _number(row.calls),
        "seconds": _number(row.seconds),
        "flops": _number(row.flops),
        "nbytes": _number(row.nbytes),
        "roofline": row.roofline if row.roofline is not None and isfinite(row.roofline) else None,
    }


def _number(value: float) -> float:
    return value if isfinite(value) else 0
