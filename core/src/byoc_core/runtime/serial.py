"""Lets threads into a module one at a time, for runtimes that cannot promise more."""

from __future__ import annotations

from byoc_core.runtime.delegating import DelegatingModule
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule
from byoc_core.runtime.threads.fork_lock import ForkLock

__all__ = ["SerialModule"]


class SerialModule(DelegatingModule):
    """A module whose calls wait for each other: one lock for all its functions.

    In a forked child calls wait for none of the parent's; one that was under way in another thread never ends there,
    and whether the inner module bears that is its own affair.

    Args:
        inner: the module that is not re-entrant.
    """

    def __init__(self, inner: RuntimeModule) -> None:
        super().__init__(inner)
        self._fork_lock = ForkLock()

    def prepare(self) -> None:
        """Prepares the inner module, alone as in a call."""
        with self._fork_lock.lock:
            self.inner.prepare()

    def find_function(self, name: str) -> PackedFunction:
        """Gives the inner function behind the lock."""
        function = self.inner.find_function(name)

        def call_alone(*arguments: NDArray) -> object:
            with self._fork_lock.lock:
                return function.impl(*arguments)

        return PackedFunction(name, call_alone, function.signature)
