"""Tables of costs for backends: measured ops of models and of single layers (``byoc_core.authoring.cost_table``).

    python -m benchmarks.collect_costs --backend ccompiler -o costs.json
    python -m benchmarks.collect_costs --check light_squeezenet lenet
    python -m benchmarks.collect_costs --choices
    python -m benchmarks.collect_costs --backend dnnl --add-ops costs.json
    python -m benchmarks.collect_costs --backend dnnl --add-random 300 costs.json
    python -m benchmarks.collect_costs --complete costs_avx2.json --with costs.json

The first command builds models and layers with the backend alone, profiles each on one thread, models on two threads
too if there are two processors, and writes the table. The time of a kernel belongs to the op with most work; the other
ops of the kernel count as computed along with this op. ``--keep-layers`` takes the rows of a table in place of
new measurements of layers.
``--add-ops`` measures the ops of ``benchmarks.single_ops`` and adds their rows to a table of this machine;
``--add-random`` does this with seeded random ops.
``--complete`` adds the ops and forms of ops missing from a table, as near to the limits of its machine as in the other.
``--check`` prints the errors of the backends' estimates by op; ``--choices`` compares placements by cost with each
backend alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import byoc_core
import numpy as np
from byoc_core.authoring.cost_table import CostRow, CostTable, Setting
from byoc_core.errors import ByocError
from byoc_core.partitioning.op_sites import OpKey
from byoc_core.partitioning.policies.neighbours import Neighbours
from byoc_core.profiling import measure_peaks
from byoc_core.tuning.op_times import MeasuredOp

from benchmarks.cost_checks import check, choices
from benchmarks.cost_layers import Layer, list_drawn, list_layers, list_ops
from benchmarks.cost_measurement import (
    CALL_S,
    LAYER_S,
    MODEL_S,
    MODELS,
    NOISE_S,
    Findings,
    load_sized,
    measure_module,
)

__all__ = ["add_ops", "collect", "complete", "main"]

_MAX_ROWS = 600
"""Rows of an op in a table."""
_SAME = 0.25
"""Rows nearer than this, by features, are near duplicates."""
_OTHER_NUMBERS = 4.0
"""The distance of rows of other dtypes."""
_FAR = 3.0
"""Forms of an op farther than this from all measured forms are missing."""
_LARGE_NBYTES = 1 << 17
_SEED = 0
"""The seed of random ops in tables."""
_CACHED_S = 2e-11
"""Seconds of a byte read from a cache: less is no change of layout."""


def collect(
    backend: str,
    models: Sequence[str],
    present: CostTable | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
) -> CostTable:
    """Return the table of a backend, from models and single layers.

    Args:
        backend: the backend.
        models: the models.
        present: a table with rows, shares and borders in place of measured layers.
        options: of the backend.
    """
    peaks = measure_peaks(1)
    findings = Findings()
    for name in models:
        start = time.perf_counter()
        try:
            model, inputs = load_sized(name)
            module = byoc_core.from_onnx(model)
            ops, _ = measure_module(module, inputs, backend, MODEL_S, scale=True, options=options)
            parallel: list[MeasuredOp] = []
            if len(os.sched_getaffinity(0)) > 1:
                parallel, _ = measure_module(
                    module, inputs, backend, MODEL_S, scale=True, num_threads=2, options=options
                )
        except (ByocError, ValueError, KeyError) as error:
            print(f"  {name}: left out: {str(error)[:200]}", flush=True)
            continue
        _add(findings, ops, {op.key: op.seconds for op in parallel})
        print(f"  {name}: {len(ops)} ops, {time.perf_counter() - start:.1f} s", flush=True)
    _measure_layers(findings, list_layers() if present is None else (), backend, options)
    measured = {_untimed(row) for row in findings.rows}
    layer_rows = [] if present is None else [row for row in present.rows if _untimed(row) not in measured]
    rows = [row for group in _by_op([*findings.rows, *layer_rows]).values() for row in _thinned(group)]
    borders = _borders(findings.borders) if present is None else dict(present.borders)
    for op, per_byte in borders.items():
        print(f"  borders of {op}: {per_byte * 1e9:.3f} ns for each byte")
    shares = _summed_shares(findings.shares)
    return CostTable(round(peaks.flops), round(peaks.bandwidth), tuple(rows), shares, CALL_S, borders)


def add_ops(
    table: CostTable, layers: Iterable[Layer], backend: str, options: Mapping[str, str] = MappingProxyType({})
) -> CostTable:
    """Return a table with rows of single layers, measured now, on the machine of the table."""
    findings = Findings()
    _measure_layers(findings, layers, backend, options)
    measured = {_untimed(row) for row in findings.rows}
    rows = [*(row for row in table.rows if _untimed(row) not in measured), *findings.rows]
    return replace(table, rows=tuple(row for group in _by_op(rows).values() for row in _thinned(group)))


def _measure_layers(findings: Findings, layers: Iterable[Layer], backend: str, options: Mapping[str, str]) -> None:
    start = time.perf_counter()
    for name, module, inputs in layers:
        try:
            ops, found = measure_module(module, inputs, backend, LAYER_S, scale=False, options=options)
        except ByocError as error:
            print(f"  {name}: left out: {str(error)[:200]}", flush=True)
            continue
        _add(findings, [replace(op, neighbours=Neighbours()) for op in ops])
        for region in found.regions:
            if region.backend == backend and region.parts:
                with_ops = sum(part.seconds for part in region.parts if part.ops)
                findings.borders.append((name.split()[0], region.nbytes, region.seconds - with_ops))
    print(f"  layers: {time.perf_counter() - start:.1f} s; {len(findings.rows)} measured ops in all", flush=True)


def complete(table: CostTable, other: CostTable) -> CostTable:
    """Return a table with the rows of another table for missing ops and forms of ops.

    The new rows are as near to the limits of the machine as in the other table.
    """
    present = _by_op(table.rows)
    rows = list(table.rows)
    for row in other.rows:
        if all(_distance(row, own) > _FAR for own in present.get(row.op, ())):
            scale = _least_seconds(row, table) / _least_seconds(row, other)
            rows.append(replace(row, seconds=row.seconds * scale, parallel_seconds=row.parallel_seconds * scale))
    rows.sort(key=lambda row: row.op)
    return replace(table, rows=tuple(rows))


def _distance(row: CostRow, other: CostRow) -> float:
    differences = sum(abs(a - b) for a, b in zip(row.features, other.features, strict=True))
    return differences + _OTHER_NUMBERS * (row.kind_of_numbers != other.kind_of_numbers)


def _least_seconds(row: CostRow, table: CostTable) -> float:
    return max(row.flops / table.flops, row.nbytes / table.bandwidth, NOISE_S)


def _untimed(row: CostRow) -> CostRow:
    return replace(row, seconds=0.0, parallel_seconds=0.0)


def _add(
    findings: Findings, ops: Sequence[MeasuredOp], parallel: Mapping[OpKey, float | None] = MappingProxyType({})
) -> None:
    for op in ops:
        setting = Setting(*op.neighbours)
        if setting != Setting():
            counts = findings.shares.setdefault((op.binding.op.name, *setting), [0, 0])
            counts[0] += op.seconds is not None
            counts[1] += 1
        if op.seconds is not None:
            row = CostRow.of(op.binding, max(op.seconds, NOISE_S / 3), (), op.neighbours.maker)
            if row is not None:
                both = parallel.get(op.key)
                findings.rows.append(row if both is None else replace(row, parallel_seconds=max(both, NOISE_S / 3)))


def _summed_shares(shares: Mapping[tuple[str, str, str], Sequence[int]]) -> dict[tuple[str, str, str], tuple[int, int]]:
    """Return the shares with sums over readers, makers and both; settings equal to the sum are left out."""
    sums: dict[tuple[str, str, str], list[int]] = {}
    for (op, maker, reader), counts in shares.items():
        for key in ((op, maker, "*"), (op, "*", reader), (op, "*", "*")):
            total = sums.setdefault(key, [0, 0])
            total[0] += counts[0]
            total[1] += counts[1]
    rows_left = {key: (counts[0], counts[1]) for key, counts in shares.items()}
    return {**rows_left, **{key: (counts[0], counts[1]) for key, counts in sums.items() if counts[1] > 1}}


def _by_op(rows: Sequence[CostRow]) -> dict[str, list[CostRow]]:
    groups: dict[str, list[CostRow]] = {}
    for row in rows:
        groups.setdefault(row.op, []).append(row)
    return dict(sorted(groups.items()))


def _thinned(rows: Sequence[CostRow]) -> list[CostRow]:
    """Return the medians of equal rows, without near duplicates, spread over the features."""
    equal: dict[CostRow, list[CostRow]] = {}
    for row in rows:
        equal.setdefault(_untimed(row), []).append(row)
    merged = [_median(row, timed) for row, timed in equal.items()]
    merged.sort(key=lambda row: (row.flops, row.nbytes, row.dtypes, row.attributes, row.shapes, row.maker))
    features = np.array([row.features for row in merged])
    numbers = np.array([row.kind_of_numbers for row in merged])
    texts = [(row.attributes, row.maker) for row in merged]
    rows_left: list[int] = []
    least = np.full(len(merged), np.inf)
    while len(rows_left) < min(_MAX_ROWS, len(merged)):  # the farthest row from all rows_left rows comes next
        following = int(np.argmax(least)) if rows_left else 0
        if least[following] < _SAME:
            break
        rows_left.append(following)
        distances = np.abs(features - features[following]).sum(axis=1)
        distances += [0.0 if text == texts[following] else 0.5 for text in texts]
        distances += np.where(numbers == numbers[following], 0.0, _OTHER_NUMBERS)
        least = np.minimum(least, distances)
    return [merged[index] for index in sorted(rows_left)]


def _median(row: CostRow, timed: Sequence[CostRow]) -> CostRow:
    """Return a row with the median times of equal rows."""
    parallel = [other.parallel_seconds for other in timed if other.parallel_seconds]
    seconds = statistics.median(other.seconds for other in timed)
    return replace(row, seconds=seconds, parallel_seconds=statistics.median(parallel) if parallel else 0.0)


def _borders(borders: Sequence[tuple[str, float, float]]) -> dict[str, float]:
    """Return the seconds for a byte by op: medians of large regions of one op."""
    found: dict[str, list[float]] = {}
    for op, nbytes, seconds in borders:
        if nbytes > _LARGE_NBYTES:
            found.setdefault(op, []).append(seconds / nbytes)
    medians = {op: statistics.median(values) for op, values in sorted(found.items())}
    return {op: float(f"{value:.3g}") for op, value in medians.items() if value > _CACHED_S}


def main(arguments: Sequence[str]) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--backend", action="append", help="the backend to measure or check; may be repeated")
    parser.add_argument("-o", "--output", type=Path, help="the table to write")
    parser.add_argument("--option", action="append", metavar="NAME=VALUE", help="an option of the measured backend")
    parser.add_argument("--keep-layers", type=Path, metavar="TABLE", help="a table with rows in place of layers")
    parser.add_argument("--add-ops", type=Path, metavar="TABLE", help="a table to get rows of measured single ops")
    parser.add_argument("--add-random", nargs=2, metavar=("COUNT", "TABLE"), help="a table to get rows of random ops")
    parser.add_argument("--complete", type=Path, metavar="TABLE", help="a table with missing ops; with --with")
    parser.add_argument("--with", type=Path, metavar="TABLE", dest="other", help="the table with these ops")
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="models to measure")
    parser.add_argument("--check", nargs="*", metavar="MODEL", help="print the errors of estimates")
    parser.add_argument("--choices", nargs="*", metavar="MODEL", help="compare placements by cost with single backends")
    options = parser.parse_args(arguments)
    backends = options.backend or ["ccompiler", "dnnl"]
    if options.check is not None:
        check(options.check or MODELS, backends)
    if options.choices is not None:
        choices(options.choices or MODELS, backends)
    if len(backends) != 1 and (options.output or options.add_ops or options.add_random):
        parser.error("a table is of one backend: --backend NAME")
    pairs = dict(text.split("=", 1) for text in options.option or ())
    if options.add_ops is not None:
        _extend(options.add_ops, list_ops(), backends[0], pairs)
    if options.add_random is not None:
        _extend(Path(options.add_random[1]), list_drawn(int(options.add_random[0]), _SEED), backends[0], pairs)
    if (options.complete is None) != (options.other is None):
        parser.error("--complete needs --with, and --with needs --complete")
    if options.complete is not None:
        tables = [CostTable.from_text(path.read_text("utf-8"), str(path)) for path in (options.complete, options.other)]
        completed = complete(*tables)
        options.complete.write_text(completed.to_text(), encoding="utf-8")
        print(f"{options.complete}: {len(completed.rows) - len(tables[0].rows)} rows more")
    if options.output is not None:
        layers = options.keep_layers
        present = None if layers is None else CostTable.from_text(layers.read_text(encoding="utf-8"), str(layers))
        table = collect(backends[0], options.models, present, pairs)
        options.output.write_text(table.to_text(), encoding="utf-8")
        print(f"{options.output}: {len(table.rows)} rows, {options.output.stat().st_size} bytes")
    return 0


def _extend(path: Path, layers: Iterable[Layer], backend: str, options: Mapping[str, str]) -> None:
    table = add_ops(CostTable.from_text(path.read_text("utf-8"), str(path)), layers, backend, options)
    path.write_text(table.to_text(), encoding="utf-8")
    print(f"{path}: {len(table.rows)} rows, {path.stat().st_size} bytes")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
