"""Calls on fixed buffers, where Python makes them; the C extension's ``Bound`` behaves likewise."""

from __future__ import annotations

from collections.abc import Callable

from byoc_core.runtime.threads.fork_lock import ForkLock

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
        self._fork_lock = ForkLock()
        self._runs_under: object = None

    def __call__(self) -> object:
        """Runs the function.

        Raises:
            RuntimeError: it runs in this thread already.
        """
        lock = self._fork_lock.lock
        with lock:
            if self._runs_under is lock:  # another lock is that of a thread that a forked child does not have
                raise RuntimeError("a bound function is called while it runs in this thread")
            try:
                self._runs_under = lock
                self._run()
            finally:
                self._runs_under = None
        return self._results
