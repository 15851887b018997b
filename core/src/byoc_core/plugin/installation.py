"""The plugins of this process: one look at what is installed, and the catalogues and registries made of it."""

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

__all__ = ["Installation", "installation", "installed", "using"]

_R = TypeVar("_R")


class Installation:
    """What one look at the metadata and the environment found. Catalogues and registries are made of it once.

    Where metadata cannot be read, pydantic's own plugins are switched off (``PYDANTIC_DISABLE_PLUGINS``): to find them
    it reads the entry points of every distribution when the first model is made, and one that is unreadable would fail
    the import of whatever makes a model.
    """

    def __init__(self) -> None:
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
        known = self._catalogs.get(group)
        if known is not None:
            return known
        settings = PluginSettings.from_environment(self.snapshot.environment)
        return self._catalogs.setdefault(group, make_catalog(group, self.snapshot.metadata, settings))

    def registry(self, make: Callable[[Catalog], _R], group: str) -> _R:
        """Return the registry that a class makes of the catalogue of a group, the same one each time."""
        known = self._registries.get((make, group))
        registry: _R = known or self._registries.setdefault((make, group), make(self.catalog(group)))
        return registry


@functools.cache
def _of_process() -> Installation:
    return Installation()


_HANDED_IN: ContextVar[Installation | None] = ContextVar("byoc_installation", default=None)


def installation() -> Installation:
    """Return the installation that was handed in by :func:`using`, or else that of the process.

    That of the process is as it was at the first call: when ``byoc_core`` was imported.
    """
    return _HANDED_IN.get() or _of_process()


@contextmanager
def using(other: Installation) -> Iterator[None]:
    """Hand an installation in, for this context: for tests that install plugins or change the environment."""
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
