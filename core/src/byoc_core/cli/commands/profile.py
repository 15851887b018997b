"""``byoc profile``: the time of each region, kernel and op of a model."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.console import print_text
from byoc_core.cli.request import EXPLAIN_FLAGS, RequestFlags, takes_request
from byoc_core.cli.selection import (
    AllowNativeOption,
    DimOption,
    FunctionOption,
    InputOption,
    RandomInputsOption,
    RandomOption,
    SeedOption,
    check_output,
    open_executable,
)

__all__ = ["profile_model"]


@takes_request(*EXPLAIN_FLAGS)
def profile_model(
    model: Annotated[
        Path,
        typer.Argument(
            readable=False, metavar="MODEL", help="An artifact, or an ONNX model to compile first.", show_default=False
        ),
    ],
    input_files: InputOption = None,
    random: RandomOption = None,
    random_inputs: RandomInputsOption = False,
    function: FunctionOption = "main",
    seed: SeedOption = 0,
    dim: DimOption = None,
    allow_native: AllowNativeOption = False,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="Threads of a call; by default all processors.", show_default=False),
    ] = None,
    calls: Annotated[
        int | None,
        typer.Option("--calls", min=1, help="Measured calls; by default calls for --seconds.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.0, help="Seconds of measured calls, 10 at least.")] = 1.0,
    parts: Annotated[int, typer.Option("--parts", min=0, help="Parts to print, slowest first.")] = 30,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE.json",
            readable=False,
            help="Write the latest calls for Perfetto (ui.perfetto.dev) and chrome://tracing.",
            show_default=False,
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="FILE.html",
            readable=False,
            help="Write a self-contained page: tables, and the graph coloured by backend and time.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the profile as JSON.")] = False,
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
) -> None:
    """Measure the time of each region, kernel and op in calls of a model, beside the limits of this machine.

    Without --input, --random and --random-inputs, all inputs are drawn at random. Times are means over the faster half
    of the measured calls. The roofline column is the least possible time for the operations and bytes over the measured
    time. More than 100% is possible: caches are faster than memory, and some algorithms need fewer operations.
    """
    from byoc_core.cli.console import show_stages
    from byoc_core.cli.inputs import check_missing, complete_inputs, first_call_sizes, parse_sizes, read_inputs
    from byoc_core.profiling import profile
    from byoc_core.profiling.text import render_profile

    sizes = parse_sizes(dim)
    for path, flag in ((trace, "--trace"), (page, "--html")):
        if path is not None:
            check_output(path, model, flag)
    executable = open_executable(model, flags, max_nodes, allow_native=allow_native)
    signature = executable.signature(function)
    file_inputs = read_inputs(input_files, signature)
    check_missing(signature, file_inputs, random, draws_all=random_inputs or not (input_files or random))
    inputs, _ = complete_inputs(signature, file_inputs, {**first_call_sizes(executable, function), **sizes}, seed)
    with show_stages(model.name) as show:
        found = profile(
            executable,
            inputs,
            function=function,
            num_calls=calls,
            seconds=seconds,
            num_threads=threads,
            progress=show,
        )
    if as_json:
        print_text(json.dumps(found.to_data(), indent=2, allow_nan=False) + "\n")
    else:
        print_text(render_profile(found, parts) + "\n")
    if trace is not None:
        _write(trace, json.dumps(found.to_trace(), allow_nan=False))
    if page is not None:
        _write(page, found.to_html(model.name))


def _write(path: Path, text: str) -> None:
    from byoc_core.file_replacement import replace_file

    with replace_file(path) as file:
        file.write(text.encode())
    print_text(f"wrote {path}\n", sys.stderr)
