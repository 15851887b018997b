"""The processor time of a nox run, printed at the end: by session, test file and test."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import processor_times
from processor_times import SessionTime

__all__ = ["BUDGET", "TimeListener", "print_at_the_end"]

BUDGET = 36.0
"""The permitted minutes of the processor for all default sessions, on empty caches; ``CONTRIBUTING.md`` says why."""

_STARTED = re.compile(r"Running session (.+)")
_ENDED = re.compile(r"Session (.+?) (was successful|failed|aborted|skipped|interrupted)\b.*")


class TimeListener(logging.Handler):
    """A log handler recording the time of each session; nox has no hook for sessions.

    Args:
        folder: gets the records.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._started: dict[str, tuple[float, float]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Record the start or the end of a session if the line of the log states one."""
        message = record.getMessage()
        if match := _STARTED.fullmatch(message):
            self._started[match[1]] = (time.monotonic(), processor_times.spent())
        elif (match := _ENDED.fullmatch(message)) and match[1] in self._started:
            clock, processor = self._started.pop(match[1])
            row = SessionTime(match[1], time.monotonic() - clock, processor_times.spent() - processor)
            processor_times.write_times(self._folder, "sessions", [row])


def print_at_the_end() -> None:
    """Print the times when nox ends; a nox started by nox for a single session leaves its records to the first nox."""
    if processor_times.FOLDER in os.environ:
        logging.getLogger("nox").addHandler(TimeListener(Path(os.environ[processor_times.FOLDER])))
        return
    folder = tempfile.TemporaryDirectory(prefix="byoc-times-")
    os.environ[processor_times.FOLDER] = folder.name
    logging.getLogger("nox").addHandler(TimeListener(Path(folder.name)))
    atexit.register(_finish, folder)


def _finish(folder: tempfile.TemporaryDirectory[str]) -> None:
    sessions = processor_times.read_sessions(Path(folder.name))
    tests = processor_times.read_tests(Path(folder.name))
    folder.cleanup()
    if sessions:
        print(processor_times.show(sessions, tests, BUDGET), file=sys.stderr)
