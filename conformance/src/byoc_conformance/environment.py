"""The environment recorded in a report: versions of everything."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from byoc_core.errors import BackendNotFoundError, PluginError
from byoc_core.plugin import BACKENDS_GROUP, RUNTIMES_GROUP, PluginRecord, PluginState, describe_absence, installed

from byoc_conformance.subject import SubjectSpec

__all__ = ["check_installed", "describe_cpu", "find_plugins", "find_version"]


def check_installed(spec: SubjectSpec) -> None:
    """Check that the backends under test are installed, before anything runs. No backend is imported.

    Raises:
        BackendNotFoundError: a backend is not installed.
        PluginError: a backend may not be used; with the reason.
    """
    catalog = installed(BACKENDS_GROUP)
    for name in (spec.backend, *spec.companions):
        record = catalog.find(name)
        if record is None:
            problem, hint = describe_absence("backend", name, catalog.names())
            raise BackendNotFoundError(BACKENDS_GROUP, problem, hint=hint)
        if record.state is not PluginState.AVAILABLE:
            problem = f"cannot be used ({record.state}): {record.reason}"
            raise PluginError(record.label, problem, hint=record.remedy or None)


def find_plugins(spec: SubjectSpec) -> tuple[PluginRecord, ...]:
    """Return the backends under test, and the runtimes of their distributions."""
    backends = [record for name in (spec.backend, *spec.companions) if (record := installed(BACKENDS_GROUP).find(name))]
    distributions = {record.distribution for record in backends}
    runtimes = [record for record in installed(RUNTIMES_GROUP).records if record.distribution in distributions]
    return (*backends, *runtimes)


def find_version(distribution: str) -> str:
    """Return the version of an installed distribution; empty if not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def describe_cpu() -> str:
    """Return the model name of the CPU if known to the system, else the name of its family."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return (names[0] if names else platform.processor()) or platform.machine()
