"""Changes between two reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from byoc_conformance.report.model import Report
from byoc_conformance.report.tables import environment_rows
from byoc_conformance.suite import GUARD
from byoc_conformance.verdict import Verdict

__all__ = ["Change", "Comparison", "compare_reports"]

_RANKS = {
    Verdict.PASSED: 0,
    Verdict.DECLINED: 1,
    Verdict.NOT_COVERED: 1,
    Verdict.XFAILED: 2,
    Verdict.XPASSED: 3,
    Verdict.FAILED: 4,
    Verdict.CRASHED: 5,
    Verdict.HUNG: 6,
}
"""From good to bad. A test not run counts as absent."""

_DIFFERENT_IN_EVERY_RUN = {"started", "took"}
"""Rows different in every report."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a test, of an op in a dtype, or of a component of the environment.

    Attributes:
        name: the test's id, ``"add float32"``, or ``"byoc-core"``.
        before: the status or version in the first report; empty if absent.
        after: the same of the second.
    """

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of tests or of coverage, each list in order of names."""

    better: tuple[Change, ...]
    worse: tuple[Change, ...]
    appeared: tuple[Change, ...]
    vanished: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The changes between two reports: tests, ops in dtypes, and environments."""

    tests: _Changes
    coverage: _Changes
    tested_with: tuple[Change, ...]

    @property
    def is_worse(self) -> bool:
        """Whether anything got worse, or a red test appeared."""
        appeared = (Verdict(change.after) for change in self.tests.appeared)  # a broken cell may be an expected failure
        return bool(self.tests.worse or self.coverage.worse) or any(verdict.is_red for verdict in appeared)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "is_worse": self.is_worse}


def compare_reports(before: Report, after: Report) -> Comparison:
    """Return the changes from an earlier report to a later report."""
    return Comparison(
        _compare(_verdicts(before), _verdicts(after)),
        _compare(_cells(before), _cells(after)),
        _compare_rows(dict(environment_rows(before)), dict(environment_rows(after))),
    )


def _verdicts(report: Report) -> dict[str, Verdict]:
    """Return the verdicts of tests run, plus a guard verdict on the completeness of the suite."""
    guard = {GUARD: Verdict.FAILED if report.changes else Verdict.PASSED}
    return guard | {item.id: item.status for item in report.items if item.status is not Verdict.NOT_RUN}


def _cells(report: Report) -> dict[str, Verdict]:
    return {f"{cell.op} {cell.dtype}": Verdict(cell.status) for cell in report.coverage}


def _compare(before: Mapping[str, Verdict], after: Mapping[str, Verdict]) -> _Changes:
    better: list[Change] = []
    worse: list[Change] = []
    for name in sorted(before.keys() & after.keys()):
        change = Change(name, before[name].value, after[name].value)
        step = _RANKS[after[name]] - _RANKS[before[name]]
        if step:
            (worse if step > 0 else better).append(change)
    appeared = tuple(Change(name, "", after[name].value) for name in sorted(after.keys() - before.keys()))
    vanished = tuple(Change(name, before[name].value, "") for name in sorted(before.keys() - after.keys()))
    return _Changes(tuple(better), tuple(worse), appeared, vanished)


def _compare_rows(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[Change, ...]:
    return tuple(
        Change(name, before.get(name, ""), after.get(name, ""))
        for name in dict.fromkeys((*before, *after))
        if name not in _DIFFERENT_IN_EVERY_RUN and before.get(name) != after.get(name)
    )
