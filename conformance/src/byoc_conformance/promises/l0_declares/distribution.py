"""The metadata of a backend's distribution, and the separation of the two halves.

The run half must open in a fresh process with the modules of :func:`byoc_conformance.fresh_process.compile_side`
blocked, as on a machine without the compile side.
"""

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
"""The operators of a version range with an upper bound."""

_OPEN_RUN_HALF = """
for blocked in sys.argv[3:]:
    sys.modules[blocked] = None
from byoc_core.runtime.registry import runtimes
runtimes().get(sys.argv[2]).status()
"""


def _require_distribution(subject: Subject) -> PluginRecord:
    record = subject.handle.record
    if not record.distribution:
        raise NotCoveredError("the backend is a plugin object without a distribution")
    return record


def _own_runtimes(subject: Subject) -> tuple[PluginRecord, ...]:
    """Return the records of the runtimes in the subject's distribution.

    Raises:
        NotCoveredError: there is none.
    """
    distribution = _require_distribution(subject).distribution
    own = tuple(record for record in runtimes().list() if record.distribution == distribution)
    if not own:
        raise NotCoveredError(f"{distribution} contains no runtime")
    return own


def opened_runtimes(subject: Subject) -> tuple[RuntimeHandle, ...]:
    """Return the runtimes in the subject's distribution, except faulty runtimes reported by a separate test.

    Raises:
        NotCoveredError: there is none.
    """
    found = []
    for record in _own_runtimes(subject):
        with contextlib.suppress(PluginError):
            found.append(runtimes().get(record.name))
    if not found:
        raise NotCoveredError("no runtime of the distribution can be opened")
    return tuple(found)


def _check_core_range(subject: Subject, case: str) -> None:
    record = _require_distribution(subject)
    if record.distribution == _CORE:
        raise NotCoveredError(f"the backend is a part of {_CORE} itself")
    if not any(each.operator in _BOUNDING for each in SpecifierSet(record.core_requirement)):
        found = f"`Requires-Dist: {_CORE}{record.core_requirement}`" if record.core_requirement else "no range"
        raise FailedError(
            f"{record.distribution} declares {found}, expected a range with an upper bound, "
            f"such as `{_CORE}>=0.1,<0.2`: later versions of the core may break the backend"
        )


def _check_version(subject: Subject, case: str) -> None:
    record = _require_distribution(subject)
    try:
        Version(record.version)
    except InvalidVersion as error:
        text = f"{record.distribution} has the version {record.version!r}, expected a version in the form of PEP 440"
        raise FailedError(text) from error


def _check_runtimes(subject: Subject, case: str) -> None:
    for record in _own_runtimes(subject):
        runtimes().get(record.name)  # raises if the import fails or hooks are wrong


def _check_run_half(subject: Subject, case: str) -> None:
    for runtime in opened_runtimes(subject):
        blocked = compile_side(subject.handle.record, runtime.record)
        try:
            run_in_fresh_process(_OPEN_RUN_HALF, runtime.type_key, *blocked, timeout=60.0)
        except FailedError as error:
            missing = " and ".join(f"`{name}`" for name in blocked)
            text = f"runtime `{runtime.type_key}` does not open without {missing}"
            raise FailedError(f"{text}: {error}") from error


PROMISES = (
    Promise(
        Level.L0,
        "core-range",
        "declares a range of byoc-core versions with an upper bound",
        _check_core_range,
    ),
    Promise(Level.L0, "version", "has a valid version (PEP 440)", _check_version),
    Promise(Level.L0, "runtimes-open", "provides runtimes that open without an error", _check_runtimes),
    Promise(
        Level.L0,
        "run-half-alone",
        "has a run half independent of its compile half and of the core's compile side",
        _check_run_half,
        deadline=180.0,
    ),
)
