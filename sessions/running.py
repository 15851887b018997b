"""Execution of tests and the conformance kit by sessions, and the folders of the results."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import nox

from sessions.packages import ROOT

__all__ = [
    "KIT_EXAMPLES",
    "REPORTS",
    "count_sessions",
    "count_workers",
    "keeps_promises",
    "prepare_environment",
    "run_tests",
]

REPORTS = ROOT / "out" / "conformance"
KIT_EXAMPLES = 5


def prepare_environment() -> None:
    """Set the environment variables of all sessions."""
    os.environ.setdefault("BYOC_CACHE_DIR", str(ROOT / "out" / "build-cache"))
    os.environ.setdefault("UV_NATIVE_TLS", "1")  # trust the certificates of the system, as pip does
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else each of some thousand processes parses all its imports


def count_sessions() -> int:
    """Return the number of sessions at once in a run of the defaults, with ``count_workers`` processes each.

    The sessions are one more than processors: a session waits for a sixth of its time, for processes of tests,
    deadlines, installations or its last test.
    """
    return min((os.cpu_count() or 1) + 1, 3)


def count_workers(session: nox.Session) -> str:
    """Return the number of processes running tests of a session at once."""
    sharing = count_sessions() if session.parallel else 1
    return str(min(math.ceil((os.cpu_count() or 1) / sharing), 4))


def run_tests(session: nox.Session, *arguments: str, **variables: str) -> None:
    """Run pytest on installed packages only; the source tree cannot be imported.

    Args:
        session: the session.
        arguments: of pytest.
        variables: environment variables by name.
    """
    workers = count_workers(session)
    distribution = ("-n", workers, "--dist", "worksteal") if workers != "1" else ("-n", "0")  # some tests take long
    environment = {"BYOC_TEST_INSTALLED": "1", **variables}
    session.run("pytest", *distribution, *arguments, *session.posargs, env=environment)


def keeps_promises(
    session: nox.Session,
    backend: str,
    *arguments: str,
    folder: str = "",
    examples: int = KIT_EXAMPLES,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> bool:
    """Run the kit on a backend, leave the report, and return whether all promises are kept.

    Args:
        session: the session.
        backend: the backend.
        arguments: of ``byoc conformance``.
        folder: the folder of the report; by default the name of the backend.
        examples: the number of examples.
        variables: environment variables by name.
    """
    report = REPORTS / (folder or backend)
    shutil.rmtree(report, ignore_errors=True)
    cache = Path(os.environ["BYOC_CACHE_DIR"]) / "kit"  # by itself: a cache drops its oldest entries
    command = ("byoc", "conformance", backend, "--jobs", count_workers(session), "--examples", str(examples))
    try:
        session.run(*command, "--report", str(report), *arguments, env={"BYOC_CACHE_DIR": str(cache), **variables})
    except nox.command.CommandFailed:
        return False
    return True
