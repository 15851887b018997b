"""The offload report as it is true of an artifact: sizes that are compiled at first use are the host's there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from byoc_core.dims import Dim, read_dim
from byoc_core.errors import IRTypeError
from byoc_core.offload_shares import HOST, apportion, items_of
from byoc_core.runtime.specialised import SpecialisedModule

__all__ = ["report_of_artifact"]

_CODE = "dynamic-shape"
_TEXT = "backend `{}` takes static shapes only, and the artifact is compiled for no sizes of the region"


def report_of_artifact(report: Mapping[str, Any], modules: Iterable[SpecialisedModule]) -> Mapping[str, Any]:
    """Return the report of an executable as it is true of the artifact.

    Args:
        report: the report.
        modules: the modules of backends of static shapes, as the artifact holds them.
    """
    others: dict[str, str] = {}
    unheld: set[str] = set()
    for module in modules:
        for name in module.function_names:
            if module.recipe is not None:
                others[name] = "compiler"
            else:
                others[name] = "host" if module.has_host_form(name) else "error"
                if not module.given_sizes(name):
                    unheld.add(name)
    rows = items_of(report.get("specialised"))
    if not rows:
        return report
    told = [{**row, "others": others.get(str(row.get("region")), row.get("others"))} for row in rows]
    counted = report.get("counted_sizes")
    changed = _with_host_regions({**report, "specialised": told}, unheld)
    return apportion(changed, counted if isinstance(counted, Mapping) else {}) if changed["ops"] else changed


def _with_host_regions(report: dict[str, Any], regions: Collection[str]) -> dict[str, Any]:
    """Return a report in which ops of some regions are the host's. The shares are left as they are."""
    changed = []
    rows: list[Mapping[str, Any]] = []
    for row in items_of(report.get("ops")):
        backend = row.get("outcome")
        if row.get("region") in regions and isinstance(backend, str) and backend != HOST:
            reason = {"backend": backend, "code": _CODE, "text": _TEXT.format(backend)}
            text = f"{backend}: {reason['text']}"
            reasons = [*items_of(row.get("reasons")), reason]
            changed.append({**row, "outcome": HOST, "code": _CODE, "text": text, "reasons": reasons})
            rows.append(changed[-1])
        else:
            rows.append(row)
    report["ops"] = rows
    if not changed:
        return report
    summary = list(items_of(report.get("summary")))
    for backend in dict.fromkeys(row["reasons"][-1]["backend"] for row in changed):
        mine = [row for row in changed if row["reasons"][-1]["backend"] == backend]
        work = {"ops": len(mine), "flops": _flops_of(mine), "text": _TEXT.format(backend)}
        summary.append({"backend": backend, "code": _CODE, **work})
    report["summary"] = summary
    report["regions"] = [
        {**item, "backend": HOST} if item.get("name") in regions else item for item in items_of(report.get("regions"))
    ]
    report["backends"] = [{**item, **_tally(item, rows)} for item in items_of(report.get("backends"))]
    return report


def _tally(item: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    mine = [row for row in rows if row.get("outcome") == item.get("name")]
    regions = {region for row in mine if (region := row.get("region"))}
    return {"regions": len(regions), "ops": len(mine), "flops": _flops_of(mine)}


def _flops_of(rows: Iterable[Mapping[str, Any]]) -> int | str:
    total: Dim = 0
    for row in rows:
        flops = row.get("flops")
        try:
            total += read_dim(flops) if isinstance(flops, str) else flops if isinstance(flops, int) else 0
        except IRTypeError:  # too long an expression: it counts as none
            continue
    return total if isinstance(total, int) else str(total)
