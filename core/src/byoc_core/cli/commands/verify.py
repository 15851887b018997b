"""``byoc verify``: every byte of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["verify_artifact"]


def verify_artifact(
    file: Annotated[Path, typer.Argument(readable=False, metavar="FILE", help="An artifact.", show_default=False)],
) -> None:
    """Checks every byte of an artifact. Runs nothing of it."""
    from byoc_core.artifact import verify
    from byoc_core.cli.console import open_console, show_bytes

    with show_bytes(f"verify {file.name}") as show:
        made = verify(file, progress=show)
    open_console().print(f"{made.path}: all {made.nbytes:,} bytes are as they were written", soft_wrap=True)
