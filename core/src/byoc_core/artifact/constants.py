"""The constants of an artifact, mapped from the file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

import numpy as np

from byoc_core.artifact.archive import Member
from byoc_core.artifact.manifest import ConstantEntry
from byoc_core.digest import digest_of
from byoc_core.dtypes import to_numpy
from byoc_core.errors import ArtifactError
from byoc_core.runtime.module import NDArray

__all__ = ["MappedConstants"]


class MappedConstants(Mapping[str, NDArray]):
    """Read-only arrays by digest; each lies in the file's mapping, and is made at first use.

    Args:
        data: the whole file; stays mapped as long as any array lives.
        entries: dtype and shape by digest.
        members: the positions of the bytes, by digest.
        where: the name of the artifact in errors.

    Raises:
        ArtifactError: a member's size differs from the size of the entry.
    """

    def __init__(
        self, data: memoryview, entries: Mapping[str, ConstantEntry], members: Mapping[str, Member], where: str
    ) -> None:
        for digest, entry in entries.items():
            if members[digest].nbytes != entry.nbytes:
                raise ArtifactError(
                    f"{where}, constant {digest[:12]}",
                    "has the wrong number of bytes",
                    got=members[digest].nbytes,
                    expected=f"{entry.nbytes} for {entry.dtype}{list(entry.shape)}",
                )
        self._data = data
        self._where = where
        # An entry and the offset of the bytes, until the array is made. Modules cite constants by the same digests.
        self._found: dict[str, NDArray | tuple[ConstantEntry, int]] = {
            sys.intern(digest): (entry, members[digest].offset) for digest, entry in entries.items()
        }

    def __getitem__(self, digest: str) -> NDArray:
        found = self._found[digest]
        if isinstance(found, tuple):
            entry, offset = found
            array: NDArray = np.ndarray(entry.shape, to_numpy(entry.dtype), self._data, offset)
            array.flags.writeable = False
            found = self._found[digest] = array
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

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
