"""Calls on fixed buffers from Python; the C extension's ``Bound`` behaves likewise."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.runtime.threads.fork_lock import ForkLock

__all__ = ["BoundCall"]


class BoundCall:
    """A function bound to buffers. Calls from several threads wait for each other; a nested call fails.

    Args:
        run: runs the function.
        results: the return value of each call.
    """

    def __init__(self, run: Callable[[], object], results: object) -> None:
        self._run = run
        self._results = results
        self._fork_lock = ForkLock()
        self._running_lock: object = None

    def __call__(self) -> object:
        """Run the function.

        Raises:
            RuntimeError: the function is already running in this thread.
        """
        lock = self._fork_lock.lock
        with lock:
            if self._running_lock is lock:  # another lock belongs to a thread missing in a forked child
                raise RuntimeError("a bound function cannot be called inside itself in one thread")
            try:
                self._running_lock = lock
                self._run()
            finally:
                self._running_lock = None
        return self._results
