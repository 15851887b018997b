"""A module in front of another module, with all requests passed on.

Each member of :class:`RuntimeModule` with a default must be passed on here: an omitted member answers with the default
in place of the inner module. Saving unwraps these modules (:meth:`byoc_core.runtime.registry.RuntimeHandle.save`).
"""

from __future__ import annotations

from collections.abc import Mapping

from byoc_core.runtime.module import CallSteps, CallTraits, NDArray, RuntimeModule, Signature

__all__ = ["DelegatingModule"]


class DelegatingModule(RuntimeModule):
    """A module with the behaviour of an inner module; subclasses change the calls of the functions.

    A subclass guarding calls returns functions without ``native``: calls from machine code would evade the guard.

    Args:
        inner: the other module.
    """

    def __init__(self, inner: RuntimeModule) -> None:
        self.inner = inner

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
        """Whether the inner module's workspaces may differ in another process."""
        return self.inner.workspaces_may_differ

    def prepare(self) -> None:
        """Prepare the inner module."""
        self.inner.prepare()

    def find_signature(self, name: str) -> Signature | None:
        """Return the inner function's signature."""
        return self.inner.find_signature(name)

    def call_traits(self, name: str) -> CallTraits:
        """Return the permissions of the inner function for callers."""
        return self.inner.call_traits(name)

    def call_steps(self, name: str) -> CallSteps | None:
        """Return the calls that may replace a call of the inner function."""
        return self.inner.call_steps(name)

    def report_parts(self) -> None:
        """Report the parts of the inner module's calls."""
        self.inner.report_parts()

    def get_source(self, format: str = "") -> str:  # noqa: A002 - the interface's keyword
        """Return the inner module's source."""
        return self.inner.get_source(format)
