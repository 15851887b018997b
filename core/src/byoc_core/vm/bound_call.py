"""Calls on fixed buffers, where Python makes them; the C extension's ``Bound`` behaves likewise."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

__all__ = ["BoundCall"]


class BoundCall:
    """Runs a function on its buffers. Calls from several threads wait for each other; one inside another fails.

    Args:
        run: runs it.
        results: what a call gives.
    """

    def __init__(self, run: Callable[[], object], results: object) -> None:
        self._run = run
        self._results = results
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._is_running = False

    def __call__(self) -> object:
        """Runs the function.

        Raises:
            RuntimeError: it runs in this thread already.
        """
        if self._process != os.getpid():  # the lock may be that of a thread that a forked child does not have
            self._process, self._lock, self._is_running = os.getpid(), threading.RLock(), False
        with self._lock:
            if self._is_running:
                raise RuntimeError("a bound function is called while it runs in this thread")
            try:
                self._is_running = True
                self._run()
            finally:
                self._is_running = False
        return self._results
