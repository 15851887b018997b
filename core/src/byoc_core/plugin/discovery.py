"""Finds plugins in the metadata of installed distributions. No plugin code runs here.

``import byoc_core`` reads the metadata and the environment, once for the process (:func:`installed`). Cost: one pass
over ``sys.path``, a few milliseconds per hundred distributions, and some 20 ms for ``importlib.metadata`` itself.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from byoc_core.plugin.catalog import Catalog
from byoc_core.plugin.record import PluginRecord, PluginState
from byoc_core.plugin.settings import PluginSettings
from byoc_core.version import __version__

if TYPE_CHECKING:
    from importlib.metadata import Distribution

__all__ = ["BACKENDS_GROUP", "CORE_DISTRIBUTION", "RUNTIMES_GROUP", "discover", "installed"]

BACKENDS_GROUP = "byoc.backends"
RUNTIMES_GROUP = "byoc.runtimes"
CORE_DISTRIBUTION = "byoc-core"


def discover(group: str, *, settings: PluginSettings | None = None, path: Sequence[str] | None = None) -> Catalog:
    """Gives the catalogue of all plugins that installed distributions declare for a group.

    A distribution that stands on the path twice (an editable install beside a wheel) counts once, the first time,
    as it would for an import. Names that byoc-core itself declares cannot be taken from it and cannot be disabled.

    Args:
        group: ``byoc.backends`` or ``byoc.runtimes``.
        settings: the user's settings; by default those of the environment at this moment.
        path: folders to look in; by default ``sys.path``.

    Raises:
        OptionsError: an environment variable is malformed.
    """
    if settings is None:
        settings = PluginSettings.from_environment(os.environ)
    found: list[PluginRecord] = []
    problems: list[str] = []
    for distribution in _distinct_distributions(path):
        try:
            found.extend(_declared(distribution, group))
        except Exception as error:  # noqa: BLE001 - foreign metadata may fail in any way; one bad file must not stop the rest
            problems.append(f"distribution `{_name_of(distribution)}` has unreadable metadata: {error}")
    found.sort(key=lambda record: (record.name, _normalise(record.distribution), record.value))
    records = [_judge(record, _rivals(record, found), settings) for record in found]
    return Catalog(group, records, problems=problems)


@functools.cache
def installed(group: str) -> Catalog:
    """Gives the catalogue of this process for a group: metadata and environment as they were at the first call.

    Raises:
        OptionsError: an environment variable is malformed.
    """
    return discover(group)


def _distinct_distributions(path: Sequence[str] | None) -> Iterator[Distribution]:
    from importlib.metadata import distributions

    seen: set[str] = set()
    for distribution in distributions() if path is None else distributions(path=list(path)):
        if _mentions_plugins(distribution):
            name = _normalise(_name_of(distribution))
            if name not in seen:
                seen.add(name)
                yield distribution


def _mentions_plugins(distribution: Distribution) -> bool:
    try:
        return "[byoc." in (distribution.read_text("entry_points.txt") or "")
    except (OSError, ValueError):
        return False


def _declared(distribution: Distribution, group: str) -> list[PluginRecord]:
    """Gives one record per entry point of the group, two equal lines counting once."""
    entries = sorted({(entry.name, entry.value) for entry in distribution.entry_points.select(group=group)})
    if not entries:
        return []
    name = _name_of(distribution)
    requirement = _core_requirement(distribution)
    return [PluginRecord(entry, group, value, name, distribution.version, requirement) for entry, value in entries]


def _core_requirement(distribution: Distribution) -> str:
    """Gives the range of core versions from ``Requires-Dist``; several lines are joined."""
    lines = [line for line in distribution.requires or () if line.lower().startswith("byoc")]
    if not lines:
        return ""
    from packaging.requirements import Requirement

    requirements = [Requirement(line) for line in lines]
    ranges = [
        str(requirement.specifier)
        for requirement in requirements
        if _normalise(requirement.name) == CORE_DISTRIBUTION
        and (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
    ]
    return ",".join(sorted(filter(None, ranges)))


@dataclass(frozen=True, slots=True)
class _Rivals:
    """Who else claims a plugin's name: records of the core, and of others."""

    core: tuple[PluginRecord, ...]
    others: tuple[PluginRecord, ...]


def _rivals(record: PluginRecord, found: list[PluginRecord]) -> _Rivals:
    claims = [other for other in found if other.name == record.name and other is not record]
    return _Rivals(tuple(c for c in claims if _is_core(c)), tuple(c for c in claims if not _is_core(c)))


def _judge(record: PluginRecord, rivals: _Rivals, settings: PluginSettings) -> PluginRecord:
    """Gives the record with its state: the settings come first, then clashes, then versions."""
    if _is_core(record):
        return record
    if record.group == BACKENDS_GROUP:
        if record.name in settings.disabled:
            return _refuse(
                record,
                PluginState.DISABLED,
                "the environment variable BYOC_DISABLE_BACKENDS names it",
                "Remove it from BYOC_DISABLE_BACKENDS.",
            )
        if settings.allowed is not None and record.name not in settings.allowed:
            return _refuse(
                record,
                PluginState.DISABLED,
                "the environment variable BYOC_BACKENDS does not name it",
                "Add it to BYOC_BACKENDS.",
            )
    return _judge_clash(record, rivals, settings) or _judge_version(record)


def _judge_clash(record: PluginRecord, rivals: _Rivals, settings: PluginSettings) -> PluginRecord | None:
    if rivals.core:
        return _refuse(
            record,
            PluginState.CLASH,
            f"the name belongs to {CORE_DISTRIBUTION}",
            f"Uninstall it: pip uninstall {record.distribution}.",
        )
    if not rivals.others:
        return None
    if all(other.distribution == record.distribution for other in rivals.others):
        return _refuse(
            record,
            PluginState.CLASH,
            "its distribution declares the name twice, for different objects",
            f"Report this to the authors of {record.distribution}.",
        )
    claimants = {_normalise(claim.distribution): claim for claim in (record, *rivals.others)}
    chosen = claimants.get(_normalise(settings.preferred.get(record.name, "")))
    if chosen is None:
        names = ", ".join(
            f"{other.distribution} {other.version}"
            for other in rivals.others
            if other.distribution != record.distribution
        )
        return _refuse(
            record,
            PluginState.CLASH,
            f"the name is also claimed by {names}",
            f"Uninstall one of them, or choose this one with BYOC_PREFER={record.name}={record.distribution}.",
        )
    if chosen.distribution != record.distribution:
        return _refuse(
            record,
            PluginState.DISABLED,
            f"the environment variable BYOC_PREFER gives the name to {chosen.distribution}",
            f"Choose this one with BYOC_PREFER={record.name}={record.distribution}.",
        )
    return None


def _judge_version(record: PluginRecord) -> PluginRecord:
    if not record.core_requirement:
        return record
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    installed = Version(__version__)
    # A pre-release is tried as the release it will become: plugins for 0.2 must be testable on 0.2.0rc1.
    version = Version(installed.base_version) if installed.is_prerelease else installed
    if SpecifierSet(record.core_requirement).contains(version, prereleases=True):
        return record
    return _refuse(
        record,
        PluginState.INCOMPATIBLE,
        f"it needs {CORE_DISTRIBUTION}{record.core_requirement}, and {installed} is installed",
        f"Install versions that fit: pip install --upgrade {record.distribution} {CORE_DISTRIBUTION}.",
    )


def _refuse(record: PluginRecord, state: PluginState, reason: str, remedy: str) -> PluginRecord:
    return replace(record, state=state, reason=reason, remedy=remedy)


def _is_core(record: PluginRecord) -> bool:
    return _normalise(record.distribution) == CORE_DISTRIBUTION


def _name_of(distribution: Distribution) -> str:
    # Typed `str`, but None where METADATA has no Name field.
    return str(distribution.metadata["Name"] or getattr(distribution, "_path", "unknown"))


def _normalise(name: str) -> str:
    """Gives a distribution's name in the form that packaging compares: lower case, runs of ``-_.`` as one ``-``."""
    return re.sub(r"[-_.]+", "-", name).lower()
