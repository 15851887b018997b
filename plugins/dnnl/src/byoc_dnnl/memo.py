"""A bounded memory of results, for sharing between plans."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Memo"]

_T = TypeVar("_T")
_D = TypeVar("_D")


class Memo(Generic[_T]):
    """The results of the latest keys: two generations, each with a limited number of results.

    A full young generation becomes the old generation, and the former old generation is dropped. A result found in the
    old generation moves to the young generation. The cost of a query is one or two dictionary look-ups.

    Any number of threads may use a memo without a lock. Threads that look for the same missing key at the same time
    compute a result each, and the last result is kept. A fork leaves a memo usable in the child.

    Args:
        capacity: the number of results in a generation.
    """

    __slots__ = ("_capacity", "_old", "_young")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._young: dict[Hashable, _T] = {}
        self._old: dict[Hashable, _T] = {}

    def __len__(self) -> int:
        """Return the number of kept results."""
        return len({**self._old, **self._young})

    def get(self, key: Hashable, default: _D) -> _T | _D:
        """Return the result of a key, or ``default``."""
        young = self._young
        if key in young:
            return young[key]
        old = self._old
        return self.put(key, old[key]) if key in old else default

    def put(self, key: Hashable, result: _T) -> _T:
        """Keep the result of a key; return the result."""
        young = self._young
        if len(young) >= self._capacity:
            self._old = young
            self._young = young = {}
        young[key] = result
        return result
