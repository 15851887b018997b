"""The limit on nodes created during import of a model: an option shared by commands."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["MaxNodesOption"]

MaxNodesOption = Annotated[
    int | None,
    typer.Option(
        "--max-nodes",
        min=1,
        metavar="COUNT",
        help="The largest number of nodes represented by functions, loops and sequences of a model. Default: 100,000 "
        "and 16 for each node in the file.",
        show_default=False,
    ),
]
