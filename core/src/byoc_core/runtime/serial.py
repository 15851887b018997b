"""Lets threads into a module one at a time, for runtimes that cannot promise more."""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.runtime.fork_lock import ForkLock
from byoc_core.runtime.module import CallTraits, NDArray, PackedFunction, RuntimeModule, Signature

__all__ = ["SerialModule"]


class SerialModule(RuntimeModule):
    """A module whose calls wait for each other: one lock for all its functions.

    In a forked child calls wait for none of the parent's; one that was under way in another thread never ends there,
    and whether the inner module bears that is its own affair.

    Args:
        inner: the module that is not re-entrant.
    """

    def __init__(self, inner: RuntimeModule) -> None:
        self.inner = inner
        self._fork_lock = ForkLock()

    @property
    def type_key(self) -> str:
        """The inner module's type key."""
        return self.inner.type_key

    @property
    def function_names(self) -> tuple[str, ...]:
        """The inner module's functions."""
        return self.inner.function_names

    @property
    def constants(self) -> Mapping[str, NDArray]:
        """The inner module's constants."""
        return self.inner.constants

    @property
    def needed_runtimes(self) -> tuple[str, ...]:
        """The runtimes whose code the inner module calls."""
        return self.inner.needed_runtimes

    @property
    def is_native(self) -> bool:
        """Whether the inner module is native code."""
        return self.inner.is_native

    @property
    def payload_format(self) -> int | None:
        """The inner module's format."""
        return self.inner.payload_format

    @property
    def uses_threads(self) -> bool:
        """Whether calls of the inner module may use more threads."""
        return self.inner.uses_threads

    @property
    def workspaces_may_differ(self) -> bool:
        """Whether the inner module's workspaces may be others in another process."""
        return self.inner.workspaces_may_differ

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

    def find_signature(self, name: str) -> Signature | None:
        """Gives the inner function's signature."""
        return self.inner.find_signature(name)

    def call_traits(self, name: str) -> CallTraits:
        """Gives what the inner function permits its callers."""
        return self.inner.call_traits(name)

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the interface's keyword
        """Gives the inner module's source."""
        return self.inner.get_source(format)
