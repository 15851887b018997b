"""Where text goes: results to stdout, everything about the way there to stderr.

Everything that a command prints goes through here. Names come from strangers' models, artifacts and plugins: whatever a
terminal would obey is replaced, whatever rich would take for markup is printed as it is.
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
    """Return a console for a stream (stdout by default); wide where no terminal limits the width.

    The console prints nothing that a terminal obeys, but for rich's own styles.
    """
    from rich.console import Console

    from byoc_core.cli.printable_console import PrintableHook

    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPED_WIDTH
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    console.push_render_hook(PrintableHook())
    return console


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print lines as they are, whatever their width, to a stream (stdout by default)."""
    stream = stream or sys.stdout
    stream.write(to_printable_lines(text))
    stream.flush()


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
    from rich.text import Text

    # A status takes plain strings for markup, whatever its console does.
    with open_console(sys.stderr).status(Text(to_printable(title))) as status:
        yield lambda stage: status.update(Text(to_printable(f"{title}: {stage}")))


@contextmanager
def show_bytes(title: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a bar on stderr, if that is a terminal; gives a function to call with bytes done and bytes in all."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=open_console(sys.stderr), transient=True) as progress:
        task = progress.add_task(to_printable(title), total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
