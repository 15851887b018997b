"""Tables of figures: ways to call in rows, models in columns, and the cost of each further region of a chain."""

from __future__ import annotations

from typing import Any

from benchmarks.pairing import Samples

__all__ = ["SHORTEST", "SLOPE", "Table", "add_slopes", "show", "table_to_json"]

Table = dict[str, dict[str, Samples]]
"""Samples by way, then by model."""
SHORTEST, LONGEST, NUM_FURTHER = "add", "regions-50", 49
SLOPE = "each further"
_WIDTH = 13


def add_slopes(table: Table) -> None:
    """Add a column: the cost of each region of the longest chain beyond the shortest, round by round."""
    for row in table.values():
        if SHORTEST in row and LONGEST in row:
            pairs = zip(row[SHORTEST].values, row[LONGEST].values, strict=True)
            row[SLOPE] = Samples(tuple((above - below) / NUM_FURTHER for below, above in pairs))


def show(title: str, table: Table, number: str = ".3g") -> None:
    """Print the medians of a table in the given number format."""
    columns = tuple(dict.fromkeys(model for row in table.values() for model in row))
    print(f"  {title:48}" + "".join(f"{model:>{_WIDTH}}" for model in columns))
    for row_name, row in table.items():
        cells = (f"{row[model].median:{_WIDTH}{number}}" if model in row else " " * _WIDTH for model in columns)
        print(f"    {row_name:46}{''.join(cells)}".rstrip())


def table_to_json(table: Table) -> dict[str, Any]:
    """Return a table as plain values."""
    return {row_name: {model: found.to_json() for model, found in row.items()} for row_name, row in table.items()}
