"""``byoc conformance``: the kit on the command line. Dependencies are imported when a command runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

__all__ = ["app"]


class _RunUnlessNamed(TyperGroup):
    """A command group with ``run`` as its default command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``run`` before arguments without the name of a command."""
        named = [] if args and args[0] in self.commands else ["run"]
        return super().parse_args(ctx, [*named, *args])


app = typer.Typer(
    name="conformance",
    cls=_RunUnlessNamed,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _examples(*lines: str) -> str:
    return "\n\n".join(["Examples:", *lines])


@app.callback()
def _conformance() -> None:
    """Hold a backend to the promises common to all byoc backends."""


_BackendArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="An installed backend.", show_default=False)
]


@app.command(
    "run",
    no_args_is_help=True,
    epilog=_examples(
        "byoc conformance NAME",
        "byoc conformance NAME --report out                  pages, data and badges",
        "byoc conformance NAME --level L2 --only '*conv*'      a part",
        "byoc conformance NAME --option opt_level=3 --with OTHER",
        "byoc conformance NAME --only 'L2-op\\[abs]'             one test",
        "byoc conformance --list                             the promises",
        "byoc conformance compare old.json new.json          improvements and regressions",
    ),
)
def run_kit(
    backend: _BackendArgument = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write conformance.json, .html, .md and badges into this folder."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help="An option of the backend, as JSON or text; OTHER.KEY=VALUE for a backend given with --with. Repeat "
            "for several.",
        ),
    ] = None,
    companions: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="OTHER", help="A backend asked after NAME in every build; repeat for several."),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option("--level", metavar="LEVEL", help="Run this level only, L0 to L4; repeat for several."),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="GLOB",
            help="Run only tests with these names: * stands for any text, ? for one character, brackets for "
            "themselves. Repeat for several.",
        ),
    ] = None,
    exceptions: Annotated[
        list[str] | None,
        typer.Option("--except", metavar="GLOB", help="Leave out tests with these names; repeat for several."),
    ] = None,
    num_parallel: Annotated[int, typer.Option("--jobs", "-j", min=1, help="The number of tests run at a time.")] = 1,
    examples: Annotated[int, typer.Option("--examples", min=1, help="Random examples for each property.")] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random numbers.")] = 0,
    patience: Annotated[float, typer.Option("--patience", min=0.01, help="A factor for all deadlines.")] = 1.0,
    xfail: Annotated[
        Path | None,
        typer.Option(
            "--xfail",
            metavar="FILE",
            help="A TOML file with a table `xfail`: tests expected to be broken, with reasons.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report (or the list) as JSON.")] = False,
    list_promises: Annotated[
        bool, typer.Option("--list", help="List the promises selected by --level, --only and --except, and stop.")
    ] = False,
) -> None:
    """Hold a backend to the promises common to all byoc backends, in worker processes, with a deadline for each test.

    Prints the outcome of each level, and every broken test. Work declined by the backend with a reason, or not claimed
    at all, is not broken. Exits with 1 if a test is broken, or is expected to be and is not. Ctrl-C writes the report
    of all tests done so far. The word run may be omitted.
    """
    from byoc_conformance import command_runs

    if list_promises:
        command_runs.print_promises(level or (), only or (), exceptions or (), as_json=as_json)
        return
    if backend is None:
        raise typer.BadParameter("no backend given; name an installed backend", param_hint="NAME")
    choices = command_runs.Choices(
        backend=backend,
        options=tuple(option or ()),
        companions=tuple(companions or ()),
        levels=tuple(level or ()),
        patterns=tuple(only or ()),
        exceptions=tuple(exceptions or ()),
        num_parallel=num_parallel,
        examples=examples,
        seed=seed,
        patience=patience,
        overrides=xfail,
        folder=report,
        as_json=as_json,
    )
    if command_runs.run(choices):
        raise typer.Exit(1)


@app.command(
    "compare",
    epilog=_examples(
        "byoc conformance compare old/conformance.json new/conformance.json",
        "byoc conformance compare old.json new.json --json > changes.json",
    ),
)
def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A conformance.json.", show_default=False)],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another conformance.json.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the changes as JSON.")] = False,
) -> None:
    """List improvements and regressions from one report to another, and appeared and vanished entries.

    Exits with 1 if something got worse, or appeared and is red.
    """
    from byoc_conformance.command_runs import print_comparison

    if print_comparison(before, after, as_json=as_json):
        raise typer.Exit(1)
