"""Arrays stored in an artifact for other readers, searched for the bytes of a packed constant."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from byoc_core.runtime.module import NDArray

from byoc_dnnl.arrays import are_equal, bytes_of

__all__ = ["StoredArrays"]

_LEAST_NBYTES = 1 << 16
"""Smaller packed constants are not looked for."""


class StoredArrays:
    """The constants of an artifact except those read by a module itself.

    Nothing is trusted: an array is found by comparing all bytes.

    Args:
        arrays: the constants of the artifact, by digest.
        own: the digests of constants read by the module.
    """

    def __init__(self, arrays: Mapping[str, NDArray], own: Collection[str]) -> None:
        self._arrays = arrays
        self._own = frozenset(own)
        self._by_nbytes: dict[int, list[str]] | None = None

    def find(self, array: NDArray) -> NDArray | None:
        """Return the bytes of a stored array equal to an array, as bytes on one axis; ``None`` if there is none.

        Cost: a block of each stored array of this size, and all bytes of an array with an equal block.
        """
        if array.nbytes < _LEAST_NBYTES:
            return None
        packed = bytes_of(array)
        for digest in self._sizes().get(array.nbytes, ()):
            stored = bytes_of(self._arrays[digest])
            if are_equal(stored, packed):
                return stored
        return None

    def _sizes(self) -> Mapping[int, list[str]]:
        """Return the digests of the arrays by number of bytes."""
        if self._by_nbytes is None:
            found: dict[int, list[str]] = {}
            for digest in self._arrays:
                if digest not in self._own:
                    found.setdefault(self._arrays[digest].nbytes, []).append(digest)
            self._by_nbytes = found
        return self._by_nbytes
