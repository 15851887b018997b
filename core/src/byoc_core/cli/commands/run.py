"""``byoc run``: from inputs to outputs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc_core.cli.bounds import Bounds, MaxFoldCostOption, MaxNodesOption
from byoc_core.cli.selection import (
    BackendOption,
    DimOption,
    FunctionOption,
    InputOption,
    OptionOption,
    RandomInputsOption,
    RandomOption,
    SeedOption,
    StrictOption,
)

if TYPE_CHECKING:
    from byoc_core.artifact import Executable

__all__ = ["run_model"]


def run_model(
    model: Annotated[
        Path,
        typer.Argument(
            readable=False, metavar="MODEL", help="An artifact, or an ONNX model to compile first.", show_default=False
        ),
    ],
    given: InputOption = None,
    random: RandomOption = None,
    random_inputs: RandomInputsOption = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", readable=False, help="Write the outputs to this .npz file.", show_default=False),
    ] = None,
    function: FunctionOption = "main",
    seed: SeedOption = 0,
    dim: DimOption = None,
    allow_native: Annotated[
        bool, typer.Option("--allow-native", help="Load native code of an artifact that you did not compile.")
    ] = False,
    backend: BackendOption = None,
    option: OptionOption = None,
    strict: StrictOption = False,
    max_nodes: MaxNodesOption = None,
    max_fold_cost: MaxFoldCostOption = None,
) -> None:
    """Runs a model and sums up what comes out.

    Each input is given, or drawn at random where --random or --random-inputs asks for it.
    """
    from byoc_core.cli.console import open_console
    from byoc_core.cli.inputs import check_missing, complete_inputs, describe_drawn, parse_sizes, read_inputs
    from byoc_core.cli.outputs import new_summary, save_outputs
    from byoc_core.cli.selection import check_output
    from byoc_core.vm import VirtualMachine

    sizes = parse_sizes(dim)
    if output is not None:
        check_output(output, model)
    bounds = Bounds(max_nodes, max_fold_cost)
    executable = _open(model, backend, option, bounds, strict=strict, allow_native=allow_native)
    signature = executable.signature(function)
    known = read_inputs(given, signature)
    check_missing(signature, known, random, draws_all=random_inputs)
    inputs, drawn_sizes = complete_inputs(signature, known, sizes, seed)
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
    if drawn := describe_drawn(signature, inputs, known, seed):
        console.print(drawn, soft_wrap=True)
    console.print(new_summary(outputs))
    if output is not None:
        save_outputs(output, outputs)
        console.print(f"wrote {output}", soft_wrap=True)


def _open(
    model: Path,
    backend: list[str] | None,
    option: list[str] | None,
    bounds: Bounds,
    *,
    strict: bool,
    allow_native: bool,
) -> Executable:
    from byoc_core.artifact import load
    from byoc_core.cli.selection import build_model, is_artifact
    from byoc_core.errors import OptionsError, UntrustedCodeError

    if not is_artifact(model):
        return build_model(model, backend, option, "allow", bounds=bounds, strict=strict)
    if backend or option:
        raise OptionsError("--backend and --option", f"do not apply to `{model}`, which is compiled already")
    if strict:
        raise OptionsError("--strict", f"does not apply to `{model}`, which is compiled already")
    if bounds != Bounds():
        raise OptionsError("--max-nodes and --max-fold-cost", f"do not apply to `{model}`, which is compiled already")
    try:
        return load(model, allow_native=allow_native)
    except UntrustedCodeError as error:
        hint = "Pass --allow-native if you trust where it comes from."
        raise UntrustedCodeError(error.where, error.problem, hint=hint) from error
