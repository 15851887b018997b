"""Calls into libraries with locks of their own: a fork waits for the end of such calls.

A library's lock held by another thread during a fork stays locked in the child for good, and byoc cannot renew the
lock. So no thread may be inside such a library at the moment of a fork.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from types import TracebackType

__all__ = ["ForkGate"]


class ForkGate:
    """A re-entrant context for calls into a library with locks of its own; kept for the life of the process.

    A fork by Python (``os.fork``, ``multiprocessing``) waits until no other thread is inside the context, and threads
    at the entrance wait for the end of the fork. Take no locks inside, and call only foreign code: a fork waits as long
    as the longest call. A function called with Python's lock (``ctypes.PyDLL``) needs no gate, because only the holder
    of this lock can fork.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inside: Counter[int] = Counter()
        self._num_forking = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._close, after_in_parent=self._open_in_parent, after_in_child=self._open_in_child
            )

    def __enter__(self) -> None:
        thread = threading.get_ident()
        with self._condition:
            # A thread already inside passes: a fork waits for this thread.
            while self._num_forking and not self._inside[thread]:
                self._condition.wait()
            self._inside[thread] += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        thread = threading.get_ident()
        with self._condition:
            self._inside[thread] -= 1
            if not self._inside[thread]:
                del self._inside[thread]
            if self._num_forking:
                self._condition.notify_all()

    def _close(self) -> None:
        """Wait until no other thread is inside; the lock is held until after the fork."""
        thread = threading.get_ident()
        self._condition.acquire()
        self._num_forking += 1
        while any(count and other != thread for other, count in self._inside.items()):
            self._condition.wait()

    def _open_in_parent(self) -> None:
        self._num_forking -= 1
        self._condition.notify_all()
        self._condition.release()

    def _open_in_child(self) -> None:
        self._condition = threading.Condition()
        self._num_forking = 0
