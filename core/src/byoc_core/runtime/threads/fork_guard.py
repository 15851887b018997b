"""A guard against calls in forked processes, for runtimes whose modules do not work there."""

from __future__ import annotations

import os

from byoc_core.errors import ExecutionError
from byoc_core.runtime.delegating import DelegatingModule
from byoc_core.runtime.module import NDArray, PackedFunction, RuntimeModule

__all__ = ["UnforkedModule"]


class UnforkedModule(DelegatingModule):
    """A module whose calls raise an error in a child of ``os.fork``: without the guard, calls might hang.

    Args:
        inner: the module to protect in a forked process.
    """

    def __init__(self, inner: RuntimeModule) -> None:
        super().__init__(inner)
        self._pid = os.getpid()

    def prepare(self) -> None:
        """Prepare the inner module.

        Raises:
            ExecutionError: this process was forked after the module was made.
        """
        self._check("prepared")
        self.inner.prepare()

    def find_function(self, name: str) -> PackedFunction:
        """Return the inner function behind the guard."""
        function = self.inner.find_function(name)

        def call_unforked(*arguments: NDArray) -> object:
            self._check("called")
            return function.impl(*arguments)

        return PackedFunction(name, call_unforked, function.signature)

    def _check(self, action: str) -> None:
        if os.getpid() != self._pid:
            raise ExecutionError(
                f"module of runtime `{self.type_key}`",
                f"cannot be {action} in a forked process",
                hint="Load the artifact in the child, or start processes with the method `spawn` or `forkserver`.",
            )
