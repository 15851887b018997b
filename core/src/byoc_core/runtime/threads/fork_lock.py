"""Locks that are free in a forked child, even if held by another thread of the parent.

A child has only the forking thread. A lock held by another thread at this moment stays locked in the child for good,
and the protected data stays in an intermediate state, between two statements of this thread.
"""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["ForkLock"]


class ForkLock:
    """A re-entrant lock in a separate attribute; a forked child finds a new lock there.

    Take the lock by ``with fork_lock.lock:``. If a thread forks inside such a block, the block continues in the child
    without the lock: most such children never reach the end. The protected data should be consistent after each
    statement, as in a cache with only complete entries.

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
