"""Docstrings and data as Markdown, for the generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["table", "to_markdown"]


def to_markdown(text: str) -> str:
    """Return the text of a docstring with its markup converted to Markdown."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table with texts of docstrings as cells."""
    lines = [columns, ["---"] * len(columns), *rows]
    return [f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines]


def _cell(text: str) -> str:
    return " ".join(to_markdown(text).split()).replace("|", "\\|")
