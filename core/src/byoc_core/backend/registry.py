"""The registry of this process's backends: found by name, loaded on demand; plugin objects work alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from byoc_core.backend import hooks
from byoc_core.backend.handle import BackendHandle
from byoc_core.backend.info import BackendInfo
from byoc_core.errors import BackendNotFoundError, ByocError, PluginError
from byoc_core.plugin import BACKENDS_GROUP, Catalog, PluginRecord, describe_absence
from byoc_core.plugin.handle import PluginHandle
from byoc_core.plugin.installation import installation
from byoc_core.reporting.shares import HOST_NAME

if TYPE_CHECKING:
    from byoc_core.opset.opdef import OpDef

__all__ = ["HOST_NAME", "BackendHandle", "Backends", "backends", "find_registry", "open_object"]


class Backends:
    """All backends of a catalogue, each opened on first request.

    Args:
        catalog: the plugins of the group ``byoc.backends``.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._handles: dict[str, BackendHandle] = {}

    def list(self) -> tuple[PluginRecord, ...]:
        """Return the records of all backends, including unusable backends. Imports no plugin."""
        return self.catalog.records

    def names(self) -> tuple[str, ...]:
        """Return the names of all usable backends. Imports no plugin."""
        return self.catalog.names()

    def get(self, backend: str | object) -> BackendHandle:
        """Return a backend.

        Args:
            backend: a name; or a plugin object (a module or an instance with hooks); or a handle, returned unchanged.

        Raises:
            BackendNotFoundError: no backend of this name is installed; lists the installed names and similar names.
            PluginError: the plugin cannot be used; gives the reason and a remedy.
        """
        if isinstance(backend, BackendHandle):
            return backend
        if not isinstance(backend, str):
            return open_object(backend)
        handle = self._handles.get(backend)
        if handle is not None:
            return handle
        if self.catalog.find(backend) is None:
            problem, hint = describe_absence("backend", backend, self.names())
            raise BackendNotFoundError(self.catalog.group, problem, hint=hint)
        plugin = self.catalog.open(backend, hooks)
        try:
            handle = BackendHandle(plugin)
        except ByocError as error:
            raise self.catalog.quarantine_faulty(plugin.record, error) from error
        return self._handles.setdefault(backend, handle)

    def order(self, chosen: Iterable[str | object] = ()) -> tuple[BackendHandle, ...]:
        """Return backends, the first to be asked first: as listed, and the host last.

        Args:
            chosen: names, plugin objects or handles; listing the host does not change the host's place.

        Raises:
            PluginError: a backend cannot be used, or a name is listed twice for different plugins.
        """
        ordered: dict[str, BackendHandle] = {}
        for item in chosen:
            handle = self.get(item)
            existing = ordered.setdefault(handle.name, handle)
            if existing.plugin is not handle.plugin:
                raise PluginError(f"backend `{handle.name}`", "is listed twice, for different plugins")
        host = ordered.pop(HOST_NAME, None)
        return (*ordered.values(), host or self.get(HOST_NAME))

    def lookup(self, given: Iterable[str | object] = ()) -> Callable[[str], BackendHandle]:
        """Return a look-up by name, with given backends taking precedence over the registry's own.

        Args:
            given: names, plugin objects or handles.

        Raises:
            PluginError: a backend cannot be used.
        """
        own = {handle.name: handle for handle in map(self.get, given)}
        return lambda name: own[name] if name in own else self.get(name)

    def holds(self, handle: BackendHandle) -> bool:
        """Return whether the registry has the plugin of a handle under the handle's name."""
        return handle.name in self.names() and self.get(handle.name).plugin is handle.plugin

    def ops(self, chosen: Iterable[str | object]) -> tuple[OpDef, ...]:
        """Return the ops brought by these backends, in the given order."""
        return tuple(op for item in chosen for op in self.get(item).ops())


def open_object(plugin: object) -> BackendHandle:
    """Return a handle for a plugin object without an entry point, named by the info.

    Raises:
        PluginError: the object has no hooks, or does not return a ``BackendInfo``.
    """
    described = str(getattr(plugin, "__name__", type(plugin).__qualname__))
    record = PluginRecord(described, BACKENDS_GROUP, value=described, distribution="", version="")
    unnamed = PluginHandle(record, plugin, hooks)
    info = unnamed.check("byoc_backend_info", unnamed.call("byoc_backend_info"), BackendInfo)
    return BackendHandle(PluginHandle(replace(record, name=info.name), plugin, hooks))


def backends() -> Backends:
    """Return the backends installed for this process.

    The first call reads metadata and the environment. Plugin code is loaded on the first request for a backend.
    """
    return installation().registry(Backends, BACKENDS_GROUP)


def find_registry(registry: Backends | None = None) -> Backends:
    """Return the given registry, or the registry of this process if none is given.

    Passes and public functions take names of backends and an optional registry, and resolve the names here. Code inside
    a compilation always gets a registry.
    """
    return backends() if registry is None else registry
