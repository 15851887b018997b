"""Modules with serialised calls, for runtimes without re-entrant modules."""

from __future__ import annotations

from byoc_core.runtime.delegating import DelegatingModule
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule
from byoc_core.runtime.threads.fork_lock import ForkLock

__all__ = ["SerialModule"]


class SerialModule(DelegatingModule):
    """A module whose calls wait for each other: a single lock for all functions.

    In a forked child, calls do not wait for the parent's calls. A call under way in another thread never ends in the
    child, and the inner module must cope with this state.

    Args:
        inner: the module without re-entrant functions.
    """

    def __init__(self, inner: RuntimeModule) -> None:
        super().__init__(inner)
        self._fork_lock = ForkLock()

    def prepare(self) -> None:
        """Prepare the inner module under the lock, as in a call."""
        with self._fork_lock.lock:
            self.inner.prepare()

    def find_function(self, name: str) -> PackedFunction:
        """Return the inner function behind the lock."""
        function = self.inner.find_function(name)

        def call_locked(*arguments: NDArray) -> object:
            with self._fork_lock.lock:
                return function.impl(*arguments)

        return PackedFunction(name, call_locked, function.signature)
