"""``byoc export``: a model as C, as a static or shared library, or as a Python wheel."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from byoc_core.cli.bounds import MaxNodesOption
from byoc_core.cli.request import RUN_FLAGS, RequestFlags, takes_request
from byoc_core.cli.selection import AllowNativeOption, open_executable
from byoc_core.errors import OptionsError

if TYPE_CHECKING:
    from byoc_core.artifact import Executable

__all__ = ["ExportFormat", "export_model"]


class ExportFormat(StrEnum):
    """The formats of an export."""

    C = "c"
    C_ARCHIVE = "c-archive"
    LIBRARY = "library"
    WHEEL = "wheel"


_DEFAULT_OUTPUTS = {
    ExportFormat.C: "{name}_c",
    ExportFormat.C_ARCHIVE: "lib{name}.a",
    ExportFormat.LIBRARY: "{name}.so",
    ExportFormat.WHEEL: ".",
}


@takes_request(*RUN_FLAGS)
def export_model(
    model: Annotated[
        Path,
        typer.Argument(
            readable=False, metavar="MODEL", help="An artifact, or an ONNX model to compile first.", show_default=False
        ),
    ],
    format: Annotated[  # noqa: A002 - the name of the option
        ExportFormat,
        typer.Option(
            "--format",
            "-f",
            help="c: a folder of C sources with header, test program, Makefile and CMake file. c-archive: a static "
            "library and a header. library: a shared library for byoc, TVM FFI and C. wheel: a Python package with "
            "one function, for numpy alone.",
        ),
    ] = ExportFormat.C,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", readable=False, help="The folder or file to write.", show_default=False),
    ] = None,
    name: Annotated[str, typer.Option("--name", help="The prefix of C names, and the name of the package.")] = "model",
    max_size: Annotated[
        list[str] | None,
        typer.Option(
            "--max",
            metavar="NAME=SIZE",
            help="The largest value of a symbolic size, for a workspace of constant size; repeat for several.",
            show_default=False,
        ),
    ] = None,
    constants: Annotated[
        str,
        typer.Option(
            "--constants",
            help="Constants in C: array; object (a binary file included by the assembler); file (NAME.weights, "
            "mapped or read by the caller and passed to each run); auto.",
        ),
    ] = "auto",
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool",
            metavar="NAME=BYTES",
            help="A memory of a run, in order of preference; repeat for several: sram=65536, dram=any, "
            "flash=1000000:read (for constants only).",
            show_default=False,
        ),
    ] = None,
    arguments_in_pools: Annotated[
        bool, typer.Option("--arguments-in-pools", help="Plan inputs and outputs into the memories too.")
    ] = False,
    allow_native: AllowNativeOption = False,
    *,
    flags: RequestFlags,
    max_nodes: MaxNodesOption = None,
) -> None:
    """Export a model as C sources, as a library, or as a Python wheel.

    The C of the formats c, c-archive and wheel needs no heap, no threads and no byoc: all ops must be compiled to C.
    """
    from byoc_core.cli.console import open_console
    from byoc_core.cli.inputs import parse_sizes
    from byoc_core.cli.pools import parse_pool

    sizes = parse_sizes(max_size, "--max") or None
    if sizes and format in (ExportFormat.LIBRARY, ExportFormat.WHEEL):
        raise OptionsError("--max", f"has no effect on the format `{format.value}`", expected="--format c or c-archive")
    if constants != "auto" and format is not ExportFormat.C:
        raise OptionsError("--constants", f"has no effect on the format `{format.value}`", expected="--format c")
    if (pool or arguments_in_pools) and format is not ExportFormat.C:
        flag = "--pool" if pool else "--arguments-in-pools"
        raise OptionsError(flag, f"has no effect on the format `{format.value}`", expected="--format c")
    pools = [parse_pool(text) for text in pool or ()]
    target = output if output is not None else Path(_DEFAULT_OUTPUTS[format].format(name=name))
    executable = open_executable(model, flags, max_nodes, allow_native=allow_native)
    if format is ExportFormat.C:
        written = executable.export_c(
            target,
            name=name,
            max_sizes=sizes,
            constants=constants,
            pools=pools,
            places_arguments=arguments_in_pools,
        )
    else:
        written = _export(executable, format, target, name, sizes)
    console = open_console()
    if format is ExportFormat.C:
        nbytes = sum(path.stat().st_size for path in written)
        console.print(f"wrote {len(written)} files ({nbytes:,} bytes) to {target}", soft_wrap=True)
        console.print(f"next: make -C {target} check", soft_wrap=True)
        return
    for path in written:
        console.print(f"wrote {path}", soft_wrap=True)


def _export(
    executable: Executable,
    format: ExportFormat,  # noqa: A002 - as the option
    target: Path,
    name: str,
    max_sizes: dict[str, int] | None,
) -> tuple[Path, ...]:
    if format is ExportFormat.C_ARCHIVE:
        return executable.export_archive(target, name=name, max_sizes=max_sizes)
    if format is ExportFormat.WHEEL:
        return (executable.export_wheel(target, name=name),)
    executable.export_library(target)
    return (target,)
