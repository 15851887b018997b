"""Discovery of plugins in the metadata of installed distributions, and decisions on their use. No plugin code runs."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from byoc_core.plugin.catalog import Catalog, Judgement
from byoc_core.plugin.metadata import Declaration, Metadata, normalise, read_metadata
from byoc_core.plugin.record import PluginRecord, PluginState
from byoc_core.plugin.settings import PluginSettings
from byoc_core.version import __version__

__all__ = [
    "BACKENDS_GROUP",
    "CORE_DISTRIBUTION",
    "HALVES_GROUP",
    "IMPORTERS_GROUP",
    "LIBRARIES_GROUP",
    "MACHINES_GROUP",
    "RUNTIMES_GROUP",
    "discover",
    "make_catalog",
]

BACKENDS_GROUP = "byoc.backends"
"""The entry-point group of backends."""

RUNTIMES_GROUP = "byoc.runtimes"
"""The entry-point group of runtimes."""

IMPORTERS_GROUP = "byoc.importers"
"""The entry-point group of importers of ONNX operators."""

LIBRARIES_GROUP = "byoc.libraries"
"""The entry-point group of files of shared libraries; see :mod:`byoc_core.native.declared_libraries`."""

MACHINES_GROUP = "byoc.native_machines"
"""The entry-point group of native machines; see :mod:`byoc_core.runtime.native_machines`."""

HALVES_GROUP = "byoc.native_runtimes"
"""The entry-point group of native halves of runtimes, for native machines."""

CORE_DISTRIBUTION = "byoc-core"


def discover(group: str, *, settings: PluginSettings | None = None, path: Sequence[str] | None = None) -> Catalog:
    """Return the catalogue of all plugins declared by installed distributions for a group.

    A distribution found on the path twice (an editable install beside a wheel) counts once, at the first place, like in
    an import. Names declared by byoc-core itself cannot be taken over or disabled.

    Args:
        group: ``byoc.backends``, ``byoc.runtimes``, ``byoc.importers``, ``byoc.libraries`` or ``byoc.native_machines``.
        settings: the user's settings; by default read from the current environment.
        path: folders to look in; by default ``sys.path``.

    Raises:
        OptionsError: an environment variable is malformed.
    """
    if settings is None:
        settings = PluginSettings.from_environment(os.environ)
    return make_catalog(group, read_metadata(path), settings)


def make_catalog(group: str, metadata: Metadata, settings: PluginSettings) -> Catalog:
    """Return the catalogue of a group: each plugin declared by the metadata, judged by the settings."""
    claims: dict[str, list[_Claim]] = {}
    for declaration in metadata.declarations:
        for declared, name, value in declaration.entries:
            if declared == group:
                claims.setdefault(name, []).append(_Claim(name, group, value, declaration))
    judges = {name: functools.partial(_judge_claims, claims[name], settings) for name in sorted(claims)}
    return Catalog(group, problems=metadata.problems, judges=judges)


class _Claim(NamedTuple):
    """A distribution's claim to a plugin's name."""

    name: str
    group: str
    value: str
    declaration: Declaration


def _judge_claims(claims: Sequence[_Claim], settings: PluginSettings) -> Judgement:
    """Return the records of all claims to a name. Versions are compared if a distribution requires a range."""
    found: list[PluginRecord] = []
    problems = []
    for name, group, value, declaration in claims:
        try:
            needed = _core_requirement(declaration)
        except ValueError as error:
            problems.append(f"distribution `{declaration.distribution}` has unreadable metadata: {error}")
            continue
        found.append(PluginRecord(name, group, value, declaration.distribution, declaration.version, needed))
    found.sort(key=lambda record: (normalise(record.distribution), record.value))
    return Judgement(tuple(_judge(record, _rivals(record, found), settings) for record in found), tuple(problems))


def _core_requirement(declaration: Declaration) -> str:
    """Return the range of core versions from ``Requires-Dist``; several lines are joined."""
    if not declaration.requires:
        return ""
    from packaging.requirements import Requirement

    requirements = [Requirement(line) for line in declaration.requires]
    ranges = [
        str(requirement.specifier)
        for requirement in requirements
        if normalise(requirement.name) == CORE_DISTRIBUTION
        and (requirement.marker is None or requirement.marker.evaluate({"extra": ""}))
    ]
    return ",".join(sorted(filter(None, ranges)))


@dataclass(frozen=True, slots=True)
class _Rivals:
    """The other claims to a plugin's name: records of the core, and of third parties."""

    core: tuple[PluginRecord, ...]
    third_party: tuple[PluginRecord, ...]


def _rivals(record: PluginRecord, found: list[PluginRecord]) -> _Rivals:
    claims = [other for other in found if other is not record]
    return _Rivals(tuple(c for c in claims if _is_core(c)), tuple(c for c in claims if not _is_core(c)))


def _judge(record: PluginRecord, rivals: _Rivals, settings: PluginSettings) -> PluginRecord:
    """Return the record with the state, decided by the settings first, then clashes, then versions."""
    if _is_core(record):
        return record
    if record.group == BACKENDS_GROUP:
        if record.name in settings.disabled:
            return _refuse(
                record,
                PluginState.DISABLED,
                "the environment variable BYOC_DISABLE_BACKENDS names the backend",
                "Remove the name from BYOC_DISABLE_BACKENDS.",
            )
        if settings.allowed is not None and record.name not in settings.allowed:
            return _refuse(
                record,
                PluginState.DISABLED,
                "the environment variable BYOC_BACKENDS does not name the backend",
                "Add the name to BYOC_BACKENDS.",
            )
    return _judge_clash(record, rivals, settings) or _judge_version(record)


def _judge_clash(record: PluginRecord, rivals: _Rivals, settings: PluginSettings) -> PluginRecord | None:
    if rivals.core:
        return _refuse(
            record,
            PluginState.CLASH,
            f"the name belongs to {CORE_DISTRIBUTION}",
            f"Uninstall the distribution: pip uninstall {record.distribution}.",
        )
    if not rivals.third_party:
        return None
    if all(other.distribution == record.distribution for other in rivals.third_party):
        return _refuse(
            record,
            PluginState.CLASH,
            "the distribution declares the name twice, for different objects",
            f"Report this to the authors of {record.distribution}.",
        )
    claimants = {normalise(claim.distribution): claim for claim in (record, *rivals.third_party)}
    preferred = claimants.get(normalise(settings.preferred.get(record.name, "")))
    if preferred is None:
        names = ", ".join(
            f"{other.distribution} {other.version}"
            for other in rivals.third_party
            if other.distribution != record.distribution
        )
        return _refuse(
            record,
            PluginState.CLASH,
            f"the name is also claimed by {names}",
            f"Uninstall a distribution, or choose this distribution with "
            f"BYOC_PREFER={record.name}={record.distribution}.",
        )
    if preferred.distribution != record.distribution:
        return _refuse(
            record,
            PluginState.DISABLED,
            f"the environment variable BYOC_PREFER gives the name to {preferred.distribution}",
            f"Choose this distribution with BYOC_PREFER={record.name}={record.distribution}.",
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
        f"the plugin needs {CORE_DISTRIBUTION}{record.core_requirement}, and {installed} is installed",
        f"Install versions that fit: pip install --upgrade {record.distribution} {CORE_DISTRIBUTION}.",
    )


def _refuse(record: PluginRecord, state: PluginState, reason: str, remedy: str) -> PluginRecord:
    return replace(record, state=state, reason=reason, remedy=remedy)


def _is_core(record: PluginRecord) -> bool:
    return normalise(record.distribution) == CORE_DISTRIBUTION
