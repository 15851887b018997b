"""The report: who took each op, and why not somebody else. Plain data, so that an artifact can carry it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from byoc_core.dims import Dim, evaluate, symbols_of
from byoc_core.errors import IRTypeError
from byoc_core.ir import CALL, COMPOSITE, STRUCTURAL_OPS, Binding, Function, IRModule
from byoc_core.partitioning.log import PartitionLog

__all__ = ["build_report"]


def build_report(module: IRModule, log: PartitionLog, *, host: str, asked: Sequence[str]) -> dict[str, Any]:
    """Gives the report of a partitioned module.

    Args:
        module: with annotated region functions, before codegen removes them.
        log: the refusals.
        host: name of the backend that counts as not offloaded.
        asked: the other backends, in the order in which they were asked.

    Returns:
        ``backends`` (name, regions, ops, flops, share of each), ``total_flops``, ``offloaded_share`` (share of FLOPs
        that are not the host's), ``ops`` (function, op, name, outcome, region, code, text, flops, share). Shares are
        of the FLOPs, every symbolic size counted as 1.
    """
    rows = [row for function in module.functions.values() for row in _rows(function, log, host, asked)]
    total = sum(_count(row["flops"]) for row in rows)
    for row in rows:
        row["share"] = _count(row["flops"]) / total if total else 0.0
    names = [*asked, host]
    names += sorted({row["outcome"] for row in rows} - set(names))
    return {
        "backends": [_summary(name, [row for row in rows if row["outcome"] == name]) for name in names],
        "total_flops": _plain(_total(rows)),
        "offloaded_share": _offloaded(rows, total, host),
        "ops": [{**row, "flops": _plain(row["flops"])} for row in rows],
    }


def _summary(name: str, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": name,
        "regions": len({row["region"] for row in rows if row["region"]}),
        "ops": len(rows),
        "flops": _plain(_total(rows)),
        "share": min(1.0, sum(row["share"] for row in rows)),
    }


def _offloaded(rows: Sequence[dict[str, Any]], total: int, host: str) -> float:
    """Gives the share of FLOPs that are not the host's; where no op counts any, all or nothing."""
    if total:
        return sum(_count(row["flops"]) for row in rows if row["outcome"] != host) / total
    return 1.0 if rows and all(row["outcome"] != host for row in rows) else 0.0


def _rows(function: Function, log: PartitionLog, host: str, asked: Sequence[str]) -> Iterator[dict[str, Any]]:
    backend = function.attrs.get("Codegen")
    source = str(function.attrs.get("source", function.name))
    for binding in _ops(function):
        outcome = host if backend is None else str(backend)
        code, text = ("", "") if outcome != host else _reason(log, source, binding, asked)
        yield {
            "function": source,
            "op": binding.op.name,
            "name": binding.results[0].name,
            "outcome": outcome,
            "region": None if backend is None else function.attrs.get("global_symbol"),
            "code": code,
            "text": text,
            "flops": binding.op.flops(binding.cost_context()),
        }


def _ops(function: Function) -> Iterator[Binding]:
    for binding in function.bindings:
        if binding.op is COMPOSITE or binding.op not in STRUCTURAL_OPS:
            yield from binding.regions[0].bindings if binding.op is COMPOSITE else (binding,)
        elif binding.op is not CALL:
            for region in binding.regions:
                yield from _ops(region)


def _reason(log: PartitionLog, source: str, binding: Binding, asked: Sequence[str]) -> tuple[str, str]:
    if not asked:
        return "host-only", "no other backend was asked"
    refusals = log.refusals(source, binding.results[0].name)
    own = [refusal for refusal in refusals if not refusal.pattern] or list(refusals)
    if not own:
        return "not-claimed", "no backend claimed it"
    texts = [f"{refusal.backend}: {refusal.rejection.text}" for refusal in own if refusal.backend in asked]
    codes = [refusal.rejection.code for refusal in own if refusal.backend in asked]
    return (codes[0], "; ".join(texts)) if codes else ("not-claimed", "no backend claimed it")


def _total(rows: Sequence[dict[str, Any]]) -> Dim:
    total: Dim = 0
    for row in rows:
        total = total + row["flops"]
    return total


def _count(flops: Dim) -> int:
    try:
        return evaluate(flops, dict.fromkeys(symbols_of(flops), 1))
    except IRTypeError:
        return 0


def _plain(flops: Dim) -> int | str:
    return flops if isinstance(flops, int) else str(flops)
