"""The commands put together."""

from __future__ import annotations

from typing import Annotated

import typer

from byoc_core.cli.commands.backends import list_backends
from byoc_core.cli.commands.compile import compile_model
from byoc_core.cli.commands.debug import debug
from byoc_core.cli.commands.demo import run_demo
from byoc_core.cli.commands.doctor import examine
from byoc_core.cli.commands.explain import explain_offload
from byoc_core.cli.commands.inspect import inspect_artifact
from byoc_core.cli.commands.lint_backend import lint_installed_backend
from byoc_core.cli.commands.new_backend import write_new_backend
from byoc_core.cli.commands.run import run_model
from byoc_core.cli.commands.verify import verify_artifact
from byoc_core.cli.installed_commands import CommandGroup
from byoc_core.version import __version__

__all__ = ["app"]

app = typer.Typer(
    name="byoc",
    cls=CommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _examples(*lines: str) -> str:
    return "\n\n".join(["Examples:", *lines])


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"byoc {__version__}")
        raise typer.Exit


@app.callback(
    epilog=_examples(
        "byoc demo                                  see that it works",
        "byoc compile model.onnx -o model.byoc      for all installed backends",
        "byoc run model.byoc --input x=photo.npy    run, and see what comes out",
        "byoc explain model.onnx --only-host        why ops stayed on the host",
    )
)
def _byoc(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (so does the variable BYOC_DEBUG).")
    ] = False,
) -> None:
    """Compiles neural networks with the backends that are installed, and runs them."""


app.command("backends", epilog=_examples("byoc backends"))(list_backends)
app.command("doctor", epilog=_examples("byoc doctor"))(examine)
app.command("demo", epilog=_examples("byoc demo", "byoc demo --backend NAME"))(run_demo)
app.command(
    "compile",
    epilog=_examples(
        "byoc compile model.onnx -o model.byoc",
        "byoc compile model.onnx -o model.byoc --backend FIRST --backend SECOND",
        "byoc compile model.onnx -o model.byoc --backend NAME --option NAME.opt_level=3 --fallback error",
        "byoc compile model.onnx -o model.byoc --force 'conv_*=NAME' --force softmax_0=host --min-ops 3",
        "byoc compile model.onnx -o model.byoc --require-offload 0.9",
        "byoc compile model.onnx -o model.byoc --timing --print-after Simplify",
    ),
)(compile_model)
app.command(
    "run",
    epilog=_examples(
        "byoc run model.byoc",
        "byoc run model.byoc --input x=photo.npy --input mask=arrays.npz -o outputs.npz",
        "byoc run model.onnx --dim n=8 --seed 1",
    ),
)(run_model)
app.command(
    "explain",
    epilog=_examples(
        "byoc explain model.onnx --backend NAME",
        "byoc explain model.onnx --backend FIRST --backend SECOND --policy cost",
        "byoc explain model.onnx --stop-at pool_3 --allow NAME=add,'nn.*'",
        "byoc explain model.byoc --only-host",
        "byoc explain model.onnx --dim n=8 --require-offload 90%",
        "byoc explain model.onnx --ir > partitioned.py",
        "byoc explain model.onnx --json > report.json",
    ),
)(explain_offload)
app.command(
    "debug",
    epilog=_examples(
        "byoc debug model.onnx --backend NAME",
        "byoc debug model.onnx --input x=photo.npy --dim n=8 --save failures",
        "byoc debug model.onnx --accumulate --json > report.json",
    ),
)(debug)
app.command("inspect", epilog=_examples("byoc inspect model.byoc", "byoc inspect model.byoc --program"))(
    inspect_artifact
)
app.command("verify", epilog=_examples("byoc verify model.byoc"))(verify_artifact)
app.command(
    "lint-backend",
    epilog=_examples(
        "byoc lint-backend NAME",
        "byoc lint-backend NAME --compile --strict      before a release",
        "byoc lint-backend NAME --json > findings.json",
    ),
)(lint_installed_backend)
app.command(
    "new-backend",
    epilog=_examples(
        "byoc new-backend mynpu                     an engine of yours runs graphs",
        "byoc new-backend mydsp --kind csource      you print C",
        "byoc new-backend mynpu --output npu        into the folder npu",
    ),
)(write_new_backend)
