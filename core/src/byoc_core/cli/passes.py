"""The effect of passes: the module after selected passes, and the time of each."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from byoc_core.cli.console import print_text
from byoc_core.errors import OptionsError, near_names

if TYPE_CHECKING:
    from byoc_core.transform import PassRun

__all__ = ["PassObserver", "PrintAfterOption", "TimingOption"]

PrintAfterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--print-after",
        metavar="PASS",
        help="Print the module to stderr after this pass; repeat for several, `all` for every pass.",
        show_default=False,
    ),
]
TimingOption = Annotated[bool, typer.Option("--timing", help="Print the time of each pass to stderr.")]

_ALL = "all"


class PassObserver:
    """An observer printing the requested information about passes to stderr.

    Args:
        print_after: names of passes, or ``all``.
        timing: whether :meth:`print_timing` prints anything.
        names: the passes to be run.

    Raises:
        OptionsError: a name matches no pass.
    """

    def __init__(self, print_after: Sequence[str], *, timing: bool, names: Sequence[str]) -> None:
        for name in print_after:
            if name not in (*names, _ALL):
                expected = ", ".join(dict.fromkeys((*names, _ALL)))
                hint = near_names(name, {*names, _ALL}) or None
                raise OptionsError("--print-after", f"unknown pass `{name}`", expected=expected, hint=hint)
        self._names = frozenset(names if _ALL in print_after else print_after)
        self._timing = timing
        self._seconds: list[tuple[str, float]] = []

    def __call__(self, run: PassRun) -> None:
        """Record a completed pass."""
        self._seconds.append((run.name, run.seconds))
        if run.name in self._names:
            print_text(f"# after {run.name}\n{run.module}\n", sys.stderr)

    def print_timing(self) -> None:
        """Print a table of the passes' times, if requested."""
        if not self._timing:
            return
        from byoc_core.cli.console import new_table, open_console

        total = sum(seconds for _, seconds in self._seconds)
        table = new_table("passes", "pass", "ms", "share", right=("ms", "share"))
        for name, seconds in (*self._seconds, ("total", total)):
            table.add_row(name, f"{seconds * 1e3:.2f}", f"{seconds / total:.1%}")
        open_console(sys.stderr).print(table)
