"""The report in the form held by an artifact: tables of many rows as columns, equal values once.

A row repeats the names of the keys, and most values of a row occur in other rows too. As columns a report of ten
thousand ops takes about a quarter of the room.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["pack_report", "unpack_report"]

_TABLES = ("ops", "regions", "borders", "links")
_ABSENT = -1
"""The index of a key absent from a row."""


def pack_report(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report with the tables as columns.

    A table becomes ``{"count": rows, "columns": {key: {"values": distinct values, "index": which one each row has}}}``;
    without an ``index`` the rows have the values in order.
    """
    return {**report, **{key: _pack(report[key]) for key in _TABLES if _is_table(report.get(key))}}


def unpack_report(packed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the report before :func:`pack_report`: columns become rows; a table of any other form stays unchanged."""
    tables = {key: _unpack(packed[key]) for key in _TABLES if isinstance(packed.get(key), dict)}
    return {**packed, **tables}


def _is_table(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(row, dict) and row for row in value)


def _pack(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return {"count": len(rows), "columns": {key: _pack_column(key, rows) for key in keys}}


def _pack_column(key: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values: list[Any] = []
    positions: dict[object, int] = {}
    index = []
    for row in rows:
        if key not in row:
            index.append(_ABSENT)
            continue
        value = row[key]
        # 1 and True are equal, and not the same JSON; so are 0.0 and -0.0.
        identity = (type(value), value) if isinstance(value, str | int) else json.dumps(value, sort_keys=True)
        position = positions.setdefault(identity, len(values))
        if position == len(values):
            values.append(value)
        index.append(position)
    return {"values": values} if index == list(range(len(values))) else {"values": values, "index": index}


def _unpack(table: dict[str, Any]) -> Any:
    count, columns = table.get("count"), table.get("columns")
    if table.keys() != {"count", "columns"} or type(count) is not int or not isinstance(columns, dict):
        return table
    if bool(count) != bool(columns):
        return table
    rows: list[dict[str, Any]] = []
    for key, column in columns.items():
        values = column.get("values") if isinstance(column, dict) else None
        if not isinstance(values, list):
            return table
        index = column.get("index", range(len(values)))
        if not isinstance(index, list | range) or len(index) != count:
            return table
        if not all(type(i) is int and _ABSENT <= i < len(values) for i in index):
            return table
        rows = rows or [{} for _ in range(count)]
        for row, position in zip(rows, index, strict=True):
            if position != _ABSENT:
                row[key] = values[position]
    return rows
