"""A badge with the level reached by a backend, in the format of shields.io and as a picture."""

from __future__ import annotations

import html

from byoc_conformance.promise import Level
from byoc_conformance.report.model import Report
from byoc_conformance.verdict import Verdict

__all__ = ["describe_result", "render_badge", "render_endpoint"]

_LABEL = "byoc conformance"
_COLORS = {"brightgreen": "#3c9a16", "green": "#6f8f12", "yellow": "#a37f00", "red": "#c0392b"}
_CHARACTER_PX = 6.8
_PADDING_PX = 10


def describe_result(report: Report) -> str:
    """Return the result in a few words: ``L4 412/412``.

    The first number counts passed tests, the second the judged tests: declined and uncovered tests are in neither. A
    run with left-out tests is marked as partial first.
    """
    passed = report.counts[Verdict.PASSED]
    if report.changes:
        return "suite changed"
    if not report.is_complete:
        return f"partial {passed}/{report.num_judged}, {report.counts[Verdict.NOT_RUN]} not run"
    return f"{report.level_reached or 'no level'} {passed}/{report.num_judged}"


def render_endpoint(report: Report) -> dict[str, object]:
    """Return the data of an endpoint badge for shields.io."""
    return {"schemaVersion": 1, "label": _LABEL, "message": describe_result(report), "color": _color(report)}


def render_badge(report: Report) -> str:
    """Return the badge as SVG without external references."""
    message = describe_result(report)
    left, right = (round(len(text) * _CHARACTER_PX) + _PADDING_PX for text in (_LABEL, message))
    width = left + right
    title = html.escape(f"{_LABEL}: {message}")

    def text(value: str, start: int, room: int) -> str:
        length = room - _PADDING_PX
        middle = start + room / 2
        return f'<text x="{middle:g}" y="14" textLength="{length}">{html.escape(value)}</text>'

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<clipPath id="r"><rect width="{width}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{_COLORS[_color(report)]}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f"{text(_LABEL, 0, left)}{text(message, left, right)}</g></svg>\n"
    )


def _color(report: Report) -> str:
    if report.is_red:
        return "red"
    if not report.is_complete:
        return "yellow"
    return "brightgreen" if report.level_reached is list(Level)[-1] else "green"
