"""The report as Markdown, for a README or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from byoc_conformance.report.model import Report, ReportItem
from byoc_conformance.report.tables import (
    SYMBOLS,
    coverage_table,
    environment_rows,
    explain_symbols,
    format_headline,
    group_alike,
    level_table,
    to_plain,
    unclaimed_ops,
)

__all__ = ["render_markdown"]


def render_markdown(report: Report) -> str:
    """Return the report in short form, without passed tests."""
    parts = [f"# Conformance of {_cell(format_headline(report))}", _table(*level_table(report))]
    if report.changes:
        parts.append("\n".join(["## The suite was changed", "", *(f"- {_cell(text)}" for text in report.changes)]))
    parts += _section("Broken", report.red_items)
    if report.xfailed_items:
        expected_failures = [(names, item.xfail, item.text) for names, item in group_alike(report.xfailed_items)]
        parts += ["## Expected to be broken", _table(("test", "why", "observation"), expected_failures)]
    dtypes, ops = coverage_table(report)
    if report.coverage:
        parts.append("## Coverage")
    if ops:
        rows = [(op, *("" if status is None else SYMBOLS[status] for status in cells)) for op, cells in ops]
        parts += [explain_symbols(), _table(("op", *dtypes), rows)]
    if unclaimed := unclaimed_ops(report):
        parts.append(f"Declined or not covered in every dtype: {_cell(', '.join(unclaimed))}.")
    parts += ["## Tested with", _table(("component", "version or value"), environment_rows(report))]
    return "\n\n".join(parts) + "\n"


def _section(title: str, items: Iterable[ReportItem]) -> list[str]:
    blocks = []
    for names, item in group_alike(items):
        blocks += [f"### {_cell(names)}: {item.status}", _fenced(item.text)]
    return [f"## {title}", *blocks] if blocks else []


def _fenced(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{to_plain(text)}\n{fence}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """Return text escaped for a line of Markdown."""
    if text == "---":
        return text
    return re.sub(r"([\\`*_\[\]<>|#~&])", r"\\\1", " ".join(to_plain(text).split()))
