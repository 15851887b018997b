"""Installations with chosen native machines, whatever is installed in the environment of the tests."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from byoc_core.plugin import MACHINES_GROUP
from byoc_core.plugin.installation import Installation
from byoc_core.plugin.metadata import Declaration, Metadata, Snapshot

__all__ = ["installation_with_machines"]


def installation_with_machines(machines: Mapping[str, str]) -> Installation:
    """Return the installation of the environment with other native machines.

    Args:
        machines: the entry points by name, ``module:function``.
    """
    installation = Installation()
    found = installation.snapshot.metadata
    others = [
        replace(declaration, entries=tuple(entry for entry in declaration.entries if entry[0] != MACHINES_GROUP))
        for declaration in found.declarations
    ]
    own = [Declaration(f"byoc-{name}", "1.0", (), ((MACHINES_GROUP, name, value),)) for name, value in machines.items()]
    metadata = Metadata((*others, *own), found.problems)
    installation.snapshot = Snapshot(metadata, MappingProxyType(dict(os.environ)))
    return installation
