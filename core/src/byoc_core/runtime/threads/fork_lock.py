"""Locks that are free in a forked child, whichever thread of its parent had them.

A child has only the thread that forked. A lock that another one had at that moment stays locked there for good, and
what it protects is as that thread left it, between two statements.
"""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["ForkLock"]


class ForkLock:
    """A re-entrant lock in a place of its own, where a forked child finds a new one.

    Take it by ``with fork_lock.lock:``. A block in which a thread forks goes on in the child without the lock: most
    such children never come to its end. What the lock protects should be right after each statement, like a cache
    whose entries are whole when they get there.

    Attributes:
        lock: the lock of this process.
    """

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        _locks.add(self)


def _renew_in_child() -> None:
    for fork_lock in _locks:
        fork_lock.lock = threading.RLock()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)
