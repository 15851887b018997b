"""A pool of requests: objects of which each serves one call at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from byoc_core.runtime.fork_lock import ForkLock

__all__ = ["RequestPool"]

T = TypeVar("T")


class RequestPool(Generic[T]):
    """Requests for calls that may overlap: each call takes one, and gives it back.

    A compiled graph is shared by all calls; a request has what one call changes. The pool grows with the calls that
    overlap, and keeps a few requests when they are over. The request that was given back last is taken first, since
    caches still hold its memory.

    A request of a call that failed is not kept: nobody knows in which state it is. A forked child makes requests of its
    own, and never touches those of its parent, whose threads it does not have.

    Args:
        make: makes a request; called in the thread that needs one, perhaps in several at once.
        max_idle: how many requests are kept while no call uses them.
    """

    def __init__(self, make: Callable[[], T], *, max_idle: int = 4) -> None:
        self._make = make
        self._max_idle = max_idle
        self._idle: list[T] = []
        self._inherited: list[list[T]] = []  # never read: dropping a parent's request may wait for its threads
        self._process = os.getpid()
        self._lock = ForkLock()

    @property
    def num_idle(self) -> int:
        """How many requests no call uses at present."""
        return len(self._idle) if self._process == os.getpid() else 0

    @contextmanager
    def request(self) -> Iterator[T]:
        """Take a request for the time of a ``with`` block."""
        request = self._take()
        yield request  # where the block raises, the request is dropped
        with self._lock.lock:
            if self._process == os.getpid() and len(self._idle) < self._max_idle:
                self._idle.append(request)

    def _take(self) -> T:
        with self._lock.lock:
            if self._process != os.getpid():
                self._inherited.append(self._idle)
                self._idle, self._process = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        return self._make()
