"""The plugins of this process: a snapshot of metadata, with catalogues and registries built on top."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar

from byoc_core.plugin.catalog import Catalog
from byoc_core.plugin.discovery import make_catalog
from byoc_core.plugin.metadata import Snapshot, read_metadata
from byoc_core.plugin.settings import PluginSettings

__all__ = ["Installation", "installation", "installed", "reread_installation", "using"]

_R = TypeVar("_R")


class Installation:
    """A snapshot of metadata and environment. Catalogues and registries are built once from each snapshot.

    With unreadable metadata, pydantic's own plugins are switched off (``PYDANTIC_DISABLE_PLUGINS``). To find its
    plugins, pydantic reads the entry points of every distribution when the first model is defined. An unreadable
    distribution would fail every import defining a model.
    """

    def __init__(self) -> None:
        self.read()

    def read(self) -> None:
        """Read metadata and environment, and forget the catalogues and registries built before."""
        self.snapshot = Snapshot(read_metadata(), MappingProxyType(dict(os.environ)))
        if self.snapshot.metadata.problems:
            os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        self._catalogs: dict[str, Catalog] = {}
        self._registries: dict[tuple[object, str], Any] = {}

    def catalog(self, group: str) -> Catalog:
        """Return the catalogue of a group.

        Raises:
            OptionsError: an environment variable is malformed.
        """
        cached = self._catalogs.get(group)
        if cached is not None:
            return cached
        return self._catalogs.setdefault(group, make_catalog(group, self.snapshot.metadata, self.settings()))

    def settings(self) -> PluginSettings:
        """Return the user's settings about plugins.

        Raises:
            OptionsError: an environment variable is malformed.
        """
        return PluginSettings.from_environment(self.snapshot.environment)

    def registry(self, make: Callable[[Catalog], _R], group: str) -> _R:
        """Return the registry built by a class from the catalogue of a group, the same object each time."""
        cached = self._registries.get((make, group))
        registry: _R = cached or self._registries.setdefault((make, group), make(self.catalog(group)))
        return registry


@functools.cache
def _of_process() -> Installation:
    return Installation()


_HANDED_IN: ContextVar[Installation | None] = ContextVar("byoc_installation", default=None)


def installation() -> Installation:
    """Return the installation set by :func:`using`, or else the process's installation.

    The process's installation is a snapshot from the first call, the import of ``byoc_core``, or from the latest call
    of :func:`reread_installation`.
    """
    return _HANDED_IN.get() or _of_process()


def reread_installation() -> None:
    """Read metadata and environment of this process again: for a forked process with another path or environment.

    Objects made from the old installation stay as they are, so call this function before any other use of plugins.
    """
    _of_process().read()


@contextmanager
def using(other: Installation) -> Iterator[None]:
    """Set the installation for this context: for tests installing plugins or changing the environment."""
    token = _HANDED_IN.set(other)
    try:
        yield
    finally:
        _HANDED_IN.reset(token)


def installed(group: str) -> Catalog:
    """Return the catalogue of the installation for a group.

    Raises:
        OptionsError: an environment variable is malformed.
    """
    return installation().catalog(group)
