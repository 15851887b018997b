"""Where text goes: results to stdout, everything about the way there to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["new_table", "open_console", "print_error", "print_warning", "show_bytes", "show_stages"]

_PIPED_WIDTH = 200


def open_console(stream: IO[str] | None = None) -> Console:
    """Gives a console for a stream (stdout by default); wide where no terminal limits the width."""
    from rich.console import Console

    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def new_table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """Gives an empty table whose cells wrap and are never cut off.

    Args:
        title: stands above it.
        columns: headings.
        right: the headings of columns of numbers.
    """
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in right else "left")
    return table


def print_error(text: str) -> None:
    """Prints an error to stderr as one paragraph."""
    console = open_console(sys.stderr)
    console.print("error: ", style="bold red", end="")
    console.print(text, soft_wrap=True)


def print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Prints a warning to stderr without the line of code that gave it; a ``warnings.showwarning``."""
    console = open_console(sys.stderr)
    console.print("warning: ", style="bold yellow", end="")
    console.print(str(message), soft_wrap=True)


@contextmanager
def show_stages(title: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Shows on stderr what is being done, if that is a terminal; gives a function to call with each stage's name.

    Args:
        title: stands before the stages' names.
        quiet: show nothing, because something else is printed to stderr.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _stage: None
        return
    with open_console(sys.stderr).status(title) as status:
        yield lambda stage: status.update(f"{title}: {stage}")


@contextmanager
def show_bytes(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on stderr, if that is a terminal; gives a function to call with bytes done and bytes in all."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=open_console(sys.stderr), transient=True) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
