"""The constants of an artifact, mapped from files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from byoc_core.artifact.archive import Member
from byoc_core.artifact.manifest import ConstantEntry
from byoc_core.digest import digest_of
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ArtifactError
from byoc_core.runtime.module import NDArray

__all__ = ["MappedConstants", "StoredBytes"]


class StoredBytes(NamedTuple):
    """The bytes of a constant: a whole file, mapped as long as any array of the file lives, and a member."""

    data: memoryview
    member: Member


class MappedConstants(Mapping[str, NDArray]):
    """Read-only arrays by digest; each lies in the mapping of a file, and is made at first use.

    Args:
        entries: dtype and shape by digest.
        stored: the bytes by digest.
        where: the name of the artifact in errors.

    Raises:
        ArtifactError: a member's size differs from the size of the entry.
    """

    def __init__(self, entries: Mapping[str, ConstantEntry], stored: Mapping[str, StoredBytes], where: str) -> None:
        for digest, entry in entries.items():
            if stored[digest].member.nbytes != entry.nbytes:
                raise ArtifactError(
                    f"{where}, constant {digest[:12]}",
                    "has the wrong number of bytes",
                    got=stored[digest].member.nbytes,
                    expected=f"{entry.nbytes} for {entry.dtype}{list(entry.shape)}",
                )
        self._where = where
        # An entry and the location of the bytes, until the array is made. Modules cite constants by the same digests.
        self._found: dict[str, NDArray | tuple[ConstantEntry, StoredBytes]] = {
            sys.intern(digest): (entry, stored[digest]) for digest, entry in entries.items()
        }

    def __getitem__(self, digest: str) -> NDArray:
        found = self._found[digest]
        if isinstance(found, tuple):
            entry, location = found
            array: NDArray = np.ndarray(entry.shape, to_numpy(entry.dtype), location.data, location.member.offset)
            array.flags.writeable = False
            found = self._found[digest] = array
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def bytes_of(self, digest: str) -> memoryview:
        """Return the bytes of a constant, as stored."""
        return self[digest].reshape(-1).view(np.uint8).data

    def check(self, digest: str) -> None:
        """Check the bytes of a constant against the digest. Cost: one pass over the bytes.

        Raises:
            ArtifactError: the bytes are not the saved bytes.
        """
        if digest_of(self[digest]) != digest:
            raise ArtifactError(
                f"{self._where}, constant {digest[:12]}",
                "is damaged",
                hint="Copy the file again, or compile the model again.",
            )
