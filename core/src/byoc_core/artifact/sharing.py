"""Artifacts that share a file of constants: the constants are taken out of artifacts, and put in again.

Members are copied as they are: no module is loaded, and an artifact keeps its identity, and with it the trust of the
user.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from byoc_core.artifact.archive import Buffer, write_archive
from byoc_core.artifact.loading import OpenedArtifact, open_artifact
from byoc_core.artifact.manifest import CONSTANTS, ConstantEntry
from byoc_core.artifact.weights_file import WEIGHTS_NAME, open_weights, write_weights
from byoc_core.errors import OptionsError
from byoc_core.file_replacement import replace_file

__all__ = ["join_weights", "share_weights"]


def share_weights(
    artifacts: Sequence[str | os.PathLike[str]],
    folder: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[Path]:
    """Write artifacts without constants into a folder, with one file of all constants, each stored once.

    The artifacts in the folder load as before: :func:`byoc_core.load` finds the file beside an artifact. A file of
    constants present in the folder is extended, so artifacts written earlier stay complete.

    Args:
        artifacts: the files; they stay unchanged.
        folder: made if missing.
        progress: called with the bytes of constants written so far and in all.

    Returns:
        The written artifacts, in the order given, then the file of constants.

    Raises:
        OptionsError: no artifact is given, two have the same name, or one has the name of the file of constants, or
            lies in the folder.
        ArtifactError: a file is no artifact, or a constant is damaged.
        OSError: a file cannot be read or written.
    """
    sources, target = [Path(path) for path in artifacts], Path(folder)
    _check_sources(sources, target)
    opened = [open_artifact(path) for path in sources]
    target.mkdir(parents=True, exist_ok=True)
    written = [target / path.name for path in sources]
    with _locked(target):
        _extend(target / WEIGHTS_NAME, opened, progress)
        for artifact, path in zip(opened, written, strict=True):
            with replace_file(path) as file:
                write_archive(file, _members_without_constants(artifact))
    return [*written, target / WEIGHTS_NAME]


def _extend(weights: Path, artifacts: Sequence[OpenedArtifact], progress: Callable[[int, int], None] | None) -> None:
    """Write a file of the constants of artifacts and of the file before, if any."""
    constants: dict[str, tuple[ConstantEntry, Buffer]] = {}
    holders = [(artifact.manifest.constants, artifact.map_constants()) for artifact in artifacts]
    if weights.is_file():
        present = open_weights(weights)
        holders.append((present.entries, present.map_constants()))
    for entries, mapped in holders:
        for digest, entry in entries.items():
            if digest not in constants:
                mapped.check(digest)
                constants[digest] = entry, mapped.bytes_of(digest)
    write_weights(weights, constants, progress=progress)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder: two processes extending one file of constants would lose constants of the first."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def join_weights(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write an artifact with its constants inside: byte for byte the artifact before :func:`share_weights`.

    Args:
        path: the artifact.
        output: the file to write; an existing file is replaced.
        weights: the file of constants; by default :data:`WEIGHTS_NAME` beside the artifact.
        progress: called with the bytes written so far and in all.

    Raises:
        ArtifactError: a file is damaged, or a constant is missing.
        OSError: a file cannot be read or written.
    """
    artifact = open_artifact(path, weights)
    constants = artifact.map_constants()
    members = _members_without_constants(artifact)
    for digest in artifact.manifest.constants:
        constants.check(digest)
        members[CONSTANTS + digest] = constants.bytes_of(digest)
    with replace_file(output) as file:
        write_archive(file, members, progress=progress)


def _check_sources(sources: Sequence[Path], folder: Path) -> None:
    if not sources:
        raise OptionsError("weights", "no artifact is given")
    names = [path.name for path in sources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise OptionsError("weights", f"two artifacts are called `{twice[0]}`: one would replace the other")
    for path in sources:
        if path.name.casefold() == WEIGHTS_NAME:
            raise OptionsError("weights", f"artifact `{path}` has the name of the file of constants")
        if path.parent.resolve() == folder.resolve():
            raise OptionsError(
                "weights", f"artifact `{path}` lies in the folder of the results", hint="Choose another folder."
            )


def _members_without_constants(artifact: OpenedArtifact) -> dict[str, Buffer]:
    return {
        name: artifact.data[member.offset : member.end]
        for name, member in artifact.members.items()
        if not name.startswith(CONSTANTS)
    }
