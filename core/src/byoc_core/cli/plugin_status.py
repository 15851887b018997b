"""Asks a plugin whether it can do its work here, whatever state it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from byoc_core.errors import ByocError
from byoc_core.plugin import PluginRecord, PluginState
from byoc_core.runtime.status import Status

if TYPE_CHECKING:
    from byoc_core.backend.registry import Backends
    from byoc_core.runtime.registry import Runtimes

__all__ = ["ask_status"]


def ask_status(record: PluginRecord, registry: Backends | Runtimes) -> tuple[PluginRecord, Status | None]:
    """Gives a plugin's record, as it is after its code was imported, and its answer.

    Args:
        record: one of the registry's.
        registry: the backends or the runtimes.

    Returns:
        The record with its present state, and ``None`` for the answer where the plugin cannot be used. A hook that
        fails counts as the answer no, with the failure as the reason.
    """
    if record.state is not PluginState.AVAILABLE:
        return record, None
    try:
        handle = registry.get(record.name)
    except ByocError:
        return registry.catalog.find(record.name) or record, None
    try:
        return record, handle.compile_status() if hasattr(handle, "compile_status") else handle.status()
    except ByocError as error:
        return record, Status(False, str(error))
