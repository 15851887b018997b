"""The order of tests run at a time: tests of different levels, so all tests of a level share a process."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterable

from byoc_conformance.promise import Item, Level

__all__ = ["PendingItems"]


class PendingItems:
    """The tests not yet started, by level; several threads may take tests.

    Args:
        items: the tests.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items: dict[Level, deque[Item]] = {}
        for item in items:
            self._items.setdefault(item.promise.level, deque()).append(item)
        self._num_takers: Counter[Level] = Counter()
        self._lock = threading.Lock()

    def take(self, level: Level | None) -> Item | None:
        """Return the next test for a taker; ``None`` if none is left.

        A taker remains at a level until no test of the level is left. The next level is the first level without
        another taker, else the level with most tests.

        Args:
            level: the level of the taker's last test; ``None`` for a new taker.
        """
        with self._lock:
            if level is None or not self._items[level]:
                if level is not None:
                    self._num_takers[level] -= 1
                level = self._next_level()
                if level is None:
                    return None
                self._num_takers[level] += 1
            return self._items[level].popleft()

    def _next_level(self) -> Level | None:
        left = [level for level, items in self._items.items() if items]
        untaken = (level for level in left if not self._num_takers[level])
        return next(untaken, max(left, key=lambda level: len(self._items[level]), default=None))
