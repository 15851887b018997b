"""The constants of an artifact, mapped from its file."""

from __future__ import annotations

import math
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
    """Read-only arrays by digest; each lies in the file's mapping, and is made when first asked for.

    Args:
        data: the whole file; it stays mapped as long as any array lives.
        entries: dtype and shape by digest.
        members: where the bytes lie, by digest.
        where: the artifact, as errors name it.

    Raises:
        ArtifactError: a member has another size than its entry says.
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
        self._entries = dict(entries)
        self._members = dict(members)
        self._where = where
        self._arrays: dict[str, NDArray] = {}

    def __getitem__(self, digest: str) -> NDArray:
        array = self._arrays.get(digest)
        if array is None:
            entry, member = self._entries[digest], self._members[digest]
            count = math.prod(entry.shape)
            flat = np.frombuffer(self._data, to_numpy(entry.dtype), count, member.offset) if count else None
            array = np.empty(entry.shape, to_numpy(entry.dtype)) if flat is None else flat.reshape(entry.shape)
            array.flags.writeable = False
            array = self._arrays.setdefault(digest, array)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, digest: str) -> None:
        """Checks the bytes of one constant against its digest. Cost: one pass over its bytes.

        Raises:
            ArtifactError: they are not the ones that were saved.
        """
        if digest_of(self[digest]) != digest:
            raise ArtifactError(
                f"{self._where}, constant {digest[:12]}",
                "is damaged",
                hint="Copy the file again, or compile the model again.",
            )
