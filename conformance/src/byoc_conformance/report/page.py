"""The report as a self-contained page without other files, network or scripts."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from importlib import resources
from string import Template

from byoc_conformance.outcome import Status
from byoc_conformance.report.model import Report, ReportItem
from byoc_conformance.report.tables import (
    SYMBOLS,
    count_tests,
    coverage_table,
    environment_rows,
    explain_symbols,
    format_headline,
    group_alike,
    level_table,
    to_plain,
    unclaimed_ops,
)

__all__ = ["render_page"]


def render_page(report: Report) -> str:
    """Return an HTML page with the whole report. All content is escaped text: no text of a backend becomes markup."""
    sections = [
        _list_changes(report),
        _list_items("Broken", report.red_items),
        _list_items("Expected to be broken", report.xfailed_items),
        _section("Coverage", _coverage(report)) if report.coverage else "",
        _section("Tested with", _table((), environment_rows(report))),
        _section("All tests", "".join(_list_level(report, summary.level.value) for summary in report.levels)),
    ]
    return Template(_read("page.html")).substitute(
        title=_text(f"Conformance of {report.settings.backend}"),
        headline=_text(format_headline(report)),
        result="red" if report.is_red else "partial" if not report.is_complete else "good",
        style=_read("page.css"),
        levels=_table(*level_table(report)),
        sections="".join(sections),
    )


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _text(value: str) -> str:
    """Return text escaped for HTML."""
    return html.escape(to_plain(value))


def _section(title: str, content: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{content}</section>\n"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{_text(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{_text(first)}</th>{"".join(f"<td>{_text(value)}</td>" for value in rest)}</tr>'
        for first, *rest in rows
    )
    return _wide(f"<thead><tr>{head}</tr></thead>" if head else "", body)


def _wide(head: str, body: str, kind: str = "plain") -> str:
    return f'<div class="wide"><table class="{kind}">{head}<tbody>{body}</tbody></table></div>'


def _list_changes(report: Report) -> str:
    lines = "".join(f"<li>{_text(change)}</li>" for change in report.changes)
    return _section("The suite was changed", f"<ul>{lines}</ul>") if lines else ""


def _list_items(title: str, items: Sequence[ReportItem]) -> str:
    return (
        _section(f"{title} ({len(items)})", "".join(_describe(*group) for group in group_alike(items))) if items else ""
    )


def _describe(names: str, item: ReportItem) -> str:
    reason = f"<p>Why: {_text(item.xfail)}</p>" if item.xfail else ""
    text = f"<pre>{_text(item.text)}</pre>" if item.text else ""
    return f"<article><h3><code>{_text(names)}</code> {_mark(item)}</h3>{reason}{text}</article>"


def _mark(item: ReportItem) -> str:
    return f'<span class="mark {item.status}">{_text(item.status.replace("-", " "))}</span>'


def _coverage(report: Report) -> str:
    dtypes, rows = coverage_table(report)
    unclaimed = unclaimed_ops(report)
    names = _text(", ".join(unclaimed))
    note = f"<p>Declined or not covered in every dtype: <code>{names}</code>.</p>" if unclaimed else ""
    if not rows:
        return note
    head = "".join(f'<th scope="col">{_text(dtype)}</th>' for dtype in dtypes)
    body = "".join(
        f'<tr><th scope="row"><code>{_text(op)}</code></th>{"".join(map(_cell, cells))}</tr>' for op, cells in rows
    )
    table = _wide(f'<thead><tr><th scope="col">op</th>{head}</tr></thead>', body, "coverage")
    return f"<p>{_text(explain_symbols())}</p>{table}{note}"


def _cell(status: Status | None) -> str:
    if status is None:
        return "<td></td>"
    word = status.value.replace("-", " ")
    return f'<td class="{status}" title="{word}" aria-label="{word}">{SYMBOLS[status]}</td>'


def _list_level(report: Report, level: str) -> str:
    items = [item for item in report.items if item.level == level]
    rows = "".join(
        f'<tr><th scope="row"><code>{_text(item.id)}</code></th><td>{_mark(item)}</td>'
        f'<td class="number">{item.seconds:.2f} s</td><td>{_text(item.text)}</td></tr>'
        for item in items
    )
    return f"<details><summary>{level}: {count_tests(len(items))}</summary>{_wide('', rows)}</details>" if items else ""
