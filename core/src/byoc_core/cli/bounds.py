"""How much compiling may make of what a model declares: options that commands share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

__all__ = ["Bounds", "MaxFoldCostOption", "MaxNodesOption"]

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
MaxFoldCostOption = Annotated[
    int | None,
    typer.Option(
        "--max-fold-cost",
        min=0,
        metavar="COUNT",
        help="The most bytes and FLOPs that computing constants may take. Without it, 512 Mi and 16 for each byte of "
        "the model's constants.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What both options say; ``None`` where the default holds."""

    max_nodes: int | None = None
    max_fold_cost: int | None = None
