"""The assembled command line; the commands are in :mod:`byoc_core.cli.own_commands`."""

from __future__ import annotations

from typing import Annotated

import typer

from byoc_core.cli.installed_commands import CommandGroup
from byoc_core.cli.own_commands import CONTEXT, MARKUP, print_examples
from byoc_core.version import __version__

__all__ = ["app"]

app = typer.Typer(
    name="byoc",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=MARKUP,
    context_settings=CONTEXT,
)


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"byoc {__version__}")
        raise typer.Exit


@app.callback(
    epilog=print_examples(
        "byoc demo                                  check the installation",
        "byoc compile model.onnx -o model.byoc      for all installed backends",
        "byoc run model.byoc --input x=photo.npy    run, and summarise the outputs",
        "byoc explain model.onnx --only-host        why ops stayed on the host",
    )
)
def _byoc(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (as with the variable BYOC_DEBUG).")
    ] = False,
) -> None:
    """Compile neural networks with the installed backends, and run the results."""
