"""How much importing may make of what a model declares: an option that commands share."""

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
        help="The most nodes that functions, loops and sequences of a model may stand for. Without it, 100,000 and 16 "
        "for each node in the file.",
        show_default=False,
    ),
]
