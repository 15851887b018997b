"""Columns of times, as text."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["table_lines", "time_text"]


def time_text(seconds: float) -> str:
    """Return a time with a unit, milliseconds or microseconds."""
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} us"


def table_lines(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> list[str]:
    """Return aligned lines: the first `left` columns and the last to the left, all others to the right."""
    widths = [max(len(row[column]) for row in (heads, *rows)) for column in range(len(heads))]
    last = len(heads) - 1
    return [
        "  ".join(
            text.ljust(widths[column]) if column < left or column == last else text.rjust(widths[column])
            for column, text in enumerate(row)
        ).rstrip()
        for row in (heads, *rows)
    ]
