"""The offload report of an artifact: regions compiled only at first use count as the host's.

Used by :meth:`byoc_core.artifact.Executable.as_saved` and :meth:`~byoc_core.artifact.Executable.save`. An artifact
loaded with a compiler has the report of the build again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from byoc_core.dims import Dim, read_dim, total
from byoc_core.errors import IRTypeError
from byoc_core.printable import to_printable
from byoc_core.reporting.shares import HOST_NAME, MAX_FLOPS, apportion, count_expression, items_of
from byoc_core.runtime.sets_of_sizes import MAX_SIZE
from byoc_core.runtime.specialised import SpecialisedModule

__all__ = ["report_of_artifact", "report_with_compiler", "warn_of_lost_offload"]

_LOGGER = logging.getLogger("byoc_core")

_CODE = "dynamic-shape"
_TEXT = "backend `{}` takes static shapes only, but the artifact contains no compiled sizes of the region"
_MAX_TEXT = 1 << 16
"""The most characters of expressions added to one sum."""


def report_of_artifact(report: Mapping[str, Any], modules: Iterable[SpecialisedModule]) -> Mapping[str, Any]:
    """Return the report of an executable, changed to be true of the artifact.

    Args:
        report: the report; may come from the artifact of a stranger.
        modules: the artifact's modules of backends with static shapes.
    """
    other_sizes: dict[str, str] = {}
    unheld: set[str] = set()
    for module in modules:
        for name in module.function_names:
            fallback = "host" if module.has_host_form(name) else "error"
            other_sizes[name] = fallback if module.recipe is None else f"compiler-or-{fallback}"
            if not module.given_sizes(name):
                unheld.add(name)
    rows = items_of(report.get("specialised"))
    if not rows:
        return report
    new_rows = [{**row, "others": other_sizes.get(_text(row.get("region")), row.get("others"))} for row in rows]
    found = {**report, "specialised": new_rows}
    changed = _with_host_regions(found, unheld)
    return found if changed is None else _apportioned(changed)


def report_with_compiler(report: Mapping[str, Any], modules: Iterable[SpecialisedModule]) -> Mapping[str, Any]:
    """Return the report of an artifact loaded with a compiler: regions compiled at first use are their backend's again.

    Args:
        report: the report of the artifact; may come from a stranger.
        modules: the artifact's modules of backends with static shapes.
    """
    names = {name for module in modules if module.recipe is not None for name in module.function_names}
    rows = items_of(report.get("specialised"))
    specialised = [{**row, "others": "first-use"} if _text(row.get("region")) in names else row for row in rows]
    backends: dict[str, str] = {}
    ops: list[Mapping[str, Any]] = []
    for row in items_of(report.get("ops")):
        region, reasons = _text(row.get("region")), items_of(row.get("reasons"))
        backend = _text(reasons[-1].get("backend")) if region in names and reasons else ""
        if backend and reasons[-1] == _reason(backend):
            backends[region] = backend
            row = {**row, "outcome": backend, "code": "", "text": "", "reasons": reasons[:-1]}
            if not row["reasons"]:
                del row["reasons"]
        ops.append(row)
    if not backends:
        return {**report, "specialised": specialised} if rows else report
    lost = [_reason(backend) for backend in set(backends.values())]
    summary = [row for row in items_of(report.get("summary")) if {key: row.get(key) for key in _reason("")} not in lost]
    regions = [
        {**item, "backend": backends.get(_text(item.get("name")), item.get("backend"))}
        for item in items_of(report.get("regions"))
    ]
    tallies = [{**item, **_tally(item, ops)} for item in items_of(report.get("backends"))]
    parts = {"ops": ops, "summary": summary, "regions": regions, "backends": tallies, "specialised": specialised}
    return _apportioned({**report, **parts})


def warn_of_lost_offload(report: Mapping[str, Any], saved: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Log the share of work done by the host in an artifact, and by a backend in the saving process.

    Args:
        report: of the executable.
        saved: of the artifact, from :func:`report_of_artifact`.
        path: the artifact.
    """
    current_share, saved_share = (item.get("offloaded_share") for item in (report, saved))
    if isinstance(current_share, float | int) and isinstance(saved_share, float | int) and saved_share < current_share:
        _LOGGER.warning(
            "artifact `%s`: the host runs %.1f %% of the FLOPs, compiled at first use in this process by a backend of "
            "static shapes. Give sets of sizes to `build(specialize=...)`, or save with `respecializable=True`.",
            to_printable(os.fspath(path)),
            100 * (current_share - saved_share),
        )


def _apportioned(report: dict[str, Any]) -> Mapping[str, Any]:
    """Return a report with new shares, counting symbolic sizes with the report's valid values, else as by default."""
    by_default = apportion(report)
    stored_sizes = report.get("counted_sizes")
    counted = {
        name: size
        for name, size in (stored_sizes.items() if isinstance(stored_sizes, Mapping) else ())
        if name in by_default["counted_sizes"]
        and type(size) is int
        and 0 <= size <= MAX_SIZE
        and size != by_default["counted_sizes"][name]
    }
    return apportion(report, counted) if counted else by_default


def _with_host_regions(report: Mapping[str, Any], regions: Collection[str]) -> dict[str, Any] | None:
    """Return a report with the ops of some regions moved to the host, shares unchanged; ``None`` if no op moves."""
    changed = []
    rows: list[Mapping[str, Any]] = []
    for row in items_of(report.get("ops")):
        backend = _text(row.get("outcome"))
        if _text(row.get("region")) in regions and backend not in ("", HOST_NAME):
            reason = _reason(backend)
            text = f"{backend}: {reason['text']}"
            reasons = [*items_of(row.get("reasons")), reason]
            changed.append({**row, "outcome": HOST_NAME, "code": _CODE, "text": text, "reasons": reasons})
            rows.append(changed[-1])
        else:
            rows.append(row)
    if not changed:
        return None
    summary = list(items_of(report.get("summary")))
    for backend in dict.fromkeys(row["reasons"][-1]["backend"] for row in changed):
        mine = [row for row in changed if row["reasons"][-1]["backend"] == backend]
        work = {"ops": len(mine), "flops": _flops_of(mine), "text": _TEXT.format(backend)}
        summary.append({"backend": backend, "code": _CODE, **work})
    moved = [
        {**item, "backend": HOST_NAME} if _text(item.get("name")) in regions else item
        for item in items_of(report.get("regions"))
    ]
    backends = [{**item, **_tally(item, rows)} for item in items_of(report.get("backends"))]
    return {**report, "ops": rows, "summary": summary, "regions": moved, "backends": backends}


def _reason(backend: str) -> dict[str, str]:
    """Return the reason for an op of a region compiled for no sizes."""
    return {"backend": backend, "code": _CODE, "text": _TEXT.format(backend)}


def _tally(item: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    mine = [row for row in rows if row.get("outcome") == item.get("name")]
    regions = {region for row in mine if (region := _text(row.get("region")))}
    return {"regions": len(regions), "ops": len(mine), "flops": _flops_of(mine)}


def _flops_of(rows: Iterable[Mapping[str, Any]]) -> int | str:
    """Return the sum of the FLOPs of ops; with all sizes counted as 1 if the expression would be long."""
    number, texts = 0, []
    for row in rows:
        flops = row.get("flops")
        if type(flops) is int and 0 <= flops <= MAX_FLOPS:
            number += flops
        elif isinstance(flops, str):
            texts.append(flops)
    if sum(map(len, texts)) > _MAX_TEXT:
        counts = (count_expression(text, {}) or 0 for text in texts)
        return number + sum(count for count in counts if 0 <= count <= MAX_FLOPS)
    summed = total([number, *map(_read, texts)])
    return summed if isinstance(summed, int) else str(summed)


def _read(text: str) -> Dim:
    try:
        return read_dim(text)
    except IRTypeError:  # too long an expression counts as none
        return 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
