"""Output of commands: results to stdout, everything else to stderr.

All output of commands passes through this module. Names come from strangers' models, artifacts and plugins. Terminal
control characters in names are therefore replaced, and rich markup in names is printed literally.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, TextIO

from byoc_core.printable import to_printable, to_printable_lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = ["new_table", "open_console", "print_error", "print_text", "print_warning", "show_bytes", "show_stages"]

_PIPED_WIDTH = 200


def open_console(stream: IO[str] | None = None) -> Console:
    """Return a console for a stream (stdout by default); wide if no terminal limits the width.

    The console prints no terminal control sequences except rich's own styles.
    """
    from rich.console import Console

    from byoc_core.cli.printable_console import PrintableHook

    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    console.push_render_hook(PrintableHook())
    return console


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print lines unchanged, whatever their width, to a stream (stdout by default)."""
    stream = stream or sys.stdout
    stream.write(to_printable_lines(text))
    stream.flush()


def new_table(title: str, *columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table with wrapping cells, never cut off.

    Args:
        title: the text above the table.
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
    """Print an error to stderr as a paragraph."""
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
    """Print a warning to stderr without its line of code; a ``warnings.showwarning``."""
    console = open_console(sys.stderr)
    console.print("warning: ", style="bold yellow", end="")
    console.print(str(message), soft_wrap=True)


@contextmanager
def show_stages(title: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show the current stage on stderr, if a terminal; yield a function to call with each stage's name.

    Args:
        title: stands before the stages' names.
        quiet: show nothing, to leave stderr to other output.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda _stage: None
        return
    from rich.text import Text

    # A status interprets plain strings as markup, whatever the setting of its console.
    with open_console(sys.stderr).status(Text(to_printable(title))) as status:
        yield lambda stage: status.update(Text(to_printable(f"{title}: {stage}")))


@contextmanager
def show_bytes(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on stderr, if a terminal; yield a function to call with bytes done and bytes in all."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=open_console(sys.stderr), transient=True) as progress:
        task = progress.add_task(to_printable(title), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
