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
        artifact = verify(file, progress=show)
    console = open_console()
    console.print(f"{artifact.path}: all {artifact.nbytes:,} bytes match the digests", soft_wrap=True)
    for line in _unchecked(artifact):
        console.print(f"not checked: {line}", soft_wrap=True)


def _unchecked(artifact: InspectResult) -> Iterator[str]:
    """Yield the parts left unchecked."""
    yield "the author: anybody can write an artifact with matching digests"
    yield "later changes: constants are mapped from the file while the artifact is loaded"
    for index in artifact.unchecked_modules:
        kind = artifact.modules[index].type_key
        yield f"the payload of module {index}: no installed runtime `{kind}` can check the payload without loading"
    if artifact.is_native:
        trusted = "compiled by you, so trusted" if artifact.is_trusted else "loading needs --allow-native"
        yield f"the behaviour of the native code ({trusted})"
    missing = sorted({need.type_key for need in artifact.runtimes if not need.is_installed})
    if missing:
        yield f"loading on this machine: runtimes not installed: {', '.join(missing)}"
