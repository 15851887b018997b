"""``byoc debug``: a comparison of each region on its backend and on the host, with the same inputs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.request import DEBUG_FLAGS, RequestFlags, takes_request
from byoc_core.cli.selection import (
    DimOption,
    FunctionOption,
    InputOption,
    RandomInputsOption,
    RandomOption,
    SeedOption,
)

if TYPE_CHECKING:
    from byoc_core.debugging import DebugReport

__all__ = ["debug"]

_DIVERGES = 1
_SHOWN_OPS = 4


@takes_request(*DEBUG_FLAGS)
def debug(
    model: Annotated[Path, typer.Argument(readable=False, metavar="MODEL", help="An ONNX model.", show_default=False)],
    input_files: InputOption = None,
    random: RandomOption = None,
    random_inputs: RandomInputsOption = False,
    function: FunctionOption = "main",
    seed: SeedOption = 0,
    dim: DimOption = None,
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
    factor: Annotated[
        float,
        typer.Option(
            help="The permitted distance of a result from float64, as a multiple of the distance explained by rounding."
        ),
    ] = 4.0,
    rtol: Annotated[
        float | None,
        typer.Option(help="Judge by |error| <= atol + rtol * |expected| instead.", show_default=False),
    ] = None,
    atol: Annotated[float | None, typer.Option(help="See --rtol.", show_default=False)] = None,
    isolate: Annotated[
        bool,
        typer.Option(
            "--isolate/--no-isolate",
            help="Run regions in a separate process: a crash is then a divergence, and does not end the session.",
        ),
    ] = True,
    deadline: Annotated[
        float, typer.Option(help="Seconds for compiling and running a region in a separate process.")
    ] = 120.0,
    accumulate: Annotated[
        bool,
        typer.Option("--accumulate", help="Continue with the backends' values, and judge the results of the run too."),
    ] = False,
    narrow: Annotated[
        bool, typer.Option("--narrow/--no-narrow", help="Look for the op at fault in diverging regions.")
    ] = True,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="DIR",
            readable=False,
            help="For each diverging region, write a script reproducing the divergence into a folder in DIR.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Run each region of a model on its backend and on the host, and show where the results diverge.

    Without --input, --random and --random-inputs, all inputs are drawn at random.
    Exits with 0 if nothing diverges, and with 1 after a divergence or if nothing could be tested.
    An exception in a hook of a backend is an error or a finding, as with --strict of other commands.
    """
    import json

    from byoc_core.cli.console import print_text, show_stages
    from byoc_core.cli.inputs import check_missing, complete_inputs, parse_sizes, read_inputs
    from byoc_core.cli.selection import import_model
    from byoc_core.debugging import Tolerance, debug_model, save_reproducers, signature_of

    sizes = parse_sizes(dim)
    request = flags.to_request()
    with show_stages(model.name) as show:
        show("import")
        module = import_model(model, max_nodes)
        signature = signature_of(module[function])
        file_inputs = read_inputs(input_files, signature)
        check_missing(signature, file_inputs, random, draws_all=random_inputs or not (input_files or random))
        inputs, drawn_sizes = complete_inputs(signature, file_inputs, sizes, seed)
        report = debug_model(
            module,
            None,
            inputs,
            function=function,
            request=request,
            tolerance=Tolerance(factor, rtol, atol),
            isolate=isolate,
            deadline=deadline,
            accumulate=accumulate,
            narrow=narrow,
            progress=show,
        )
    if not as_json:
        _print(report, drawn_sizes)  # before writing files, which may fail
    folders = save_reproducers(report, save) if save is not None else ()
    if as_json:
        data = {**report.to_data(), "sizes": drawn_sizes, "saved": [str(folder) for folder in folders]}
        print_text(json.dumps(data, indent=2, allow_nan=False) + "\n")
    else:
        for folder in folders:
            print_text(f"wrote {folder / 'repro.py'}\n")
    if not report.is_right or not report.is_tested:
        raise typer.Exit(_DIVERGES)


def _print(report: DebugReport, sizes: dict[str, int]) -> None:
    from byoc_core.cli.console import open_console

    console = open_console()
    console.print(_new_table(report))
    for result in report.results:
        text = f"result `{result.name}` of the whole run: relative error {result.relative_error:.3g}"
        console.print(f"{text}, the host's own {result.host_relative_error:.3g}", soft_wrap=True)
    drawn = ", with " + ", ".join(f"{name}={size}" for name, size in sizes.items()) if sizes else ""
    console.print(report.summary() + drawn, soft_wrap=True)
    if report.details():
        console.print("\n" + report.details(), soft_wrap=True)


def _new_table(report: DebugReport) -> Any:
    from byoc_core.cli.console import new_table

    figures = ("abs error", "rel error", "host's own", "allowed")
    table = new_table(
        "Regions", "region", "backend", "ops", "calls", "worst output", *figures, "verdict", right=("calls", *figures)
    )
    for region in report.regions:
        worst = region.shown.worst if region.shown is not None else None
        names = [op.partition(" (")[0] for op in region.ops[:_SHOWN_OPS]]
        names += ["..."] if len(region.ops) > _SHOWN_OPS else []
        numbers = (
            (worst.max_abs_error, worst.relative_error, worst.host_relative_error, worst.allowed_relative_error)
            if worst is not None
            else ()
        )
        table.add_row(
            region.name,
            region.backend,
            f"{len(region.ops)}: {', '.join(names)}",
            str(len(region.checks)),
            worst.name if worst is not None else "",
            *([f"{number:.2e}" for number in numbers] or [""] * len(figures)),
            region.verdict,
        )
    return table
