"""Benchmarks as text: a table with a row for each engine, threads and sizes, and the differences of outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.printable import to_printable_lines
from byoc_core.profiling.columns import table_lines, time_text

if TYPE_CHECKING:
    from byoc_core.benchmarking.results import Benchmark, BenchmarkRow
    from byoc_core.benchmarking.statistics import Ratio

__all__ = ["HEADS", "LEFT", "headline", "notes", "render_benchmark", "row_texts"]

HEADS = (
    *("sizes", "threads", "engine", "median", "+-", "p90", "p99", "calls/s", "items/s"),
    *("load", "first call", "memory", "time / byoc", "outputs"),
)
"""The heads of the columns."""
LEFT = ("sizes", "threads", "engine", "outputs")
"""The heads of columns of words."""


def render_benchmark(benchmark: Benchmark) -> str:
    """Return a benchmark as readable text."""
    table = table_lines(HEADS, [row_texts(row) for row in benchmark.rows], left=3)
    return to_printable_lines("\n".join([headline(benchmark), "", *table, *notes(benchmark)]))


def headline(benchmark: Benchmark) -> str:
    """Return a sentence about machine and engines."""
    engines = ", ".join(f"{engine.name} {engine.version}".strip() for engine in benchmark.engines)
    return f"`{benchmark.function}` on {benchmark.machine}: {engines}"


def row_texts(row: BenchmarkRow) -> tuple[str, ...]:
    """Return the texts of a row, in the order of the columns."""
    sizes = ", ".join(f"{name}={size}" for name, size in row.sizes.items())
    names = (sizes, str(row.num_threads), row.engine)
    if row.latency is None or row.load_seconds is None or row.first_call_seconds is None:
        return (*names, *[""] * (len(HEADS) - len(names) - 1), "failed")
    latency = row.latency
    return (
        *names,
        time_text(latency.median),
        f"{latency.quartile_deviation / latency.median:.1%}" if latency.median else "",
        time_text(latency.p90),
        time_text(latency.p99),
        _rate_text(row.calls_per_second),
        _rate_text(row.items_per_second),
        time_text(row.load_seconds),
        time_text(row.first_call_seconds),
        "-" if row.peak_nbytes is None else f"{row.peak_nbytes / 2**20:.1f} MiB",
        "-" if row.ratio is None else _ratio_text(row.ratio),
        "" if row.outputs is None else "agree" if row.outputs.agrees else "differ",
    )


def notes(benchmark: Benchmark) -> list[str]:
    """Return a line for each difference of outputs, and for each failure."""
    lines = []
    for row in benchmark.rows:
        settings = ", ".join([*(f"{name}={size}" for name, size in row.sizes.items()), f"threads {row.num_threads}"])
        if row.failure:
            lines.append(f"{row.engine}, {settings}: failed: {row.failure}")
        elif row.outputs is not None and not row.outputs.agrees:
            lines.append(f"{row.engine}, {settings}: outputs differ: {row.outputs.problem}")
    return lines


def _rate_text(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _ratio_text(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
