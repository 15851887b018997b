"""Gathering of kit results during a run of pytest, from all processes, and writing of reports."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from byoc_conformance.report import Report, new_report, write_report
from byoc_conformance.report.tables import format_headline
from byoc_conformance.subject import SubjectSpec
from byoc_conformance.verdict import Judgement

__all__ = ["RECORD", "RunReports", "new_record"]

RECORD = "byoc_conformance"
"""The attribute of pytest's test report with the result of :func:`new_record`.

``pytest_plugin`` reads the attribute by a literal of its own, because it imports nothing of the kit.
"""


def new_record(suite: str, spec: SubjectSpec, changes: tuple[str, ...], judgement: Judgement | None) -> dict[str, Any]:
    """Return the result of a test, as plain values attached to pytest's own report of the test.

    Args:
        suite: the node id of the suite of the test.
        spec: the specification of the backend under test.
        changes: changes to the suite.
        judgement: the judgement of the test; ``None`` for the guard.
    """
    return {
        "suite": suite,
        "spec": spec.to_json(),
        "changes": list(changes),
        "judgement": None if judgement is None else judgement.to_json(),
    }


@dataclass
class _SuiteRun:
    spec: SubjectSpec
    changes: tuple[str, ...] = ()
    judgements: list[Judgement] = field(default_factory=list)


class RunReports:
    """The reports of a run, by suite.

    Args:
        started: the start of the run.
        folder: where reports are written; if several, each into a separate folder with the name of the suite, or with
            the whole node id if suites of several files share the name. ``None`` for nowhere.
    """

    def __init__(self, started: datetime, folder: str | None) -> None:
        self._started = started
        self._folder = None if folder is None else Path(folder)
        self._suites: dict[str, _SuiteRun] = {}
        self.summary: list[str] = []

    def add(self, record: Mapping[str, Any]) -> None:
        """Note the result of a test, from :func:`new_record`."""
        run = self._suites.setdefault(record["suite"], _SuiteRun(SubjectSpec.from_json(record["spec"])))
        run.changes = tuple(record["changes"])
        if record["judgement"] is not None:
            run.judgements.append(Judgement.from_json(record["judgement"]))

    def finish(self) -> bool:
        """Write the reports, and summarise each suite in ``summary``.

        Returns:
            Whether all could be written.
        """
        is_written = True
        for suite, run in sorted(self._suites.items()):
            report = new_report(run.spec, run.judgements, self._started, run.changes)
            self.summary.append(_summarise(report))
            if self._folder is None:
                continue
            folder = self._folder.joinpath(*_name_parts(suite, self._suites))
            try:
                write_report(report, folder)
                self.summary.append(f"  report: {folder / 'conformance.html'}")
            except OSError as error:
                self.summary.append(f"  no report: {error}")
                is_written = False
        return is_written


def _name_parts(suite: str, suites: Collection[str]) -> list[str]:
    """Return the distinct folders of a suite's report: the suite's name, or the whole node id if names collide."""
    ids = {name: [part for part in re.split("/|::", name) if part.strip(".")] for name in suites}
    parts = ids[suite]
    is_alone = sum(other[-1] == parts[-1] for other in ids.values()) == 1
    return [] if len(ids) == 1 else parts[-1:] if is_alone else parts


def _summarise(report: Report) -> str:
    counts = [f"{number} {verdict.replace('-', ' ')}" for verdict, number in report.counts.items() if number]
    return f"{format_headline(report)} ({', '.join(counts)})"
