"""``byoc inspect``: the contents and needs of an artifact, or of an ONNX model before compilation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.selection import AllowNativeOption
from byoc_core.cli.session_machines import MachineOption
from byoc_core.errors import OptionsError

__all__ = ["inspect_file"]

_TOP = 10


def inspect_file(
    file: Annotated[
        Path, typer.Argument(readable=False, metavar="FILE", help="An ONNX model, or an artifact.", show_default=False)
    ],
    program: Annotated[bool, typer.Option("--program", help="Also print the VM program of an artifact.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Also list the files inside an artifact.")] = False,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            "--dim",
            metavar="NAME=SIZE",
            help="The value of a symbolic size in the memory of a call and in FLOPs; 1 by default.",
            show_default=False,
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            "--top",
            min=0,
            metavar="COUNT",
            help=f"The number of weights and nodes of a model to list, largest first. Default: {_TOP}.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    max_nodes: MaxNodesOption = None,
    machine: MachineOption = False,
    allow_native: AllowNativeOption = False,
) -> None:
    """Show the contents and the needs of a model or of an artifact.

    Compiles nothing, and runs no code from the file without --machine.

    For an ONNX model: producer, operator sets, inputs and outputs; each operator with its number of nodes and their
    import: by the core, by a function, by a plugin, by the package onnx, or missing; the weights; FLOPs by op and by
    node; an estimate of the memory of a call; the origins of dynamic sizes. FLOPs and memory are those of the model as
    written, before the compiler's passes. A model with missing operators is shown too, without FLOPs and memory.

    For an artifact: signatures, memory, modules, needed runtimes, the request and the report of the compilation.
    """
    from byoc_core.artifact import inspect
    from byoc_core.cli.artifact_tables import artifact_to_data, print_artifact
    from byoc_core.cli.console import print_text
    from byoc_core.cli.inputs import parse_sizes
    from byoc_core.cli.selection import is_artifact, refuse_flags
    from byoc_core.cli.session_machines import find_machines, machines_to_data, print_machines

    sizes = parse_sizes(dim)
    if file.suffix != ".byoc" and not is_artifact(file):
        _refuse_artifact_flags(file, {"--program": program, "--members": members, "--machine": machine})
        _inspect_model(file, sizes, _TOP if top is None else top, max_nodes, as_json=as_json)
        return
    refuse_flags(file, {"--top": top is not None, "--max-nodes": max_nodes is not None})
    artifact = inspect(file)
    machines = find_machines(file, None, allow_native=allow_native) if machine else {}
    if as_json:
        data = artifact_to_data(artifact, sizes)
        print_text(json.dumps({**data, "machines": machines_to_data(machines)} if machine else data, indent=2) + "\n")
    else:
        print_artifact(artifact, sizes, program=program, members=members)
        print_machines(machines)


def _inspect_model(file: Path, sizes: Mapping[str, int], top: int, max_nodes: int | None, *, as_json: bool) -> None:
    from byoc_core.cli.console import print_text, show_stages
    from byoc_core.cli.model_tables import print_model
    from byoc_core.frontend.onnx.model_import import needing_onnx

    with needing_onnx():
        from byoc_core.frontend.onnx.inspection import inspect_model

    with show_stages(file.name) as show:
        model = inspect_model(file, sizes, max_nodes=max_nodes, num_heaviest=top, progress=show)
    if as_json:
        print_text(json.dumps(model.to_data(top), indent=2) + "\n")
    else:
        print_model(model, top)


def _refuse_artifact_flags(model: Path, flags: Mapping[str, bool]) -> None:
    for flag in (flag for flag, is_given in flags.items() if is_given):
        raise OptionsError(flag, f"does not apply to the ONNX model `{model}`", expected="an artifact")
