"""Plugins: found in package metadata, loaded on demand, quarantined when faulty. Knows nothing of the IR.

The order of things: metadata is read when ``byoc_core`` is imported (:func:`snapshot`); :func:`installed` judges it and
gives a :class:`Catalog` of :class:`PluginRecord`; opening a plugin imports its code and gives a ``PluginHandle`` that
calls its hooks. The registries of :mod:`byoc_core.backend` and :mod:`byoc_core.runtime` are built on these.
"""

from byoc_core.plugin.absence import describe_absence, describe_claim
from byoc_core.plugin.catalog import Catalog
from byoc_core.plugin.discovery import BACKENDS_GROUP, RUNTIMES_GROUP, discover, installed
from byoc_core.plugin.metadata import snapshot
from byoc_core.plugin.record import PluginRecord, PluginState
from byoc_core.plugin.settings import PluginSettings

__all__ = [
    "BACKENDS_GROUP",
    "RUNTIMES_GROUP",
    "Catalog",
    "PluginRecord",
    "PluginSettings",
    "PluginState",
    "describe_absence",
    "describe_claim",
    "discover",
    "installed",
    "snapshot",
]
