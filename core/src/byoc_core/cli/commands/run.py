"""``byoc run``: execution of a model or an artifact."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.request import RUN_FLAGS, RequestFlags, takes_request
from byoc_core.cli.selection import (
    AllowNativeOption,
    DimOption,
    FunctionOption,
    InputOption,
    RandomInputsOption,
    RandomOption,
    SeedOption,
    open_executable,
)

__all__ = ["run_model"]


@takes_request(*RUN_FLAGS)
def run_model(
    model: Annotated[
        Path,
        typer.Argument(
            readable=False, metavar="MODEL", help="An artifact, or an ONNX model to compile first.", show_default=False
        ),
    ],
    input_files: InputOption = None,
    random: RandomOption = None,
    random_inputs: RandomInputsOption = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", readable=False, help="Write the outputs to this .npz file.", show_default=False),
    ] = None,
    function: FunctionOption = "main",
    seed: SeedOption = 0,
    dim: DimOption = None,
    allow_native: AllowNativeOption = False,
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
) -> None:
    """Run a model and summarise the outputs.

    Each input is given, or drawn at random on request by --random or --random-inputs.
    """
    from byoc_core.cli.console import open_console
    from byoc_core.cli.inputs import (
        check_missing,
        complete_inputs,
        describe_drawn,
        first_call_sizes,
        parse_sizes,
        read_inputs,
    )
    from byoc_core.cli.outputs import new_summary, save_outputs
    from byoc_core.cli.selection import check_output
    from byoc_core.vm import VirtualMachine

    sizes = parse_sizes(dim)
    if output is not None:
        check_output(output, model)
    executable = open_executable(model, flags, max_nodes, allow_native=allow_native)
    signature = executable.signature(function)
    file_inputs = read_inputs(input_files, signature)
    check_missing(signature, file_inputs, random, draws_all=random_inputs)
    inputs, drawn_sizes = complete_inputs(
        signature, file_inputs, {**first_call_sizes(executable, function), **sizes}, seed
    )
    machine = VirtualMachine(executable)
    start = time.perf_counter()
    results = machine.run(function, inputs)
    elapsed = time.perf_counter() - start
    arrays = results if isinstance(results, tuple) else (results,)
    outputs = dict(zip([spec.name for spec in signature.outputs], arrays, strict=True))

    console = open_console()
    text = f"ran `{function}` in {elapsed * 1e3:.2f} ms"
    if drawn_sizes:
        text += ", with " + ", ".join(f"{name}={size}" for name, size in drawn_sizes.items())
    console.print(text, soft_wrap=True)
    if drawn := describe_drawn(signature, inputs, file_inputs, seed):
        console.print(drawn, soft_wrap=True)
    console.print(new_summary(outputs))
    if output is not None:
        save_outputs(output, outputs)
        console.print(f"wrote {output}", soft_wrap=True)
