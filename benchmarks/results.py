"""Dated figures: the files of ``benchmarks/results``, and the page generated from these files.

    python -m benchmarks.results        write benchmarks/RESULTS.md

A file is called ``YYYY-MM-DD-<subject>.json`` and holds a `Result`. Figures are text, to keep the published digits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

__all__ = ["NOT_KEPT", "Column", "Figure", "Result", "Row", "Table", "load_results", "results_page", "to_json"]

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results"
PAGE = BENCHMARKS / "RESULTS.md"
LINE_LENGTH = 120

NOT_KEPT = "not kept"
"""The first words of a command if no program measures the figures of the table again."""

Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
_NUMBER = r"-?\d[\d,]*(\.\d+)?(e-?\d+)?"
_SAMPLES = rf"{_NUMBER}( ± {_NUMBER})?"
Figure = Annotated[str, StringConstraints(pattern=rf"^{_SAMPLES}( to {_SAMPLES})?$")]
"""A number, with the spread if known (``1.41 ± 0.06``), or the least and the greatest of several runs."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Column(_Record):
    """A column of a table; the unit if all figures of the column share a unit."""

    name: Text
    unit: Text | None = None


class Row(_Record):
    """A row of a table: a figure for each column, None if not measured.

    Attributes:
        unit: the unit of all figures of the row, if the columns have none.
    """

    name: Text
    unit: Text | None = None
    figures: tuple[Figure | None, ...]


class Table(_Record):
    """Figures printed by one command.

    Attributes:
        command: the command for measuring again; ``not kept``, perhaps with ``: how``, if there is no command.
        rows_are: the heading of the first column.
        note: conditions of the measurement not stated by the command or the headings.
    """

    title: Text
    command: Text
    rows_are: Text
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.rows or not self.columns:
            raise ValueError("a table has at least one row and one column")
        for row in self.rows:
            if len(row.figures) != len(self.columns):
                raise ValueError(f"{row.name}: {len(row.figures)} figures for {len(self.columns)} columns")
        if len({row.name for row in self.rows}) != len(self.rows):
            raise ValueError("two rows have the same name")
        units = {kind: {part.unit is not None for part in parts} for kind, parts in self._parts.items()}
        if sorted(units.values(), key=str) != [{False}, {True}]:
            raise ValueError("either each column has a unit, and no row, or each row, and no column")
        return self

    @property
    def _parts(self) -> Mapping[str, tuple[Column, ...] | tuple[Row, ...]]:
        return {"columns": self.columns, "rows": self.rows}


class Result(_Record):
    """The figures of one day, on one machine.

    Attributes:
        subject: the end of the file's name.
        date: the day of the measurement, else of the commit publishing the figures.
        machine: the machine as described for the measurement; None without a description.
        versions: the version of each program involved; None for a version not written down.
    """

    schema_version: Literal[1] = 1
    subject: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    title: Text
    date: date
    machine: Text | None
    versions: Mapping[str, str | None]
    tables: tuple[Table, ...]

    @property
    def file_name(self) -> str:
        """The required name of the file."""
        return f"{self.date.isoformat()}-{self.subject}.json"


def to_json(result: Result) -> str:
    """Return the text of a result file."""
    fields = result.model_dump(mode="json")
    for table in fields["tables"]:
        for part in (table, *table["columns"], *table["rows"]):
            for name in ("unit", "note"):
                if name in part and part[name] is None:
                    del part[name]
    return _json_text(fields) + "\n"


def _json_text(value: object, indent: int = 0) -> str:
    """Return JSON with each part on a single line if the part fits."""
    text = json.dumps(value, ensure_ascii=False)
    if indent + len(text) <= LINE_LENGTH or not isinstance(value, dict | list):
        return text
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {_json_text(part, indent + 1)}" for name, part in value.items()]
    else:
        parts = [_json_text(part, indent + 1) for part in value]
    inside = f",\n{' ' * (indent + 1)}".join(parts)
    return f"{text[0]}\n{' ' * (indent + 1)}{inside}\n{' ' * indent}{text[-1]}"


def load_results(folder: Path = RESULTS) -> tuple[Result, ...]:
    """Return the results of a folder in the order of the file names.

    Raises:
        ValueError: a file does not fit the schema, or the file name does not match date and subject.
    """
    results = []
    for path in sorted(folder.glob("*.json")):
        result = Result.model_validate_json(path.read_text("utf-8"))
        if path.name != result.file_name:
            raise ValueError(f"{path.name}: expected the name {result.file_name}")
        results.append(result)
    return tuple(results)


def results_page(results: tuple[Result, ...]) -> str:
    """Return the text of the page of all results, the newest first."""
    newest_first = sorted(results, key=lambda result: (-result.date.toordinal(), result.subject))
    lines = [
        "# Results",
        "",
        "Generated by `python -m benchmarks.results` from the files of `results`. Each section is one file:",
        "one day, one machine. Figures of two machines, or of two days, are not comparable; ratios within a table are.",
        "A spread (`±`) is half the distance between the quartiles. An empty cell was not measured.",
        "[How to measure](README.md).",
        "",
        "| result | date | machine |",
        "|---|---|---|",
    ]
    lines += [f"| [{r.title}](#{_anchor(r)}) | {r.date} | {_machine(r)} |" for r in newest_first]
    for result in newest_first:
        lines += ["", *_section(result)]
    return "\n".join(lines) + "\n"


def _heading(result: Result) -> str:
    return f"{result.date} {result.subject}"


def _anchor(result: Result) -> str:
    return _heading(result).replace(" ", "-")


def _machine(result: Result) -> str:
    return result.machine or "(not written down)"


def _section(result: Result) -> Iterator[str]:
    yield from (f"## {_heading(result)}", "", f"{result.title}. Machine: {_machine(result)}.")
    if result.versions:
        versions = (f"{name} {version or '(unknown)'}" for name, version in result.versions.items())
        yield f"Versions: {', '.join(versions)}."
    for table in result.tables:
        command = f": {table.command}" if table.command.startswith(NOT_KEPT) else f": `{table.command}`"
        yield from ("", f"**{table.title}**{command}")
        if table.note is not None:
            yield from ("", table.note)
        yield ""
        yield from _lines(table)


def _lines(table: Table) -> Iterator[str]:
    has_row_units = table.rows[0].unit is not None
    headings = [c.name if c.unit is None else f"{c.name}, {c.unit}" for c in table.columns]
    yield _line(table.rows_are, *["unit"] * has_row_units, *headings)
    yield "|" + "---|" * (1 + has_row_units + len(headings))
    for row in table.rows:
        yield _line(row.name, *[row.unit or ""] * has_row_units, *(figure or "" for figure in row.figures))


def _line(*cells: str) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(results_page(load_results()), "utf-8")


if __name__ == "__main__":
    main()
