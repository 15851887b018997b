"""Shared libraries declared by installed distributions: the entry-point group ``byoc.libraries``.

::

    [project.entry-points."byoc.libraries"]
    "libfast.so.3" = "byoc_fast.library:find_library"

The entry point's name is the name by which compiled code requests the library. The referenced object is a function
without arguments. The function returns the path of the file, or ``None`` if the file is missing on this machine. Code
of an artifact only names libraries: the file always comes from an installed distribution. The module with the function
is imported when compiled code requests the library, on the running machine too, and imports no compile half.
"""

from __future__ import annotations

import os
from pathlib import Path

from byoc_core.plugin import LIBRARIES_GROUP, PluginState, installed
from byoc_core.plugin.record import PluginRecord

__all__ = ["declared_file", "declared_library", "find_unusable_declaration"]


def declared_library(name: str) -> Path | None:
    """Return the file of a library by the declaration of an installed distribution; ``None`` without.

    A faulty declaration is quarantined, and counts as none: the library may be elsewhere (see
    :func:`find_unusable_declaration`).

    Args:
        name: the name requested by compiled code.
    """
    return declared_file(LIBRARIES_GROUP, name)


def declared_file(group: str, name: str) -> Path | None:
    """Return the file declared under a name of an entry-point group, as by :func:`declared_library`."""
    catalog = installed(group)
    record = catalog.find(name)
    if record is None or record.state is not PluginState.AVAILABLE:
        return None
    try:
        path = _call(catalog.load(name))
    except (KeyboardInterrupt, MemoryError):  # neither is the fault of the distribution
        raise
    except BaseException as error:  # noqa: BLE001 - the border to code of others
        if catalog.find(name) == record:  # not yet quarantined by a failed import
            remedy = f"Report this to the authors of {record.distribution}."
            catalog.quarantine(record, f"`{record.value}` raised {type(error).__name__}: {error}", remedy)
        return None
    return path if path is not None and path.is_file() else None


def find_unusable_declaration(name: str) -> PluginRecord | None:
    """Return the declaration of a library if the declaration may not be used; ``None`` otherwise."""
    record = installed(LIBRARIES_GROUP).find(name)
    return record if record is not None and record.state is not PluginState.AVAILABLE else None


def _call(find: object) -> Path | None:
    if not callable(find):
        raise TypeError(f"a function is expected, got {type(find).__qualname__}")
    found = find()
    return None if found is None else Path(os.fspath(found))
