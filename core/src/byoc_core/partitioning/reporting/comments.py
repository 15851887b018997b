"""Comments for the printed IR of a partitioned module: the backend of each op, and reasons against others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from byoc_core.ir import CALL, CALL_DPS_PACKED, CALL_PACKED, COMPOSITE, Binding, IRModule
from byoc_core.partitioning.op_sites import walk_bodies, walk_ops
from byoc_core.reporting.shares import HOST_NAME, VIEW, items_of

__all__ = ["comment_ops"]

_CALLS = (CALL, CALL_DPS_PACKED, CALL_PACKED)


def comment_ops(module: IRModule, report: Mapping[str, Any]) -> dict[int, str]:
    """Return comments by the ``id`` of each binding for an op, a composite or the call of a region.

    Args:
        module: partitioned.
        report: the report of that module.
    """
    regions: dict[object, Mapping[str, Any]] = {region["name"]: region for region in items_of(report.get("regions"))}
    compiled = {name for name, region in regions.items() if region.get("compiled")}
    rows = {(row["function"], row["name"]): row for row in items_of(report.get("ops")) if row["region"] not in compiled}
    comments = {}
    for site in walk_ops(module):
        row = rows.get((site.source, site.name))
        if row is not None:
            comments[id(site.binding)] = _op_comment(row)
    for function in module.functions.values():
        for body in walk_bodies(function):
            for binding in body.bindings:
                if binding.op in _CALLS:
                    region = regions.get(_symbol(binding, module))
                    if region is not None:
                        comments[id(binding)] = f"{region['backend']} {region['share']:.1%}: {_ops(region['ops'])}"
                elif binding.op is COMPOSITE:
                    source = str(function.attrs.get("source", function.name))
                    inner = [rows[source, part.results[0].name] for part in binding.regions[0].bindings]
                    share = sum(row["share"] for row in inner)
                    comments[id(binding)] = f"{inner[0]['outcome']} {share:.1%}: {_ops(len(inner))}"
    return comments


def _symbol(call: Binding, module: IRModule) -> object:
    """Return the symbol of the callee: a region, or a compiled region."""
    if call.op is CALL:
        return module.functions[str(call.attrs["callee"])].attrs.get("global_symbol")
    return call.attrs["symbol"]


def _op_comment(row: Mapping[str, Any]) -> str:
    if row["outcome"] == HOST_NAME:
        return f"{HOST_NAME} {row['share']:.1%}: {row['text']} [{row['code']}]"
    if row["outcome"] == VIEW:
        return f"{VIEW}: {row['text']}"
    refusals = _refusals(items_of(row.get("reasons")))
    return f"{row['outcome']} {row['share']:.1%}" + (f"; not {refusals}" if refusals else "")


def _refusals(reasons: Iterable[Mapping[str, Any]]) -> str:
    return "; ".join(f"{reason['backend']}: {reason['text']} [{reason['code']}]" for reason in reasons)


def _ops(count: int) -> str:
    return f"{count} op{'' if count == 1 else 's'}"
