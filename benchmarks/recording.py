"""Figures of `benchmarks.run` as a dated result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from benchmarks.pairing import describe_machine
from benchmarks.results import Column, Result, Row, Table

__all__ = ["to_result", "to_tables"]

UNITS = {"ratios": "ratio", "shares": "share", "microseconds": "us", "bytes": "bytes"}
"""The units of tables without the figure's unit, by the last word of the key."""


def to_result(subject: str, figures: Mapping[str, Mapping[str, Any]]) -> Result:
    """Return the tables of some figures as a result of today, on this machine.

    Raises:
        ValueError: a figure states no unit, or has no table.
    """
    machine = describe_machine()
    versions = {"Python": machine["python"], **machine["versions"]}
    for figure in figures.values():
        versions |= figure.get("versions", {})
    return Result(
        subject=subject,
        title=f"Figures of {', '.join(figures)}",
        date=datetime.now(UTC).date(),
        machine=f"{machine['processor']}, {machine['num_cpus']} CPUs, {machine['system']}",
        versions={name: version for name, version in versions.items() if version != "not installed"},
        tables=tuple(table for name, figure in figures.items() for table in to_tables(name, figure)),
    )


def to_tables(name: str, figure: Mapping[str, Any]) -> list[Table]:
    """Return the tables of a figure: the entries made by `benchmarks.tables.table_to_json`.

    The rows are ways, and the columns models, unless the figure states ``rows_are``.

    Raises:
        ValueError: the figure states no ``unit``, or has no table.
    """
    unit = figure.get("unit")
    tables = {key: value for key, value in figure.items() if _is_table(value)}
    if not isinstance(unit, str) or not tables:
        raise ValueError(f"{name}: cannot be recorded without a table with a unit")
    rows_are = figure.get("rows_are", "way")
    return [
        _table(f"{name}: {key}", name, UNITS.get(key.rpartition(" ")[2], unit), rows_are, rows)
        for key, rows in tables.items()
    ]


def _table(title: str, name: str, unit: str, rows_are: str, rows: Mapping[str, Mapping[str, Any]]) -> Table:
    models = tuple(dict.fromkeys(model for row in rows.values() for model in row))
    return Table(
        title=title,
        command=f"python -m benchmarks.run {name}",
        rows_are=rows_are,
        columns=tuple(Column(name=model) for model in models),
        rows=tuple(
            Row(
                name=variant,
                unit=unit,
                figures=tuple(_figure(row[model]) if model in row else None for model in models),
            )
            for variant, row in rows.items()
        ),
    )


def _is_table(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(map(_is_row, value.values()))


def _is_row(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(cell, Mapping) and "median" in cell for cell in value.values())


def _figure(samples: Mapping[str, float]) -> str:
    return " ± ".join(_texts(samples))


def _texts(samples: Mapping[str, float]) -> Iterator[str]:
    yield _number(samples["median"])
    if samples["rounds"] > 1:
        yield _number(samples["spread"])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
