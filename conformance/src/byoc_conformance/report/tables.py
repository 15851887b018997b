"""The tables of the pages: rows of text, not yet escaped for any format."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc_core.plugin import BACKENDS_GROUP, RUNTIMES_GROUP
from byoc_core.printable import to_printable

from byoc_conformance.outcome import Status
from byoc_conformance.report.badge import describe_result
from byoc_conformance.report.model import Report, ReportItem
from byoc_conformance.verdict import Verdict

__all__ = [
    "SYMBOLS",
    "count_tests",
    "coverage_table",
    "environment_rows",
    "explain_symbols",
    "format_headline",
    "group_alike",
    "level_table",
    "list_names",
    "to_plain",
    "unclaimed_ops",
]

_MAX_NAMES = 5

SYMBOLS = {
    Status.PASSED: "✓",
    Status.DECLINED: "–",
    Status.NOT_COVERED: "·",
    Status.FAILED: "✗",
    Status.CRASHED: "☠",
    Status.HUNG: "∞",
}
"""The mark of each status in the coverage tables of the page and of the Markdown text."""


def format_headline(report: Report) -> str:
    """Return the result as a single line."""
    settings = report.settings
    companions = f" with {', '.join(settings.companions)}" if settings.companions else ""
    return f"{settings.backend}{companions}: {describe_result(report)}"


def level_table(report: Report) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return columns, a row for each level with tests and a row for all; absent statuses have no column."""
    shown = [verdict for verdict in Verdict if report.counts[verdict] or verdict is Verdict.PASSED]
    columns = ("level", "about", *(verdict.value.replace("-", " ") for verdict in shown))
    rows = [
        (summary.level.value, summary.topic, *(str(summary.counts[verdict]) for verdict in shown))
        for summary in report.levels
        if sum(summary.counts.values())
    ]
    return columns, [*rows, ("all", "", *(str(report.counts[verdict]) for verdict in shown))]


def count_tests(number: int) -> str:
    """Return ``1 test``, ``2 tests``."""
    return f"{number} test{'' if number == 1 else 's'}"


def list_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of further names."""
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def group_alike(items: Iterable[ReportItem]) -> list[tuple[str, ReportItem]]:
    """Return tests grouped by equal status, reason and text: for each group the names, and the first test.

    A backend with an import error breaks all tests alike.
    """
    groups: dict[tuple[str, str, str], list[ReportItem]] = {}
    for item in items:
        groups.setdefault((item.status, item.xfail, item.text), []).append(item)
    return [(list_names([item.id for item in group]), group[0]) for group in groups.values()]


def coverage_table(report: Report) -> tuple[list[str], list[tuple[str, list[Status | None]]]]:
    """Return the dtypes, and the status of each op in each dtype; ``None`` if no test reports a status.

    A backend of few ops declines many: the ops of :func:`unclaimed_ops` have no rows.
    """
    left_out = set(unclaimed_ops(report))
    found = {(cell.op, cell.dtype): cell.status for cell in report.coverage if cell.op not in left_out}
    dtypes = sorted({dtype for _, dtype in found})
    ops = sorted({op for op, _ in found})
    return dtypes, [(op, [found.get((op, dtype)) for dtype in dtypes]) for op in ops]


def unclaimed_ops(report: Report) -> list[str]:
    """Return the ops declined or not covered in every dtype."""
    claimed = {cell.op for cell in report.coverage if cell.status not in {Status.DECLINED, Status.NOT_COVERED}}
    return sorted({cell.op for cell in report.coverage} - claimed)


def to_plain(text: str) -> str:
    """Return text with a mark in place of characters unfit for a terminal or a page; lines are kept."""
    return "\n".join(map(to_printable, text.expandtabs().splitlines()))


def explain_symbols() -> str:
    """Return the legend of the coverage table."""
    words = ", ".join(f"{symbol} {status.value.replace('-', ' ')}" for status, symbol in SYMBOLS.items())
    return f"{words}; empty: no result. Of several results the worst counts."


def environment_rows(report: Report) -> list[tuple[str, str]]:
    """Return the tested backend, the environment, and the platform and time of the run."""
    environment, settings = report.environment, report.settings
    options = {settings.backend: settings.options, **settings.companion_options}
    settings_texts = [f"{name}.{key}={value!r}" for name, values in options.items() for key, value in values.items()]
    kinds = {BACKENDS_GROUP: "backend", RUNTIMES_GROUP: "runtime"}
    plugins = [
        (f"{kinds.get(plugin.group, plugin.group)} {plugin.name}", f"{plugin.distribution} {plugin.version}")
        for plugin in environment.plugins
    ]
    return [
        *plugins,
        ("options", ", ".join(settings_texts) or "none"),
        ("random examples", f"{settings.examples}, seed {settings.seed}"),
        ("byoc-conformance", environment.kit),
        ("byoc-core", environment.core),
        ("Python", environment.python),
        ("numpy", environment.numpy),
        ("onnx", environment.onnx or "not installed"),
        ("platform", environment.platform),
        ("CPU", environment.cpu),
        ("started", f"{report.started:%Y-%m-%d %H:%M:%S} UTC"),
        ("took", f"{(report.finished - report.started).total_seconds():.1f} s"),
    ]
