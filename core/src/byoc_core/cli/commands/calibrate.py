"""``byoc calibrate``: the ops of all families measured on this machine, for placements by cost."""

from __future__ import annotations

from typing import Annotated

import typer

from byoc_core.cli.request import RequestFlags, takes_request

__all__ = ["calibrate_machine"]

_FLAGS = ("backend", "option", "strict")


@takes_request(*_FLAGS)
def calibrate_machine(
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads",
            min=1,
            help="Threads of a call; by default a single thread, then the default number of this process.",
            show_default=False,
        ),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="The budget of the calibration.")] = 60.0,
    keep: Annotated[
        bool, typer.Option("--keep/--no-measurements", help="Whether the database keeps the measured ops.")
    ] = True,
    *,
    flags: RequestFlags,
) -> None:
    """Measure the ops of each backend on this machine, once, for placements by cost.

    Layers of all families of ops are compiled and measured. The database of measured ops keeps the times, and
    builds with `--backend auto` choose backends by these times. `byoc measurements` shows, exports, merges and
    clears the database. The table shows estimated over measured times, before and after the calibration. Ctrl-C
    ends the calibration and keeps the measured ops.
    """
    from byoc_core.cli.console import print_text
    from byoc_core.measurements import Measurements
    from byoc_core.printable import to_printable, to_printable_lines
    from byoc_core.tuning import calibrate

    database = Measurements() if keep else None
    found = calibrate(
        num_threads=threads,
        seconds=seconds,
        measurements=database,
        request=flags.to_request(),
        progress=lambda line: print_text(f"{to_printable(line)}\n"),
    )
    end = "" if found.is_complete else " (the calibration ended early)"
    file = None if database is None else database.file
    location = "kept nowhere" if file is None else f"kept in {file}"
    print_text(to_printable_lines(f"\n{found}\n\n{len(found.rows)} measured ops{end}, {location}".lstrip("\n")) + "\n")
