"""A pool of requests: a request serves one call at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from byoc_core.runtime.threads.fork_lock import ForkLock

__all__ = ["RequestPool"]

T = TypeVar("T")


class RequestPool(Generic[T]):
    """Requests for overlapping calls: each call takes a request and gives the request back.

    All calls share a compiled graph; a request holds the memory changed by one call. The pool grows with the number of
    overlapping calls, and keeps a few requests between calls. The latest idle request is taken first: caches still hold
    the request's memory.

    The request of a failed call is dropped, because the state is unknown. A forked child makes its own requests and
    never touches the requests of its parent, because the child lacks the parent's threads.

    Args:
        make: returns a new request; called in the thread of the call, perhaps in several threads at once.
        max_idle: how many idle requests are kept.
    """

    def __init__(self, make: Callable[[], T], *, max_idle: int = 4) -> None:
        self._make = make
        self._max_idle = max_idle
        self._idle: list[T] = []
        self._inherited: list[list[T]] = []  # never read: dropping a parent's request may wait for the parent's threads
        self._process = os.getpid()
        self._lock = ForkLock()

    @property
    def num_idle(self) -> int:
        """The number of idle requests."""
        return len(self._idle) if self._process == os.getpid() else 0

    @contextmanager
    def request(self) -> Iterator[T]:
        """Take a request for the time of a ``with`` block."""
        request = self._take()
        yield request  # if the block raises, the request is dropped
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
