"""A report as data: what ``conformance.json`` holds.

Its JSON schema stands beside this, in ``conformance.schema.json``; after a change here, write it anew with
``python -m byoc_conformance.report.schema``.
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
"""Grows when a field changes its meaning or goes; a new field changes nothing."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, json_schema_serialization_defaults_required=True)


class Plugin(_Part):
    """A backend or runtime that took part, with where it comes from."""

    group: str
    name: str
    distribution: str
    version: str


class Environment(_Part):
    """Versions of everything; empty where something is not installed."""

    kit: str
    core: str
    python: str
    numpy: str
    onnx: str
    platform: str
    cpu: str
    plugins: tuple[Plugin, ...]


class Settings(_Part):
    """How the backend was tested; as :class:`byoc_conformance.SubjectSpec`."""

    backend: str
    options: dict[str, Any]
    companions: tuple[str, ...]
    companion_options: dict[str, dict[str, Any]]
    examples: int
    seed: int


class ReportItem(_Part):
    """One test.

    ``xfail`` is why it is expected to be broken; empty where it is not.
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
    """How an op fared in a dtype: the worst that any test says of it."""

    op: str
    dtype: str
    status: Status


class LevelSummary(_Part):
    """One level: how many tests it has, by status."""

    level: Level
    topic: str
    counts: dict[Verdict, int]


class Report(_Part):
    """What came of one run of the kit. Whatever follows from the items is computed from them.

    ``changes`` says how the suite itself was changed; anything there makes the report red.
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
        """How many tests there are, by status; those that never occur are 0."""
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
        """Whether somebody must do something."""
        return bool(self.changes) or any(item.status.is_red for item in self.items)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def level_reached(self) -> Level | None:
        """The highest level such that it and all below it ran whole, have nothing red, and have something passed."""
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
        """How many tests the backend was held to: it had something to show, or broke the promise."""
        return sum(item.status.is_judged for item in self.items)

    @property
    def red_items(self) -> tuple[ReportItem, ...]:
        """The tests about which somebody must do something."""
        return tuple(item for item in self.items if item.status.is_red)

    @property
    def xfailed_items(self) -> tuple[ReportItem, ...]:
        """The tests that are broken as an override says."""
        return tuple(item for item in self.items if item.status is Verdict.XFAILED)


def _count(items: Iterable[ReportItem]) -> dict[Verdict, int]:
    found = Counter(item.status for item in items)
    return {verdict: found[verdict] for verdict in Verdict}
