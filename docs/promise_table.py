"""The table of the kit's promises, placed between two marks of docs/conformance.md."""

from __future__ import annotations

import re

from byoc_conformance import Level, all_promises

__all__ = ["MARKS", "with_promises"]

MARKS = ("<!-- promises: made by `python -m docs.generate` -->", "<!-- end of promises -->")


def with_promises(page: str) -> str:
    """Return the page with the table of all promises between its marks.

    Raises:
        ValueError: the marks are missing.
    """
    begin, end = MARKS
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must contain {begin} and {end} exactly once")
    pattern = re.compile(f"{re.escape(begin)}.*{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n\n{_tables()}\n{end}", page)


def _tables() -> str:
    lines = []
    for level in Level:
        promises = [promise for promise in all_promises() if promise.level is level]
        if promises:
            lines += [f"### {level}: {level.topic}", "", "| promise | the backend | deadline |", "|---|---|---|"]
            lines += [f"| `{p.level}-{p.name}` | {_cell(p.text)} | {p.deadline:g} s |" for p in promises]
            lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("``", "`")
