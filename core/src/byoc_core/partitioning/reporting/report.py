"""The report: the outcome of each op, with the reasons against others. Plain data, storable in an artifact.

Keys are stable, because artifacts and commands write the report as JSON. :mod:`byoc_core.reporting` reads the reports
of all versions, and treats every key as possibly absent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from byoc_core.dims import Dim
from byoc_core.ir import IRModule, TensorType, Value, Var
from byoc_core.partitioning.compiled_regions import with_compiled_regions
from byoc_core.partitioning.layouts.plan_layouts import LayoutPlan
from byoc_core.partitioning.links import find_links
from byoc_core.partitioning.log import PartitionLog
from byoc_core.partitioning.op_sites import OpSite, op_key, walk_ops
from byoc_core.partitioning.reporting.borders import find_borders
from byoc_core.partitioning.reporting.reasons import REASONS
from byoc_core.partitioning.state_appends import find_state_appends
from byoc_core.renamed import renamed_parameters
from byoc_core.reporting.shares import VIEW, apportion, decisive_reasons, reason_keys

__all__ = ["SCHEMA", "build_report"]

SCHEMA = 2
"""Version of the report's form. Reports without a version, of older artifacts, are of version 1: the ops have no
``inputs`` and no ``reasons``, and there are no ``regions``, ``borders``, ``summary`` and ``counted_sizes``.
"""

Row = dict[str, Any]


@renamed_parameters(asked="backends", whole="unpeeled")
def build_report(
    module: IRModule,
    log: PartitionLog,
    *,
    host: str,
    backends: Sequence[str],
    unpeeled: IRModule | None = None,
    layouts: LayoutPlan | None = None,
    roundoffs: Mapping[str, Mapping[str, float]] | None = None,
) -> dict[str, Any]:
    """Return the report of a partitioned module.

    Args:
        module: with annotated region functions, before codegen removes these. Functions compiled before count as
            regions of the compiling backends.
        log: the refusals.
        host: name of the backend counted as not offloaded.
        backends: the other backends, in the order of asking.
        unpeeled: the module before views left the regions, if any left (:class:`byoc_core.partitioning.PeelViews`).
        layouts: the values crossing borders in planned layouts (:class:`byoc_core.partitioning.PlanLayouts`).
        roundoffs: the unit roundoffs stated by backends, by name, then by dtype.

    Returns:
        Plain JSON values. Shares are of the FLOPs, every symbolic size counted as 1
        (:func:`byoc_core.reporting.shares.apportion` counts with others); ``flops`` are numbers or expressions.

        - ``schema``: :data:`SCHEMA`.
        - ``backends``: ``name, regions, ops, flops, share`` of the asked backends, of the host, of any other backend
          with ops, and of views (if there are any, under the name :data:`byoc_core.reporting.shares.VIEW`); perhaps
          ``unit_roundoff``: the coarser roundoffs of the backend's computations, by dtype.
        - ``total_flops``, ``offloaded_share`` (everything but the host's), ``counted_sizes`` (the counted value of each
          size).
        - ``summary``: ``backend, code, ops, flops, share, text`` of the ops staying on the host, once for each backend
          with a reason; most FLOPs first.
        - ``regions``: ``name, backend, function, ops, flops, share, inputs, outputs``, perhaps ``refused_by``: the
          backends that had claimed the region until their codegen refused the region, and ``compiled``: true, if the
          region came with the module compiled.
        - ``num_passed_over``: the number of ops not searched for near misses: the last ops, because the search is
          bounded.
        - ``borders``: see :func:`byoc_core.partitioning.reporting.borders.find_borders`; only between regions with ops
          left.
        - ``layouts``: ``value, axes, producer, readers``: values crossing borders with permuted axes, as for
          ``permute_dims``, and the symbols of the regions.
        - ``links``: see :func:`byoc_core.partitioning.links.find_links`.
        - ``ops``: ``function, op, name, outcome`` (a backend, or ``VIEW`` for a view moved out of a region), ``region,
          flops, share, inputs`` (names of values), and ``code, text``: the reason for the op staying on the host, or
          being a view; empty if a backend took the op. If there are any: ``composite`` (the pattern), ``outputs`` (the
          names of the op's values, if several), ``location`` (the origin, such as a node of an ONNX file),
          ``nbytes_read`` and ``nbytes_written`` (bytes of all operands and of all results), and
          ``reasons`` of asked backends against the op, or against a fit of a pattern: ``backend, code, text``, perhaps
          ``pattern``, ``ops``.

    Cost: ``O(n log n)`` in ops and operands.
    """
    rows: list[Row] = []
    flops: list[Dim] = []
    in_regions = {
        op_key(site.source, site.binding) for site in walk_ops(unpeeled or module) if site.backend is not None
    }
    in_regions |= find_state_appends(module)
    restored, compiled = with_compiled_regions(module)
    conversions = {} if layouts is None else layouts.conversions
    for site in walk_ops(restored):
        if (site.function.name, site.name) in conversions:
            continue
        # Reasons go by names: an op of a compiled region may share the name of a newly partitioned op.
        site_log = PartitionLog() if site.region in compiled else log
        has_moved = site.backend is None and op_key(site.source, site.binding) in in_regions
        row = _row(site, site_log, VIEW if has_moved else site.backend or host, host, backends)
        row["inputs"] = [conversions.get((site.function.name, name), name) for name in row["inputs"]]
        rows.append(row)
        flops.append(site.binding.op.flops(site.binding.context()))
    for row, amount in zip(rows, flops, strict=True):
        row["flops"] = _plain(amount)
    names = [*backends, host]
    names += sorted({row["outcome"] for row in rows} - set(names))
    tallies = _tally_regions(rows, flops)
    report = {
        "schema": SCHEMA,
        "backends": _backends(names, rows, flops, roundoffs or {}),
        "total_flops": _plain(_total(flops)),
        "offloaded_share": 0.0,
        "counted_sizes": {},
        "summary": _summary(rows, flops, host),
        "regions": _regions(restored, tallies, log, compiled),
        "num_passed_over": log.num_passed_over,
        "borders": [
            border
            for border in find_borders(unpeeled or module, host=host, handed_over=log.handed_over)
            if border["before"] in tallies and border["after"] in tallies
        ],
        "layouts": _layouts(layouts),
        "links": find_links(restored),
        "ops": rows,
    }
    return apportion(report, parsed={str(amount): amount for amount in flops if not isinstance(amount, int)})


@dataclass
class _Tally:
    """Ops counted together."""

    ops: int = 0
    flops: Dim = 0
    regions: set[str] = field(default_factory=set)
    texts: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row, flops: Dim, text: str = "") -> None:
        self.ops += 1
        self.flops = self.flops + flops
        if row["region"]:
            self.regions.add(row["region"])
        self.texts[text] += 1


def _layouts(plan: LayoutPlan | None) -> list[Row]:
    return [
        {"value": value.name, "axes": list(value.order), "producer": value.producer, "readers": list(value.readers)}
        for value in (() if plan is None else plan.values)
    ]


def _row(site: OpSite, log: PartitionLog, outcome: str, host: str, backends: Sequence[str]) -> Row:
    reasons = _reasons(log, site, backends)
    code, text = _verdict(reasons, backends) if outcome == host else ("", "")
    if outcome == VIEW:
        code, text = "view", REASONS["view"]
    row: Row = {
        "function": site.source,
        "op": site.binding.op.name,
        "name": site.name,
        "outcome": outcome,
        "region": site.region,
        "code": code,
        "text": text,
        "inputs": site.inputs,
    }
    if site.composite is not None:
        row["composite"] = site.composite
    if len(site.binding.results) > 1:
        row["outputs"] = [result.name for result in site.binding.results]
    location = site.binding.location
    if location is not None:
        row["location"] = location.name or location.source
    read, written = _nbytes(site.binding.operands), _nbytes(site.binding.results)
    if read is not None and written is not None:
        row |= {"nbytes_read": _plain(read), "nbytes_written": _plain(written)}
    if reasons:
        row["reasons"] = reasons
    return row


def _nbytes(values: Sequence[Value]) -> Dim | None:
    """Return the bytes of tensors; ``None`` if a shape is unknown."""
    total: Dim = 0
    for value in values:
        nbytes = value.type.nbytes if isinstance(value.type, TensorType) else None
        if nbytes is None:
            return None
        total = total + nbytes
    return total


def _reasons(log: PartitionLog, site: OpSite, backends: Sequence[str]) -> list[dict[str, Any]]:
    reasons = []
    for refusal in log.refusals(site.source, site.name):
        if refusal.backend in backends:
            reason: dict[str, Any] = {
                "backend": refusal.backend,
                "code": refusal.rejection.code,
                "text": refusal.rejection.text,
            }
            if refusal.pattern:
                reason["pattern"] = refusal.pattern
            if refusal.ops:
                reason["ops"] = list(refusal.ops)
            reasons.append(reason)
    return reasons


def _verdict(reasons: Sequence[Mapping[str, Any]], backends: Sequence[str]) -> tuple[str, str]:
    """Return code and text for an op of the host: the code of the first backend, and a text with a clause for each."""
    if not backends:
        return "host-only", "no other backend was asked"
    decisive = decisive_reasons(reasons)
    own = [decisive[backend] for backend in backends if backend in decisive]
    if not own:
        return "not-claimed", "no backend claimed the op"
    return own[0]["code"], "; ".join(f"{reason['backend']}: {reason['text']}" for reason in own)


def _backends(
    names: Iterable[str],
    rows: Sequence[Row],
    flops: Sequence[Dim],
    roundoffs: Mapping[str, Mapping[str, float]],
) -> list[dict[str, Any]]:
    tallies = {name: _Tally() for name in names}
    for row, amount in zip(rows, flops, strict=True):
        tallies[row["outcome"]].add(row, amount)
    return [
        {"name": name, "regions": len(tally.regions), "ops": tally.ops, "flops": _plain(tally.flops)}
        | ({"unit_roundoff": dict(roundoffs[name])} if roundoffs.get(name) else {})
        for name, tally in tallies.items()
    ]


def _tally_regions(rows: Sequence[Row], flops: Sequence[Dim]) -> dict[str, _Tally]:
    tallies: dict[str, _Tally] = {}
    for row, amount in zip(rows, flops, strict=True):
        if row["region"]:
            tallies.setdefault(row["region"], _Tally()).add(row, amount)
    return tallies


def _regions(
    module: IRModule, tallies: Mapping[str, _Tally], log: PartitionLog, compiled: Collection[str]
) -> list[dict[str, Any]]:
    functions = {
        str(f.attrs.get("global_symbol", f.name)): f for f in module.functions.values() if "Codegen" in f.attrs
    }
    regions = []
    for name, tally in tallies.items():
        function = functions[name]
        region: dict[str, Any] = {
            "name": name,
            "backend": str(function.attrs["Codegen"]),
            "function": str(function.attrs.get("source", function.name)),
            "ops": tally.ops,
            "flops": _plain(tally.flops),
            "inputs": [param.name for param in function.params],
            "outputs": [result.name for result in function.results if isinstance(result, Var)],
        }
        if name in log.handed_over:
            region["refused_by"] = list(log.handed_over[name])
        if name in compiled:
            region["compiled"] = True
        regions.append(region)
    return regions


def _summary(rows: Sequence[Row], flops: Sequence[Dim], host: str) -> list[dict[str, Any]]:
    tallies: dict[tuple[str, str], _Tally] = {}
    for row, amount in zip(rows, flops, strict=True):
        if row["outcome"] == host:
            decisive = decisive_reasons(row.get("reasons", ()))
            for backend, code in reason_keys(row):
                text = decisive[backend]["text"] if backend in decisive else row["text"]
                tallies.setdefault((backend, code), _Tally()).add(row, amount, text)
    return [
        {"backend": backend, "code": code, "ops": tally.ops, "flops": _plain(tally.flops), "text": _text(code, tally)}
        for (backend, code), tally in sorted(tallies.items(), key=lambda item: (-item[1].ops, item[0]))
    ]


def _text(code: str, tally: _Tally) -> str:
    """Return one text for the reasons of one code: the common text if equal, else the code's meaning or an example."""
    [(text, _)] = tally.texts.most_common(1)
    if len(tally.texts) == 1:
        return text
    return REASONS.get(code, f"{text}, and {len(tally.texts) - 1} similar reasons")


def _total(amounts: Iterable[Dim]) -> Dim:
    total: Dim = 0
    for amount in amounts:
        total = total + amount
    return total


def _plain(flops: Dim) -> int | str:
    return flops if isinstance(flops, int) else str(flops)
