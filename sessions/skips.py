"""The omissions of a nox run, listed at the end: skipped tests, sessions without an interpreter, missing wheels."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
import tempfile
from pathlib import Path

import skipped_tests

__all__ = ["SessionListener", "leave_out_wheel", "list_at_the_end"]

_SKIPPED = re.compile(r"Session (.+?) skipped: (.+?)( \(took .+\))?\.?")


class SessionListener(logging.Handler):
    """A log handler recording the sessions skipped by nox; nox has no hook for skipped sessions.

    Args:
        folder: gets the counts.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        """Record a line of the log if the line reports a skipped session."""
        match = _SKIPPED.fullmatch(record.getMessage())
        if match is not None:
            skipped_tests.write_counts(self._folder, match[1], [match[2]], part="session")


def leave_out_wheel(session: str, requirement: str, python: str) -> str:
    """Record a package without a wheel for a Python, and return the warning."""
    reason = f"{requirement} has no wheel for Python {python}"
    skipped_tests.write_counts(Path(os.environ[skipped_tests.FOLDER]), session, [reason], part="wheel")
    return f"{reason}: tests of this package are skipped"


def list_at_the_end() -> None:
    """Print the omissions with their reasons when nox ends, whether sessions failed or not.

    The run fails if a session was skipped for want of an interpreter, although the interpreter is installed. Tests at
    fault have failed their own session by then. A nox started by nox for a single session leaves its counts to the
    first nox.
    """
    if skipped_tests.FOLDER in os.environ:
        logging.getLogger("nox").addHandler(SessionListener(Path(os.environ[skipped_tests.FOLDER])))
        return
    folder = tempfile.TemporaryDirectory(prefix="byoc-skips-")
    os.environ[skipped_tests.FOLDER] = folder.name
    logging.getLogger("nox").addHandler(SessionListener(Path(folder.name)))
    atexit.register(_finish, folder)


def _finish(folder: tempfile.TemporaryDirectory[str]) -> None:
    skips = skipped_tests.read_counts(Path(folder.name))
    folder.cleanup()
    if skips:
        print(skipped_tests.show_counts(skips), file=sys.stderr)
    faults = skipped_tests.find_faults(skip.reason for skip in skips if skip.kind in skipped_tests.NOX_KINDS)
    if faults:
        print(*faults, sep="\n", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)  # nox has set its exit status already; an exception here would not change it
