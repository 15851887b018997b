"""``byoc new-backend``: a generator for the package of a new backend."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from byoc_core.cli.console import print_text
from byoc_core.scaffold.kind import Kind

__all__ = ["write_new_backend"]


def write_new_backend(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A lower-case word; the package is called byoc-NAME.", show_default=False),
    ],
    kind: Annotated[
        Kind,
        typer.Option(
            "--kind",
            help="graph: your kernels run one by one (a library of functions over arrays). engine: your library "
            "compiles and runs whole graphs (an inference engine, a device). csource: you print C. lowering: "
            "your library is C functions, called over memory planned by byoc.",
        ),
    ] = Kind.GRAPH,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The folder to write into; by default byoc-NAME in the current folder.",
        ),
    ] = None,
) -> None:
    """Write a complete backend, ready to install and then change file by file.

    The backend takes a few ops and one pattern, correctly, and has tests: the conformance kit's and its own.
    Nothing is overwritten.
    """
    from byoc_core.scaffold.package import write_package

    folder = output or Path(f"byoc-{name}")
    written = write_package(name, kind, folder)
    steps = {
        f"cd {folder}": "",
        'pip install -e ".[test]"': "byoc finds the package by entry points",
        "pytest": "the unchanged package passes the conformance kit",
        f"byoc lint-backend {name} --compile": "finds faults not covered by tests",
    }
    print_text(f"Wrote {len(written)} files into {folder}. Next:\n\n")
    for command, why in steps.items():
        print_text(f"  {command:<40}{why}".rstrip() + "\n")
    print_text(f"\nThen change src/byoc_{name}/{kind.first_file} first; README.md describes each file.\n")
