"""Plugins: found in package metadata, loaded on demand, quarantined when faulty. Independent of the IR.

The order of events: importing ``byoc_core`` reads the metadata. :func:`installed` judges the metadata and returns a
:class:`Catalog` of :class:`PluginRecord`. Opening a plugin imports the code and gives a ``PluginHandle`` for calling
hooks. The registries of :mod:`byoc_core.backend`, :mod:`byoc_core.runtime` and :mod:`byoc_core.frontend` are built on
these.
"""

from byoc_core.plugin.absence import describe_absence
from byoc_core.plugin.catalog import Catalog
from byoc_core.plugin.discovery import (
    BACKENDS_GROUP,
    HALVES_GROUP,
    IMPORTERS_GROUP,
    LIBRARIES_GROUP,
    MACHINES_GROUP,
    RUNTIMES_GROUP,
)
from byoc_core.plugin.installation import installed
from byoc_core.plugin.record import PluginRecord, PluginState

__all__ = [
    "BACKENDS_GROUP",
    "HALVES_GROUP",
    "IMPORTERS_GROUP",
    "LIBRARIES_GROUP",
    "MACHINES_GROUP",
    "RUNTIMES_GROUP",
    "Catalog",
    "PluginRecord",
    "PluginState",
    "describe_absence",
    "installed",
]
