"""The installed plugins of a group, loaded on demand and quarantined on failure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, NamedTuple

from byoc_core.errors import ByocError, PluginError
from byoc_core.plugin.record import PluginRecord, PluginState
from byoc_core.printable import to_printable, to_printable_lines

if TYPE_CHECKING:
    import logging

    from byoc_core.plugin.handle import PluginHandle

__all__ = ["Catalog", "Judgement"]


class Judgement(NamedTuple):
    """The records of all readable claims to a name, in order of distribution, and the problems of unreadable claims."""

    records: tuple[PluginRecord, ...]
    problems: tuple[str, ...] = ()


class Catalog:
    """Records of one entry-point group, in order of name and then distribution.

    The catalogue is filled once. Later, only a record's state changes, when a plugin proves broken: the plugin is
    quarantined for the rest of the process, and the others go on.

    Args:
        group: the entry-point group.
        records: one per entry point.
        problems: other faults found during discovery, for ``byoc doctor``.
        judges: for further names, in order, the function returning their records; called once, at the name's first use.
    """

    def __init__(
        self,
        group: str,
        records: Iterable[PluginRecord] = (),
        *,
        problems: Iterable[str] = (),
        judges: Mapping[str, Callable[[], Judgement]] = MappingProxyType({}),
    ) -> None:
        self.group = group
        self._problems = tuple(problems)
        self._judges = dict(judges)
        self._judged: dict[str, Judgement] = {}
        for record in records:
            earlier = self._judged.get(record.name, Judgement(()))
            self._judged[record.name] = Judgement((*earlier.records, record))
        self._names = tuple(dict.fromkeys((*self._judged, *judges)))
        self._loaded: dict[str, object] = {}

    @property
    def records(self) -> tuple[PluginRecord, ...]:
        """All records with their present state; several for a name claimed by clashing distributions."""
        return tuple(record for name in self._names for record in self._claims(name).records)

    @property
    def problems(self) -> tuple[str, ...]:
        """The faults found during discovery, except faults stated in the records."""
        return tuple(
            dict.fromkeys((*self._problems, *(p for name in self._names for p in self._claims(name).problems)))
        )

    def names(self) -> tuple[str, ...]:
        """Return the names of all usable plugins."""
        return tuple(record.name for record in self.records if record.state is PluginState.AVAILABLE)

    def find(self, name: str) -> PluginRecord | None:
        """Return the record of a name, or ``None``; the usable record if the name is claimed several times."""
        claims = self._claims(name).records
        usable = [record for record in claims if record.state is PluginState.AVAILABLE]
        return next(iter(usable or claims), None)

    def _claims(self, name: str) -> Judgement:
        judgement = self._judged.get(name)
        if judgement is None:
            judge = self._judges.get(name)
            if judge is None:
                return Judgement(())
            judgement = self._judged.setdefault(name, judge())
        return judgement

    def load(self, name: str) -> object:
        """Import a plugin, once, and return the module or object referenced by the entry point.

        Raises:
            PluginError: the name is unknown, the plugin may not be used, or the import fails (a quarantine follows).
            KeyboardInterrupt: the user interrupts the import (a plugin raising the same exception cannot be told
                apart); the log names the plugin.
        """
        if name in self._loaded:
            return self._loaded[name]
        record = self._usable(name)
        try:
            plugin = _import_object(record.value)
        except KeyboardInterrupt:
            _logger().warning("interrupted while %s was imported", to_printable(record.label))
            raise
        except BaseException as error:
            reason = f"importing `{record.value}` raised {type(error).__name__}: {error}"
            raise self.quarantine(record, reason, _import_remedy(record, error)) from error
        return self._loaded.setdefault(name, plugin)

    def open(self, name: str, specs: ModuleType) -> PluginHandle:
        """Load a plugin and check the hooks against the specifications.

        Args:
            name: the plugin's name.
            specs: the module of hook specifications.

        Raises:
            PluginError: as :meth:`load`, or the hooks are wrong (a quarantine follows).
        """
        from byoc_core.plugin.handle import PluginHandle

        plugin = self.load(name)
        record = self._usable(name)
        try:
            return PluginHandle(record, plugin, specs)
        except PluginError as error:
            raise self.quarantine(record, error.problem, error.hint or "") from error

    def quarantine(self, record: PluginRecord, reason: str, remedy: str) -> PluginError:
        """Mark a plugin as broken and return the error to raise."""
        broken = replace(record, state=PluginState.BROKEN, reason=reason, remedy=remedy)
        records, problems = self._claims(record.name)
        self._judged[record.name] = Judgement(tuple(broken if r == record else r for r in records), problems)
        _logger().info("%s is quarantined: %s", to_printable(record.label), to_printable_lines(reason))
        return _unusable(broken)

    def quarantine_faulty(self, record: PluginRecord, fault: ByocError) -> PluginError:
        """Mark a plugin as broken for failing to return proper info about itself, and return the error to raise."""
        location = fault.where.removeprefix(f"{record.label}, ")
        reason = str(ByocError(location, fault.problem, got=fault.got, expected=fault.expected))
        return self.quarantine(record, reason, f"Report this to the authors of {record.distribution}.")

    def _usable(self, name: str) -> PluginRecord:
        record = self.find(name)
        if record is None:
            raise PluginError(self.group, f"no plugin `{name}` is installed")
        if record.state is not PluginState.AVAILABLE:
            raise _unusable(record)
        return record


def _import_object(value: str) -> object:
    """Return the object referenced by an entry point's value, ``module`` or ``module:object.attribute``."""
    module, _, attributes = value.partition("[")[0].partition(":")  # extras follow `[` and are ignored
    found: object = import_module(module.strip())
    for name in filter(None, attributes.strip().split(".")):
        found = getattr(found, name)
    return found


def _logger() -> logging.Logger:
    import logging

    return logging.getLogger("byoc.plugin")


def _unusable(record: PluginRecord) -> PluginError:
    return PluginError(record.label, f"cannot be used ({record.state}): {record.reason}", hint=record.remedy or None)


def _import_remedy(record: PluginRecord, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"Install the missing module `{error.name}`; "
            f"if it is the plugin's own, pip install --force-reinstall {record.distribution}."
        )
    return f"Report this to the authors of {record.distribution}, or pip uninstall {record.distribution}."
