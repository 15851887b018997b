"""Shares of the work in an offload report: the FLOPs of each backend, region and reason, every symbolic size counted.

Compilation counts each size as 1; a reader of the artifact may count with other sizes. The report may come from
anywhere: invalid amounts of work count as none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from byoc_core.dims import Dim, evaluate, read_dim, symbols_of
from byoc_core.errors import IRTypeError, OptionsError, near_names

__all__ = [
    "HOST_NAME",
    "MAX_FLOPS",
    "VIEW",
    "apportion",
    "count_expression",
    "counted_sizes",
    "decisive_reasons",
    "items_of",
    "reason_keys",
]

HOST_NAME = "host"
"""The name of the core's own backend. The host takes every op; the host's ops count as not offloaded."""

VIEW = "(view)"
"""Stands for the backend of an op outside of all regions that only views memory. No backend can have this name."""

MAX_FLOPS = 10**30
"""The largest valid count; larger numbers are no count."""

_SHARE_DIGITS = 6
_NO_RULE, _NEAR_MISS = "no-rule", "near-miss"


def items_of(value: object) -> list[Mapping[str, Any]]:
    """Return the mappings among the members of a list; empty if the value is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def apportion(
    report: Mapping[str, Any], sizes: Mapping[str, int] | None = None, *, parsed: Mapping[str, Dim] | None = None
) -> dict[str, Any]:
    """Return the report with every share of FLOPs computed anew.

    Args:
        report: from :func:`byoc_core.partitioning.build_report`, or of an artifact.
        sizes: the counted values of symbolic sizes. Others count as 1, or, if the FLOPs of an op would be negative, as
            the least power of 2 for which none are: an image of one pixel has no result of some convolutions.
        parsed: parsed expressions by text, to save parsing. Of the other expressions, a text refused by
            :func:`byoc_core.dims.read_dim` (because too long) counts as none.

    Returns:
        The report with ``share`` in ``ops``, ``backends``, ``regions`` and ``summary``, with ``offloaded_share``, and
        with ``counted_sizes``: the counted value of each symbolic size of the FLOPs. If no op counts FLOPs, all is
        offloaded (1.0) if no op is the host's, else nothing (0.0).

    Raises:
        OptionsError: ``sizes`` has a name without influence on any FLOPs.

    Cost: linear in the ops; each expression is read once.
    """
    rows = items_of(report.get("ops"))
    texts = {flops for row in rows if isinstance(flops := row.get("flops"), str)}
    expressions = {text: parsed[text] if parsed and text in parsed else _read(text) for text in sorted(texts)}
    counted = _counted(expressions, sizes or {})
    amounts: dict[object, int] = {text: _evaluate(dim, counted) for text, dim in expressions.items()}
    counts = [_count(row.get("flops"), amounts) for row in rows]
    total = sum(counts)
    by_backend, by_region, by_reason = Counter[object](), Counter[object](), Counter[object]()
    for row, count in zip(rows, counts, strict=True):
        outcome = _text(row.get("outcome"))
        by_backend[outcome] += count
        by_region[_text(row.get("region"))] += count
        for pair in reason_keys(row) if outcome == HOST_NAME else ():
            by_reason[pair] += count

    def share(count: int) -> float:
        if not total:
            return 0.0
        rounded = float(f"{count / total:.{_SHARE_DIGITS}g}")
        return rounded if rounded < 1 or count == total else 1 - 10**-_SHARE_DIGITS

    result = dict(report)
    if "ops" in result:
        result["ops"] = [{**row, "share": share(count)} for row, count in zip(rows, counts, strict=True)]
    for key, found in (("backends", by_backend), ("regions", by_region)):
        if key in result:
            result[key] = [{**item, "share": share(found[_text(item.get("name"))])} for item in items_of(result[key])]
    if "summary" in result:
        summary = items_of(result["summary"])
        found_counts = [by_reason[_text(item.get("backend")), _text(item.get("code"))] for item in summary]
        result["summary"] = [{**item, "share": share(count)} for item, count in zip(summary, found_counts, strict=True)]
        result["summary"].sort(key=lambda item: -item["share"])
    if total:
        result["offloaded_share"] = (total - by_backend[HOST_NAME]) / total
    else:
        result["offloaded_share"] = float(bool(rows) and HOST_NAME not in by_backend)
    result["counted_sizes"] = counted
    return result


def reason_keys(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return backend and code of each reason for an op's stay on the host: one reason for each backend with reasons."""
    decisive = decisive_reasons(items_of(row.get("reasons")))
    keys = [(backend, _text(reason.get("code"))) for backend, reason in decisive.items()]
    return keys or [("", _text(row.get("code")))]


def decisive_reasons(reasons: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the decisive reason of each backend, backends in the order of appearance.

    First choice is the last reason about the op alone, because a returned region is refused last. Next are the first
    reason about a fitting pattern, then a near miss, then a mere lack of a rule for single ops.
    """
    ranked: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for reason in reasons:
        backend, code = _text(reason.get("backend")), reason.get("code")
        if code == _NO_RULE:
            rank = 0
        elif code == _NEAR_MISS:
            rank = 1
        else:
            rank = 2 if reason.get("pattern") else 3
        best = ranked.get(backend)
        if best is None or rank > best[0] or (rank == best[0] == 3):
            ranked[backend] = (rank, reason)
    return {backend: reason for backend, (_, reason) in ranked.items()}


_OTHER_SIZES = [1 << exponent for exponent in range(17)]
"""The values tried for sizes without a given value."""


def _counted(expressions: Mapping[str, Dim], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the counted value of each symbol of the expressions."""
    dims = expressions.values()
    symbols = sorted(frozenset[str]().union(*map(symbols_of, dims)))
    for name in sizes:
        if name not in symbols:
            raise OptionsError(
                f"size `{name}`",
                "no op's FLOPs depend on this size",
                expected=", ".join(symbols) or "no size: no op's FLOPs depend on a symbolic size",
                hint=near_names(name, symbols) or None,
            )
    counted: dict[str, int] = {}
    for other in _OTHER_SIZES:
        counted = {name: sizes.get(name, other) for name in symbols}
        if sizes.keys() >= set(symbols) or all(_evaluate(dim, counted) >= 0 for dim in dims):
            return counted
    return {name: sizes.get(name, 1) for name in symbols}


def _read(text: str) -> Dim:
    try:
        return read_dim(text)
    except IRTypeError:
        return 0


def counted_sizes(report: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the counted value of each symbolic size of a report's FLOPs: 1 in a report without counted values."""
    counted = report.get("counted_sizes")
    if isinstance(counted, Mapping):
        return counted
    rows = [report.get("total_flops"), *(row.get("flops") for row in items_of(report.get("ops")))]
    texts = sorted({flops for flops in rows if isinstance(flops, str)})
    return dict.fromkeys(sorted(frozenset[str]().union(*(symbols_of(_read(text)) for text in texts))), 1)


def count_expression(text: str, sizes: Mapping[str, object]) -> int | None:
    """Return the number of FLOPs of an expression, symbols without a size counted as 1.

    ``None`` if the text is no expression, or is refused by :func:`byoc_core.dims.read_dim`.
    """
    try:
        dim = read_dim(text)
        symbol_sizes = {name: sizes.get(name, 1) for name in symbols_of(dim)}
        return evaluate(dim, {name: size if isinstance(size, int) else 1 for name, size in symbol_sizes.items()})
    except IRTypeError:
        return None


def _evaluate(dim: Dim, sizes: Mapping[str, int]) -> int:
    try:
        return evaluate(dim, {name: sizes[name] for name in symbols_of(dim)})
    except IRTypeError:
        return 0


def _count(flops: object, amounts: Mapping[object, int]) -> int:
    count = amounts.get(flops, 0) if isinstance(flops, str) else flops
    return count if isinstance(count, int) and 0 <= count <= MAX_FLOPS else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
