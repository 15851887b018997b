"""``byoc verify``: a check of every byte of an artifact."""

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
    """Check all bytes of an artifact against the digests, and its modules by their runtimes; run no code of it."""
    from byoc_core.artifact import verify
    from byoc_core.cli.console import open_console, show_bytes

    with show_bytes(f"verify {file.name}") as show:
        made = verify(file, progress=show)
    console = open_console()
    console.print(f"{made.path}: all {made.nbytes:,} bytes are as they were written", soft_wrap=True)
    for line in _unchecked(made):
        console.print(f"not checked: {line}", soft_wrap=True)


def _unchecked(made: InspectResult) -> Iterator[str]:
    """Yield the parts left unchecked."""
    yield "who wrote them; whoever writes an artifact writes its digests too"
    yield "changes from now on; constants are mapped from the file for as long as the artifact is loaded"
    for index in made.unchecked_modules:
        kind = made.modules[index].type_key
        yield f"the payload of module {index}: no runtime `{kind}` is here that can check it without loading it"
    if made.is_native:
        trusted = "it is yours, and trusted" if made.is_trusted else "it needs --allow-native"
        yield f"what the native code does ({trusted})"
    missing = sorted({need.type_key for need in made.runtimes if not need.is_installed})
    if missing:
        yield f"whether it runs here: no installed runtime is called {', '.join(missing)}"
