"""What the metadata of a backend's distribution says, and whether its two halves stand apart."""

from __future__ import annotations

import contextlib

from byoc_core.errors import PluginError
from byoc_core.plugin import PluginRecord
from byoc_core.runtime import RuntimeHandle, runtimes
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from byoc_conformance.fresh_process import compile_side, run_in_fresh_process
from byoc_conformance.outcome import FailedError, NotCoveredError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.subject import Subject

__all__ = ["PROMISES", "opened_runtimes"]

_CORE = "byoc-core"
_BOUNDING = frozenset({"<", "<=", "==", "===", "~="})
"""The operators of a version range that keep later versions out."""

_OPEN_RUN_HALF = """
for blocked in sys.argv[3:]:
    sys.modules[blocked] = None
from byoc_core.runtime.registry import runtimes
runtimes().get(sys.argv[2]).status()
"""


def _require_distribution(subject: Subject) -> PluginRecord:
    record = subject.handle.record
    if not record.distribution:
        raise NotCoveredError("it is a plugin object, which comes from no distribution")
    return record


def _own_runtimes(subject: Subject) -> tuple[PluginRecord, ...]:
    """Gives the records of the runtimes that the subject's distribution brings.

    Raises:
        NotCoveredError: it brings none.
    """
    distribution = _require_distribution(subject).distribution
    own = tuple(record for record in runtimes().list() if record.distribution == distribution)
    if not own:
        raise NotCoveredError(f"{distribution} brings no runtime")
    return own


def opened_runtimes(subject: Subject) -> tuple[RuntimeHandle, ...]:
    """Gives the runtimes that the subject's distribution brings, but for those that a test by itself finds faulty.

    Raises:
        NotCoveredError: there is none.
    """
    found = []
    for record in _own_runtimes(subject):
        with contextlib.suppress(PluginError):
            found.append(runtimes().get(record.name))
    if not found:
        raise NotCoveredError("none of its runtimes can be opened")
    return tuple(found)


def _check_core_range(subject: Subject, case: str) -> None:
    record = _require_distribution(subject)
    if record.distribution == _CORE:
        raise NotCoveredError(f"it is a part of {_CORE} itself")
    if not any(each.operator in _BOUNDING for each in SpecifierSet(record.core_requirement)):
        found = f"`Requires-Dist: {_CORE}{record.core_requirement}`" if record.core_requirement else "no range"
        raise FailedError(
            f"{record.distribution} declares {found}, expected a range with an upper bound, "
            f"such as `{_CORE}>=0.1,<0.2`: it cannot know that it works with every later core"
        )


def _check_version(subject: Subject, case: str) -> None:
    record = _require_distribution(subject)
    try:
        Version(record.version)
    except InvalidVersion as error:
        text = f"{record.distribution} has the version {record.version!r}, which nothing can compare (PEP 440)"
        raise FailedError(text) from error


def _check_runtimes(subject: Subject, case: str) -> None:
    for record in _own_runtimes(subject):
        runtimes().get(record.name)  # raises where it cannot be imported or its hooks are wrong


def _check_run_half(subject: Subject, case: str) -> None:
    for runtime in opened_runtimes(subject):
        blocked = compile_side(subject.handle.record, runtime.record)
        try:
            run_in_fresh_process(_OPEN_RUN_HALF, runtime.type_key, *blocked, timeout=60.0)
        except FailedError as error:
            missing = " and ".join(f"`{name}`" for name in blocked)
            text = f"runtime `{runtime.type_key}` does not open where {missing} cannot be imported"
            raise FailedError(f"{text}: {error}") from error


PROMISES = (
    Promise(
        Level.L0,
        "core-range",
        "names the versions of byoc-core that it works with, up to a highest",
        _check_core_range,
    ),
    Promise(Level.L0, "version", "has a version that can be compared", _check_version),
    Promise(Level.L0, "runtimes-open", "brings runtimes that can be opened", _check_runtimes),
    Promise(
        Level.L0,
        "run-half-alone",
        "has a run half that needs neither its compile half nor the compile side of the core",
        _check_run_half,
        deadline=180.0,
    ),
)
