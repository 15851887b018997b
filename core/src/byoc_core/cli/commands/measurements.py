"""``byoc measurements``: the database of measured ops."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from byoc_core.measurements import Measurements

__all__ = ["manage_measurements"]

Action = Literal["show", "export", "merge", "clear"]


def manage_measurements(
    action: Annotated[
        Action,
        typer.Argument(
            metavar="[show|export|merge|clear]",
            help="Show a summary; export to a file, or to the standard output; merge a file into the database; or "
            "remove the database.",
            show_default=False,
        ),
    ] = "show",
    file: Annotated[
        Path | None,
        typer.Argument(readable=False, metavar="[FILE.json]", help="The file of export and merge.", show_default=False),
    ] = None,
    database: Annotated[
        Path | None,
        typer.Option(
            "--database",
            metavar="FILE",
            readable=False,
            help="Another database than the user's, which is $BYOC_MEASUREMENTS, or lies in the cache folder.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show, export, merge or clear the database of measured ops, written by `byoc calibrate` and `byoc tune`.

    Placements by cost read the database. BYOC_MEASUREMENTS=0 switches the database off.
    """
    from byoc_core.cli.console import print_text
    from byoc_core.errors import OptionsError
    from byoc_core.file_replacement import replace_file
    from byoc_core.measurements import Measurements
    from byoc_core.measurements.measurement import export_text, read_text
    from byoc_core.printable import to_printable_lines

    measurements = Measurements("" if database is None else str(database))
    if action in ("show", "clear") and file is not None:
        raise OptionsError(f"byoc measurements {action}", "takes no file", got=str(file), hint="Use --database.")
    if action == "show":
        print_text(to_printable_lines(_summary(measurements)) + "\n")
    elif action == "clear":
        measurements.clear()
        print_text("the database is empty\n")
    elif action == "export":
        text = export_text(measurements.rows())
        if file is None:
            sys.stdout.write(text)
            return
        with replace_file(file) as output:
            output.write(text.encode())
        print_text(to_printable_lines(f"wrote {file}") + "\n")
    else:
        if file is None:
            raise OptionsError("byoc measurements merge", "needs the file to merge")
        rows, left_out = read_text(file.read_bytes(), f"measurements `{file}`")
        count = measurements.add(rows)
        lost = f", {left_out} left out: a value does not fit" if left_out else ""
        print_text(f"{len(rows)} measured ops read, {count} of them new or better{lost}\n")


def _summary(measurements: Measurements) -> str:
    from byoc_core.measurements.machine import processor_text
    from byoc_core.measurements.predictions import predict, table_of

    file = measurements.file
    if file is None:
        return "the database is switched off (BYOC_MEASUREMENTS=0)"
    rows = measurements.rows()
    processor = processor_text()
    own = [row for row in rows if row.processor == processor]
    lines = [f"{file}: {len(rows)} measured ops, {len(own)} of this machine ({processor})"]
    counts: dict[tuple[str, str, int], int] = {}
    for row in own:
        key = row.backend, row.version, row.threads
        counts[key] = counts.get(key, 0) + 1
    lines += [
        f"  {count} ops on {backend}, {version or 'not installed'}, {threads} threads"
        for (backend, version, threads), count in sorted(counts.items())
    ]
    table = table_of(predict(own))
    return "\n".join([*lines, *(["", table] if table else [])])
