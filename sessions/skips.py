"""What a run of nox leaves out, listed at its end: skipped tests, sessions without an interpreter, missing wheels."""

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
    """Writes down which sessions nox skips, as its log says; nox has no hook for it.

    Args:
        folder: gets the counts.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line of the log down if it tells of a skipped session."""
        match = _SKIPPED.fullmatch(record.getMessage())
        if match is not None:
            skipped_tests.write_counts(self._folder, match[1], [match[2]], part="session")


def leave_out_wheel(session: str, requirement: str, python: str) -> str:
    """Write down that a package has no wheel for a Python, and return the warning."""
    reason = f"{requirement} has no wheel for Python {python}"
    skipped_tests.write_counts(Path(os.environ[skipped_tests.FOLDER]), session, [reason], part="wheel")
    return f"{reason}: tests that need it are skipped"


def list_at_the_end() -> None:
    """Print when nox ends, whether sessions failed or not, what was left out and why.

    The run fails where a session was skipped for want of an interpreter that is there. Tests at fault have failed
    their own session by then.
    """
    folder = tempfile.TemporaryDirectory(prefix="byoc-skips-")
    os.environ[skipped_tests.FOLDER] = folder.name
    logging.getLogger("nox").addHandler(SessionListener(Path(folder.name)))
    atexit.register(_finish, folder)


def _finish(folder: tempfile.TemporaryDirectory[str]) -> None:
    skips = skipped_tests.read_counts(Path(folder.name))
    folder.cleanup()
    if skips:
        print(skipped_tests.show_counts(skips), file=sys.stderr)
    faults = skipped_tests.find_faults(skip.reason for skip in skips if skip.kind in skipped_tests.OF_NOX)
    if faults:
        print(*faults, sep="\n", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)  # nox has its status already, and Python gives that whatever is raised here
