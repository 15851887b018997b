"""Processor time of tests and sessions: records of a run, and the tables printed when nox ends.

``conftest.py`` records the tests of each process, ``sessions/times.py`` the sessions. The times are seconds of the
processor, of a process and its ended children: the wall clock depends on other programs of the machine.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "SessionTime", "TestTime", "read_sessions", "read_tests", "show", "spent", "write_times"]

FOLDER = "BYOC_TIMES"
"""The environment variable with the folder of the records."""
_NUM_FILES = 12
_NUM_TESTS = 12
_SHOWN_SECONDS = 1.0
"""Files and tests below this time are not printed."""


@dataclass(frozen=True, order=True)
class SessionTime:
    """The time of a session: the wall clock, and the processors of all its processes."""

    name: str
    wall: float
    processor: float


@dataclass(frozen=True, order=True)
class TestTime:
    """The processor time of a test in a session."""

    __test__ = False

    session: str
    test: str
    processor: float


def spent() -> float:
    """Return the processor time of this process and its ended children."""
    return sum(os.times()[:4])


def write_times(folder: Path, kind: str, rows: Iterable[SessionTime | TestTime]) -> None:
    """Write records into a folder, in a file of their own; ``kind`` is ``"sessions"`` or ``"tests"``."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps([asdict(row) for row in rows])
    (folder / f"{kind}-{uuid.uuid4().hex}.json").write_text(text, "utf-8")


def read_sessions(folder: Path) -> list[SessionTime]:
    """Return the records of sessions, the longest first."""
    rows = [SessionTime(**row) for row in _rows(folder, "sessions")]
    return sorted(rows, key=lambda row: (-row.processor, row.name))


def read_tests(folder: Path) -> list[TestTime]:
    """Return the records of tests, the longest first."""
    rows = [TestTime(**row) for row in _rows(folder, "tests")]
    return sorted(rows, key=lambda row: (-row.processor, row.session, row.test))


def _rows(folder: Path, kind: str) -> Iterable[Mapping[str, Any]]:
    for file in sorted(folder.glob(f"{kind}-*.json")):
        yield from json.loads(file.read_text("utf-8"))


def show(sessions: Iterable[SessionTime], tests: Iterable[TestTime], budget: float) -> str:
    """Return tables for people: the sessions, the longest test files, and the longest tests.

    Args:
        sessions: records of sessions.
        tests: records of tests.
        budget: the permitted minutes of the processor for all sessions.
    """
    listed, rows = list(sessions), list(tests)
    minutes = sum(row.processor for row in listed) / 60
    verdict = "over" if minutes > budget else "within"
    lines = [f"processor time: {minutes:.1f} minutes, {verdict} the budget of {budget:g} for all sessions"]
    lines += [f"  {row.name:26} {row.processor:7.1f} s in {row.wall:6.1f} s of the clock" for row in listed]
    files: dict[str, float] = {}
    for row in rows:
        file = f"{row.session:26} {row.test.partition('::')[0]}"
        files[file] = files.get(file, 0.0) + row.processor
    longest_files = sorted(files.items(), key=lambda item: (-item[1], item[0]))
    lines += _longest("test files", longest_files[:_NUM_FILES])
    lines += _longest("tests", [(f"{row.session:26} {row.test}", row.processor) for row in rows[:_NUM_TESTS]])
    return "\n".join(lines)


def _longest(heading: str, rows: Iterable[tuple[str, float]]) -> list[str]:
    shown = [f"  {seconds:7.1f} s  {text}" for text, seconds in rows if seconds >= _SHOWN_SECONDS]
    return [f"longest {heading}:", *shown] if shown else []
