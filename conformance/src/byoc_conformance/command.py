"""``byoc conformance``: the kit on the command line. What it needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

__all__ = ["app"]


class _RunUnlessNamed(TyperGroup):
    """A group whose command ``run`` need not be written."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts ``run`` before arguments that name no command."""
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
    """Holds a backend to what every byoc backend promises."""


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
        "byoc conformance --list                             what is promised",
        "byoc conformance compare old.json new.json          what got better and worse",
    ),
)
def run_kit(
    backend: _BackendArgument = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="DIR", help="Write conformance.json, .html, .md and badges there."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            metavar="KEY=VALUE",
            help="An option of the backend, as JSON or text; OTHER.KEY=VALUE for one given with --with. Repeat for "
            "several.",
        ),
    ] = None,
    companions: Annotated[
        list[str] | None,
        typer.Option(
            "--with", metavar="OTHER", help="A backend that is asked after it in every build; repeat for several."
        ),
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
            help="Run the tests of these names only: * stands for any text, ? for one character, brackets for "
            "themselves. Repeat for several.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="How many tests run at a time.")] = 1,
    examples: Annotated[int, typer.Option("--examples", min=1, help="Random examples for each property.")] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of all random numbers.")] = 0,
    patience: Annotated[float, typer.Option("--patience", min=0.01, help="Makes all deadlines longer.")] = 1.0,
    xfail: Annotated[
        Path | None,
        typer.Option(
            "--xfail",
            metavar="FILE",
            help="A TOML file whose table `xfail` says by test which are expected to be broken, and why.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report (or the list) as JSON.")] = False,
    list_promises: Annotated[
        bool, typer.Option("--list", help="List promises, those of --level and --only, and stop.")
    ] = False,
) -> None:
    """Holds a backend to what every byoc backend promises, in worker processes, each test with a deadline.

    Prints what came of each level, and every broken test. What the backend declines with a reason, or claims nothing
    of, is not broken. Exits with 1 where a test is broken, or is expected to be and is not. Ctrl-C writes the report of
    what was done so far. The word run need not be written.
    """
    from byoc_conformance import command_runs

    if list_promises:
        command_runs.print_promises(level or (), only or (), as_json=as_json)
        return
    if backend is None:
        raise typer.BadParameter("which backend?", param_hint="NAME")
    choices = command_runs.Choices(
        backend=backend,
        options=tuple(option or ()),
        companions=tuple(companions or ()),
        levels=tuple(level or ()),
        patterns=tuple(only or ()),
        jobs=jobs,
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
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the changes as JSON.")] = False,
) -> None:
    """Says what got better and worse from one report to another, and what appeared and vanished.

    Exits with 1 where something got worse, or appeared and is red.
    """
    from byoc_conformance.command_runs import print_comparison

    if print_comparison(before, after, as_json=as_json):
        raise typer.Exit(1)
