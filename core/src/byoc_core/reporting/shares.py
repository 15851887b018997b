"""Shares of the work in an offload report: who has how much of the FLOPs, every symbolic size counted as some number.

Compiling a model counts with sizes of one; whoever reads its artifact may count with others. The report may
come from anywhere: what is no work counts as none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
"""The name of the core's own backend, which takes everything; its ops count as not offloaded."""

VIEW = "(view)"
"""Stands for a backend where an op belongs to no region, since it only looks at memory in another way; no backend can
have this name."""

MAX_FLOPS = 10**30
"""What counts more than this is no count."""

_SHARE_DIGITS = 6
_NO_RULE, _NEAR_MISS = "no-rule", "near-miss"


def items_of(value: object) -> list[Mapping[str, Any]]:
    """Gives the members of a list that are mappings; none where it is no list."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def apportion(
    report: Mapping[str, Any], sizes: Mapping[str, int] | None = None, *, known: Mapping[str, Dim] | None = None
) -> dict[str, Any]:
    """Gives the report with every share of FLOPs computed anew.

    Args:
        report: as :func:`byoc_core.partitioning.build_report` gives it, or of an artifact.
        sizes: what symbolic sizes count as; those not named, as 1.
        known: expressions by their text, which need not be read. Of others, one that :func:`byoc_core.dims.read_dim`
            refuses (it is too long) counts as none.

    Returns:
        The report with ``share`` in its ``ops``, ``backends``, ``regions`` and ``summary``, with ``offloaded_share``,
        and with ``counted_sizes``: what each symbolic size of the FLOPs counts as. Where no op counts FLOPs, all is
        offloaded (1.0) if no op is the host's, else nothing (0.0).

    Raises:
        OptionsError: ``sizes`` names something that no FLOPs depend on.

    Cost: linear in the ops; each expression is read once.
    """
    rows = items_of(report.get("ops"))
    texts = {flops for row in rows if isinstance(flops := row.get("flops"), str)}
    expressions = {text: known[text] if known and text in known else _read(text) for text in sorted(texts)}
    counted = _counted(expressions.values(), sizes or {})
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

    given = dict(report)
    if "ops" in given:
        given["ops"] = [{**row, "share": share(count)} for row, count in zip(rows, counts, strict=True)]
    for key, found in (("backends", by_backend), ("regions", by_region)):
        if key in given:
            given[key] = [{**item, "share": share(found[_text(item.get("name"))])} for item in items_of(given[key])]
    if "summary" in given:
        summary = items_of(given["summary"])
        found_counts = [by_reason[_text(item.get("backend")), _text(item.get("code"))] for item in summary]
        given["summary"] = [{**item, "share": share(count)} for item, count in zip(summary, found_counts, strict=True)]
        given["summary"].sort(key=lambda item: -item["share"])
    if total:
        given["offloaded_share"] = (total - by_backend[HOST_NAME]) / total
    else:
        given["offloaded_share"] = float(bool(rows) and HOST_NAME not in by_backend)
    given["counted_sizes"] = counted
    return given


def reason_keys(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Gives backend and code of each reason for which an op stays on the host: one for each backend that has one."""
    decisive = decisive_reasons(items_of(row.get("reasons")))
    keys = [(backend, _text(reason.get("code"))) for backend, reason in decisive.items()]
    return keys or [("", _text(row.get("code")))]


def decisive_reasons(reasons: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Gives for each backend the one of its reasons that says most, backends in the order in which they come.

    The last that speaks of the op alone, since a region that is handed back is refused last; unless it only says that
    the backend has no rule for single ops. Then the first that speaks of a pattern that fits, then one of a near miss.
    """
    chosen: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for reason in reasons:
        backend, code = _text(reason.get("backend")), reason.get("code")
        if code == _NO_RULE:
            rank = 0
        elif code == _NEAR_MISS:
            rank = 1
        else:
            rank = 2 if reason.get("pattern") else 3
        best = chosen.get(backend)
        if best is None or rank > best[0] or (rank == best[0] == 3):
            chosen[backend] = (rank, reason)
    return {backend: reason for backend, (_, reason) in chosen.items()}


def _counted(dims: Iterable[Dim], sizes: Mapping[str, int]) -> dict[str, int]:
    symbols = sorted(frozenset[str]().union(*map(symbols_of, dims)))
    for name in sizes:
        if name not in symbols:
            raise OptionsError(
                f"size `{name}`",
                "no op's FLOPs depend on it",
                expected=", ".join(symbols) or "none: no op's FLOPs depend on a symbolic size",
                hint=near_names(name, symbols) or None,
            )
    return {name: sizes.get(name, 1) for name in symbols}


def _read(text: str) -> Dim:
    try:
        return read_dim(text)
    except IRTypeError:
        return 0


def counted_sizes(report: Mapping[str, Any]) -> Mapping[str, object]:
    """Return what each symbolic size of a report's FLOPs counts as: 1 in a report that does not tell."""
    counted = report.get("counted_sizes")
    if isinstance(counted, Mapping):
        return counted
    rows = [report.get("total_flops"), *(row.get("flops") for row in items_of(report.get("ops")))]
    texts = sorted({flops for flops in rows if isinstance(flops, str)})
    return dict.fromkeys(sorted(frozenset[str]().union(*(symbols_of(_read(text)) for text in texts))), 1)


def count_expression(text: str, sizes: Mapping[str, object]) -> int | None:
    """Return the number of FLOPs that an expression gives, symbols without a size counted as 1.

    ``None`` where the text is no expression, or one that :func:`byoc_core.dims.read_dim` refuses.
    """
    try:
        dim = read_dim(text)
        known = {name: sizes.get(name, 1) for name in symbols_of(dim)}
        return evaluate(dim, {name: size if isinstance(size, int) else 1 for name, size in known.items()})
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
