"""``byoc verify``: every byte of an artifact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from byoc_core.artifact import InspectResult

__all__ = ["verify_artifact"]


def verify_artifact(
    file: Annotated[Path, typer.Argument(readable=False, metavar="FILE", help="An artifact.", show_default=False)],
) -> None:
    """Checks every byte of an artifact against its digests. Runs nothing of it, and does not tell who made it."""
    from byoc_core.artifact import verify
    from byoc_core.cli.console import open_console, show_bytes

    with show_bytes(f"verify {file.name}") as show:
        made = verify(file, progress=show)
    console = open_console()
    console.print(f"{made.path}: all {made.nbytes:,} bytes are as they were written", soft_wrap=True)
    for line in _unchecked(made):
        console.print(f"not checked: {line}", soft_wrap=True)


def _unchecked(made: InspectResult) -> Iterator[str]:
    """Yield what a check of digests says nothing of."""
    yield "who wrote them; whoever writes an artifact writes its digests too"
    yield "changes from now on; constants are mapped from the file for as long as the artifact is loaded"
    if made.modules:
        kinds = ", ".join(sorted({module.type_key for module in made.modules}))
        yield f"what the {len(made.modules)} modules ({kinds}) hold; their runtimes check it when they load them"
    if made.is_native:
        trusted = "it is yours, and trusted" if made.is_trusted else "it needs --allow-native"
        yield f"what the native code does ({trusted})"
    missing = sorted({need.type_key for need in made.runtimes if not need.is_installed})
    if missing:
        yield f"whether it runs here: no installed runtime is called {', '.join(missing)}"
