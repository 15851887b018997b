"""Native machines: libraries running the functions of artifacts without Python between the steps.

::

    [project.entry-points."byoc.native_machines"]
    name = "byoc_name.files:library_path"

The referenced object is a function without arguments, returning the path of the library. The library exports the table
of ``core/csrc/native_machine.h``. The first machine in the order of names is used. A faulty machine is quarantined
with a warning: then Python's machine runs all functions.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from byoc_core.native.declared_libraries import declared_file
from byoc_core.plugin import HALVES_GROUP, MACHINES_GROUP
from byoc_core.plugin.catalog import Catalog
from byoc_core.plugin.installation import installation
from byoc_core.plugin.record import PluginRecord, PluginState
from byoc_core.plugin.released import released_distributions
from byoc_core.runtime.extension import extension, extension_status

__all__ = ["NativeMachine", "NativeMachines", "native_machines"]

_VERSION = 2
_TABLE = "byoc_native_machine_table"


@dataclass(frozen=True)
class NativeMachine:
    """A loaded machine.

    Attributes:
        label: the name of the machine in messages.
        table: the address of the table of functions.
    """

    label: str
    table: int

    def load(self, artifact: memoryview, type_keys: Iterable[str]) -> Any:
        """Load an artifact.

        Args:
            artifact: the bytes, aligned to 64 bytes; unchanged as long as the program.
            type_keys: the runtimes of the artifact's modules; the native halves of installed runtimes are loaded too.

        Returns:
            A ``byoc_core._native.NativeProgram``.

        Raises:
            RuntimeError: the machine refuses the artifact; the text is the reason.
        """
        module = extension()
        assert module is not None
        halves = [declared_file(HALVES_GROUP, type_key) for type_key in dict.fromkeys(type_keys)]
        return module.NativeProgram(self.table, artifact, tuple(os.fsencode(half) for half in halves if half))


class NativeMachines:
    """The native machines of an installation; loaded at the first use.

    Args:
        catalog: the declared machines.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._machine: NativeMachine | None = None

    def open(self) -> NativeMachine | str:
        """Return the machine, loaded; or the reason for its absence."""
        if self._machine is not None:
            return self._machine
        is_available, reason = extension_status()
        if not is_available:
            return reason
        for record in self._catalog.records:
            if record.state is PluginState.AVAILABLE:
                self._machine = self._open(record)
                if self._machine is not None:
                    return self._machine
        reasons = [
            f"{record.label} cannot be used ({record.state}): {record.reason}. {record.remedy}".rstrip(". ")
            for record in self._catalog.records
        ]
        return "; ".join(reasons) or _describe_absence()

    def _open(self, record: PluginRecord) -> NativeMachine | None:
        try:
            return NativeMachine(record.label, _load(_call(self._catalog.load(record.name))))
        except (KeyboardInterrupt, MemoryError):
            raise
        except BaseException as error:  # noqa: BLE001 - the border to code of others
            if self._catalog.find(record.name) == record:  # not yet quarantined by a failed import
                remedy = f"Install versions that fit: pip install --upgrade {record.distribution} byoc-core."
                self._catalog.quarantine(record, f"{type(error).__name__}: {error}", remedy)
        broken = self._catalog.find(record.name) or record
        import logging

        logging.getLogger("byoc_core").warning(
            "%s cannot be used, and Python runs all functions: %s. %s", broken.label, broken.reason, broken.remedy
        )
        return None


def native_machines() -> NativeMachines:
    """Return the native machines of the installation."""
    return installation().registry(NativeMachines, MACHINES_GROUP)


def _describe_absence() -> str:
    released = released_distributions(MACHINES_GROUP)
    return ": ".join(["no native machine is installed", *(f"pip install {released[name]}" for name in released)])


def _call(find: object) -> str:
    if not callable(find):
        raise TypeError(f"a function is expected, got {type(find).__qualname__}")
    path: str = os.fspath(find())
    return path


def _load(path: str) -> int:
    """Return the address of the table of a library."""
    find_table = getattr(ctypes.CDLL(path), _TABLE)
    find_table.restype = ctypes.c_void_p
    address: int | None = find_table()
    version = ctypes.c_int32.from_address(address).value if address else 0
    if address is None or version != _VERSION:
        raise RuntimeError(f"`{path}` has another version of the interface; got {version}, expected {_VERSION}")
    return address
