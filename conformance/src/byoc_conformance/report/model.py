"""A report as data: the content of ``conformance.json``.

The JSON schema is in ``conformance.schema.json`` beside this file. After a change here, rewrite the schema with
``python -m byoc_conformance.report.schema``. Reports of earlier kits are read with the same model for comparisons, and
lack any new field: such a field needs a default.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, computed_field

from byoc_conformance.outcome import Status
from byoc_conformance.promise import Level
from byoc_conformance.verdict import Verdict

__all__ = ["SCHEMA_VERSION", "Coverage", "Environment", "LevelSummary", "Plugin", "Report", "ReportItem", "Settings"]

SCHEMA_VERSION = 1
"""Grows if a field changes its meaning or is removed; a new field does not count."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Plugin(_Part):
    """A participating backend or runtime, with its distribution."""

    group: str
    name: str
    distribution: str
    version: str


class Environment(_Part):
    """Versions of everything; empty if not installed."""

    kit: str
    core: str
    python: str
    numpy: str
    onnx: str
    platform: str
    cpu: str
    plugins: tuple[Plugin, ...]


class Settings(_Part):
    """The settings of the test run; see :class:`byoc_conformance.SubjectSpec`."""

    backend: str
    options: dict[str, Any]
    companions: tuple[str, ...]
    companion_options: dict[str, dict[str, Any]]
    examples: int
    seed: int


class ReportItem(_Part):
    """A test.

    ``xfail`` is the reason for an expected failure; empty if none is expected.
    """

    id: str
    level: Level
    promise: str
    case: str
    status: Verdict
    text: str = ""
    seconds: float = 0.0
    xfail: str = ""


class Coverage(_Part):
    """The status of an op in a dtype: the worst reported by any test."""

    op: str
    dtype: str
    status: Status


class LevelSummary(_Part):
    """A level: the number of tests, by status."""

    level: Level
    topic: str
    counts: dict[Verdict, int]


class Report(_Part):
    """The results of a run of the kit. Derived values are computed from the items.

    ``changes`` describes changes to the suite itself; any change makes the report red.
    """

    schema_version: int = Field(default=SCHEMA_VERSION, ge=1, strict=True)
    started: datetime
    finished: datetime
    environment: Environment
    settings: Settings
    changes: tuple[str, ...] = ()
    items: tuple[ReportItem, ...]
    coverage: tuple[Coverage, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def counts(self) -> dict[Verdict, int]:
        """The number of tests, by status; 0 for absent statuses."""
        return _count(self.items)

    @computed_field  # type: ignore[prop-decorator]
    @cached_property
    def levels(self) -> tuple[LevelSummary, ...]:
        """The levels, in order."""
        return tuple(
            LevelSummary(
                level=level,
                topic=level.topic,
                counts=_count(item for item in self.items if item.level is level),
            )
            for level in Level
        )

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_complete(self) -> bool:
        """Whether all tests ran."""
        return self.counts[Verdict.NOT_RUN] == 0

    @computed_field  # type: ignore[prop-decorator]
    @property
    def is_red(self) -> bool:
        """Whether somebody must act."""
        return bool(self.changes) or any(item.status.is_red for item in self.items)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def level_reached(self) -> Level | None:
        """The highest level reached: this level and all below ran whole, with passed tests and without red tests."""
        reached = None
        for summary in self.levels:
            counts = summary.counts
            stops = any(counts[verdict] for verdict in Verdict if verdict.is_red or verdict is Verdict.NOT_RUN)
            if self.changes or stops or not counts[Verdict.PASSED]:
                break
            reached = summary.level
        return reached

    @property
    def num_judged(self) -> int:
        """The number of judged tests: the backend had work to show, or broke the promise."""
        return sum(item.status.is_judged for item in self.items)

    @property
    def red_items(self) -> tuple[ReportItem, ...]:
        """The tests in need of action."""
        return tuple(item for item in self.items if item.status.is_red)

    @property
    def xfailed_items(self) -> tuple[ReportItem, ...]:
        """The broken tests expected by an override."""
        return tuple(item for item in self.items if item.status is Verdict.XFAILED)


def _count(items: Iterable[ReportItem]) -> dict[Verdict, int]:
    found = Counter(item.status for item in items)
    return {verdict: found[verdict] for verdict in Verdict}
