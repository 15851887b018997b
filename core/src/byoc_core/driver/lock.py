"""Locks: measured placements, with everything needed to judge whether the measurement still holds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from byoc_core.backend.registry import Backends
from byoc_core.driver.caller import warn_caller
from byoc_core.errors import OptionsError
from byoc_core.file_replacement import replace_file
from byoc_core.measurements.machine import machine_facts
from byoc_core.partitioning.policies import PlacedOps
from byoc_core.printable import to_printable
from byoc_core.version import __version__

__all__ = ["LOCK_SCHEMA", "Lock", "read_placement", "versions_of"]

LOCK_SCHEMA = 1
"""Version of the form of lock files. Readers take missing fields as empty and ignore unknown fields: a further field
needs no new number."""


def versions_of(backends: Sequence[str], registry: Backends) -> dict[str, str]:
    """Return the versions of the core and of installed backends, by name."""
    records = {name: registry.get(name).record for name in backends}
    return {"byoc-core": __version__} | {
        name: f"{record.distribution} {record.version}" for name, record in records.items() if record.distribution
    }


@dataclass(frozen=True)
class Lock:
    """A measured placement of a model.

    Attributes:
        backends: the names of the backends, in the order of asking.
        ops: the backend of each op, or ``"host"``, by ``"FUNCTION/RESULT"``.
        function: the measured function.
        sizes: the sizes of the inputs' symbols in the measurement.
        num_threads: the number of threads of a call.
        seconds: a call in this placement.
        rivals: the best seconds of other placements, by name.
        machine: see :func:`machine_facts`.
        versions: see :func:`versions_of`.
        schedules: the names of schedules of ops measured faster than the choices of the backends, by
            ``"FUNCTION/RESULT"``.
    """

    backends: Sequence[str]
    ops: Mapping[str, str]
    function: str = "main"
    sizes: Mapping[str, int] = field(default_factory=dict)
    num_threads: int = 1
    seconds: float = 0.0
    rivals: Mapping[str, float] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=machine_facts)
    versions: Mapping[str, str] = field(default_factory=dict)
    schedules: Mapping[str, str] = field(default_factory=dict)

    @property
    def policy(self) -> PlacedOps:
        """The policy replaying the placement."""
        return PlacedOps(self.ops, self.schedules)

    def differences(self, registry: Backends, present: Collection[str] = ()) -> Iterator[str]:
        """Yield what differs here from the place of the measurement: machine, versions, missing backends.

        Args:
            registry: the installed backends.
            present: the names of backends given as objects, without a version.
        """
        facts = machine_facts()
        for name, value in self.machine.items():
            if facts.get(name) != value:
                yield f"{name}: measured on `{value}`, here `{facts.get(name)}`"
        installed = {record.name: record for record in registry.list()}
        for name in self.backends:
            if name not in installed and name not in present:
                yield f"backend `{name}` is not installed"
        versions = {"byoc-core": __version__} | {
            name: f"{record.distribution} {record.version}" for name, record in installed.items() if name not in present
        }
        for name, version in self.versions.items():
            if name in versions and versions[name] != version:
                yield f"{name}: measured with {version}, here {versions[name]}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the lock as JSON; the file appears whole or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        data = {"schema": LOCK_SCHEMA, **asdict(self)}
        data["backends"] = list(self.backends)
        with replace_file(Path(path)) as file:
            file.write((json.dumps(data, indent=1, allow_nan=False) + "\n").encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a lock.

        Raises:
            OSError: the file cannot be read.
            OptionsError: the file is no lock.
        """
        where = f"lock `{os.fspath(path)}`"
        content = Path(path).read_bytes()
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise OptionsError(where, f"is malformed JSON: {error}") from error
        return cls.from_data(data, where)

    @classmethod
    def from_data(cls, data: object, where: str = "lock") -> Self:
        """Return the lock of a file's content; the content may come from anywhere.

        Raises:
            OptionsError: the content is no lock.
        """
        if not isinstance(data, dict) or data.get("schema") != LOCK_SCHEMA:
            got = repr(data.get("schema"))[:80] if isinstance(data, dict) else type(data).__name__
            raise OptionsError(where, "is not a lock of this version", got=got, expected=f"schema {LOCK_SCHEMA}")
        names = {item.name for item in fields(cls)}
        values = {name: value for name, value in data.items() if name in names}
        checks: dict[str, Callable[[Any], bool]] = {
            "backends": _is_texts,
            "ops": lambda value: _is_mapping(value, str),
            "function": lambda value: isinstance(value, str),
            "sizes": lambda value: _is_mapping(value, int) and all(size >= 0 for size in value.values()),
            "num_threads": lambda value: type(value) is int and value > 0,
            "seconds": _is_number,
            "rivals": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
            "machine": lambda value: _is_mapping(value, str),
            "versions": lambda value: _is_mapping(value, str),
            "schedules": lambda value: _is_mapping(value, str),
        }
        for name, check in checks.items():
            if name in values and not check(values[name]):
                raise OptionsError(f"{where}, `{name}`", "has a bad value", got=repr(values[name])[:80])
        missing = [name for name in ("backends", "ops") if name not in values]
        if missing:
            raise OptionsError(where, f"lacks {', '.join(f'`{name}`' for name in missing)}")
        return cls(**values)


def read_placement(placement: Lock | Path, registry: Backends, present: Collection[str] = ()) -> Lock:
    """Return the lock of a request; warn of differences from the place of the measurement.

    Args:
        placement: the lock, or the path.
        registry: the installed backends.
        present: the names of backends given as objects.

    Raises:
        OSError: the file cannot be read.
        OptionsError: the file is no lock.
    """
    lock = placement if isinstance(placement, Lock) else Lock.load(placement)
    differences = [to_printable(line) for line in lock.differences(registry, present)]
    if differences:
        warn_caller("the placement may be slow here: it was measured elsewhere.\n" + "\n".join(differences))
    return lock


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_mapping(value: Any, kind: type) -> bool:
    return isinstance(value, dict) and all(isinstance(k, str) and type(item) is kind for k, item in value.items())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= sys.float_info.max
