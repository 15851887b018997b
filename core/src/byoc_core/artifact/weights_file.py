"""Files of constants shared by several artifacts.

The container is that of artifacts (:mod:`byoc_core.artifact.archive`): members ``constants/<digest>``, and
``weights.json``, stating format and version, and dtype and shape of each constant. An artifact's manifest cites
constants by digest, wherever the bytes are; so the artifact is the same, with the same identity, with and without
constants inside. No file names another: :func:`byoc_core.artifact.load` gets the path, or looks for
:data:`WEIGHTS_NAME` beside the artifact.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from byoc_core.artifact.archive import Buffer, check_crc, map_file, read_archive, write_archive
from byoc_core.artifact.constants import MappedConstants, StoredBytes
from byoc_core.artifact.manifest import CONSTANT_ENTRIES, CONSTANTS, ConstantEntry
from byoc_core.errors import ArtifactError
from byoc_core.file_replacement import replace_file
from byoc_core.runtime.json_records import MisfitError, integer, one_of, parse_json, record, to_json

__all__ = ["WEIGHTS_NAME", "WeightsFile", "open_weights", "write_weights"]

WEIGHTS_NAME = "weights.byocw"
"""The name of the file looked for beside an artifact without constants."""

_FORMAT, _FORMAT_VERSION = "byoc-weights", 1
_INDEX = "weights.json"


@dataclass(frozen=True)
class WeightsFile:
    """An opened file of constants.

    Attributes:
        where: the name of the file in errors.
        entries: dtype and shape of each constant, by digest.
        stored: the bytes of each constant, by digest.
    """

    where: str
    entries: Mapping[str, ConstantEntry]
    stored: Mapping[str, StoredBytes]

    def map_constants(self) -> MappedConstants:
        """Return the constants, mapped; only the sizes are checked.

        Raises:
            ArtifactError: a size differs from the index.
        """
        return MappedConstants(self.entries, self.stored, self.where)


def open_weights(path: str | os.PathLike[str]) -> WeightsFile:
    """Map a file of constants, and read the index.

    Raises:
        ArtifactError: the file is no file of constants, is damaged, or is of a newer format.
        OSError: the file cannot be read.
    """
    where = f"weights `{os.fspath(path)}`"
    data = map_file(path)
    members = read_archive(data, where)
    index = members.get(_INDEX)
    if index is None:
        raise ArtifactError(where, "is no file of weights", hint="Files of weights are made by `byoc weights share`.")
    check_crc(data, index, where)
    entries = _read_index(bytes(data[index.offset : index.end]), where)
    names = {_INDEX, *(CONSTANTS + digest for digest in entries)}
    if names != set(members):
        raise ArtifactError(where, "has other members than named by the index", got=min(names ^ set(members)))
    return WeightsFile(where, entries, {d: StoredBytes(data, members[CONSTANTS + d]) for d in entries})


def write_weights(
    path: str | os.PathLike[str],
    constants: Mapping[str, tuple[ConstantEntry, Buffer]],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a file of constants; the file appears whole or not at all, and equal constants give equal bytes.

    Args:
        path: the file; an existing file is replaced.
        constants: dtype and shape, and bytes, by digest.
        progress: called with the bytes written so far and in all.

    Raises:
        OSError: the file cannot be written.
    """
    index = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "constants": {digest: to_json(entry) for digest, (entry, _) in constants.items()},
    }
    text = json.dumps(index, default=to_json, sort_keys=True, separators=(",", ":"))
    members: dict[str, Buffer] = {_INDEX: text.encode()}
    members.update((CONSTANTS + digest, data) for digest, (_, data) in constants.items())
    with replace_file(path) as file:
        write_archive(file, members, progress=progress)


def _read_index(data: bytes, where: str) -> Mapping[str, ConstantEntry]:
    where = f"{where}, member {_INDEX}"
    try:
        raw = parse_json(data)
    except ValueError as error:
        raise ArtifactError(where, "is not JSON text") from error
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if type(version) is int and version > _FORMAT_VERSION:
        raise ArtifactError(
            where,
            f"is of format {version}, not readable by this byoc-core",
            expected=f"format {_FORMAT_VERSION}",
            hint="pip install -U byoc-core",
        )
    try:
        return _read_fields(raw)
    except MisfitError as misfit:
        raise ArtifactError(where, f"is malformed: {misfit}") from misfit


def _constants_of(**fields: Mapping[str, ConstantEntry]) -> Mapping[str, ConstantEntry]:
    return fields["constants"]


_read_fields = record(_constants_of, format=one_of(_FORMAT), format_version=integer(1), constants=CONSTANT_ENTRIES)
