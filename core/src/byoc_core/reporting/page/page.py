"""The offload report as a page: the data is embedded as JSON, and the page loads nothing from anywhere.

The report may come from an artifact and hold any JSON. Every field is brought to the type expected by the script of the
page (``page.js``), and the script puts text into the page as text only. A field used by the script must be added here.

With measured times (:class:`byoc_core.reporting.page.heat.Heat`), the page has tables of the times (``heat.js``), and
the graph is coloured by time or by backend.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import Any

from byoc_core.printable import to_printable, to_printable_lines
from byoc_core.reporting.page.heat import Heat, add_heat
from byoc_core.reporting.page.layout import lay_out
from byoc_core.reporting.shares import HOST_NAME, items_of
from byoc_core.reporting.text import flops_count, render_report

__all__ = ["render_page"]

_MAX_LINKS = 64
"""The most links of control flow followed for one operand: more than programs nest."""


def render_page(data: Mapping[str, Any], title: str, heat: Heat | None = None) -> str:
    """Return a self-contained HTML page with a report; the page needs no network.

    Args:
        data: the report.
        title: of the page, e.g. the model's name.
        heat: measured times.

    Cost: ``O(n log n)`` in ops and operands.
    """
    rows = items_of(data.get("ops"))
    report = render_report(data)
    nodes = _nodes(rows, items_of(data.get("links")), data)
    content: dict[str, Any] = {
        "host": HOST_NAME,
        "backends": [
            {"name": _text(b.get("name")), "share": _number(b.get("share"))}
            | {key: _number(b.get(key)) for key in ("ops", "regions")}
            for b in items_of(data.get("backends"))
        ],
        "summary": [
            {"backend": _text(r.get("backend")), "code": _text(r.get("code"))}
            | {key: _number(r.get(key)) for key in ("ops", "share")}
            for r in items_of(data.get("summary"))
        ],
        "borders": [
            {key: _text(b.get(key)) for key in ("before", "after", "code", "text")} | {"ops": _texts(b.get("ops"))}
            for b in items_of(data.get("borders"))
        ],
        "ops": nodes,
    }
    if heat is not None:
        content["heat"] = add_heat(heat, rows, nodes)
    headline = report.partition("\n")[0] if heat is None else to_printable_lines(heat.headline)
    fallback = report if heat is None else f"{to_printable_lines(heat.text)}\n\n{report}"
    return Template(_read("page.html")).substitute(
        title=html.escape(to_printable(title)),
        headline=html.escape(headline),
        fallback=f"<pre>{html.escape(fallback)}</pre>",
        style=_read("page.css"),
        script=_read("page.js") if heat is None else f"{_read('heat.js')}\n{_read('page.js')}",
        data=json.dumps(content, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c"),
    )


def _read(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


def _nodes(
    rows: Sequence[Mapping[str, Any]], links: Sequence[Mapping[str, Any]], data: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the ops with the producers of operands and with positions: functions one below the other."""
    nodes = [_node(row) | {"flops": _text(flops_count(row.get("flops"), data)) or "?"} for row in rows]
    makers = {
        (_text(row.get("function")), name): index
        for index, row in enumerate(rows)
        for name in (_text(row.get("name")), *_texts(row.get("outputs")))
    }
    passed = {(_text(link.get("function")), _text(link.get("name"))): _texts(link.get("reads")) for link in links}
    members: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        found = {source for name in node["inputs"] for source in _find_makers(node["function"], name, makers, passed)}
        node["sources"] = sorted(found - {index})
        members.setdefault(node["function"], []).append(index)
    first_layer = 0
    for group in members.values():
        position = {index: number for number, index in enumerate(group)}
        edges = [(position[source], position[index]) for index in group for source in nodes[index]["sources"]]
        for index, (column, layer) in zip(group, lay_out(len(group), edges), strict=True):
            nodes[index].update(column=round(column, 2), layer=first_layer + layer)
        first_layer = 2 + max(nodes[index]["layer"] for index in group)
    return nodes


def _find_makers(
    function: str, name: str, makers: Mapping[tuple[str, str], int], passed: Mapping[tuple[str, str], Sequence[str]]
) -> list[int]:
    """Return the ops producing a value; for a value passed on by control flow, the ops producing the source values."""
    pending, seen = [name], {name}
    found = []
    while pending and len(seen) <= _MAX_LINKS:
        key = function, pending.pop()
        if key in makers:
            found.append(makers[key])
        else:
            new = [other for other in passed.get(key, ()) if other not in seen]
            seen.update(new)
            pending += new
    return found


def _node(row: Mapping[str, Any]) -> dict[str, Any]:
    reasons = [
        {key: _text(reason.get(key)) for key in ("backend", "pattern", "code", "text")}
        | {"ops": _texts(reason.get("ops"))}
        for reason in items_of(row.get("reasons"))
    ]
    node = {key: _text(row.get(key)) for key in ("function", "op", "name", "outcome", "region", "composite")}
    if node["outcome"] == HOST_NAME:
        node["region"] = ""  # leftover regions of the host are of no interest
    return node | {
        "code": _text(row.get("code")),
        "text": _text(row.get("text")),
        "location": _text(row.get("location")),
        "share": _number(row.get("share")),
        "inputs": _texts(row.get("inputs")),
        "reasons": reasons,
    }


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**30:
        return f"{value:,}"
    return to_printable(value.replace("\n", " ")) if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [_text(item) for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []


def _number(value: object) -> float | int:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= 10**15 else 0  # type: ignore[operator, return-value]
