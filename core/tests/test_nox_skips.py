"""Skips by nox itself are listed as well: sessions without an interpreter, packages without a wheel."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import skipped_tests
from sessions.skips import SessionListener, leave_out_wheel
from skipped_tests import Skip, read_counts, show_counts

_REPOSITORY = Path(skipped_tests.__file__).parent


def _log(folder: Path, *lines: str) -> None:
    listener = SessionListener(folder)
    for line in lines:
        listener.emit(logging.LogRecord("nox", logging.WARNING, "", 0, line, (), None))


def test_skipped_sessions_are_read_from_the_log(tmp_path: Path) -> None:
    _log(
        tmp_path,
        "Running session tests-core-3.13",
        "Session tests-core-3.13 was successful in 3 seconds.",
        "Session tests-core-3.99 skipped: Python interpreter 3.99 not found.",
        "Session pythons-3.98 skipped: Python interpreter 3.98 not found (took 2 seconds).",
        "Session tests-core-3.99 skipped: Python interpreter 3.99 not found.",
    )
    assert read_counts(tmp_path) == [
        Skip("pythons-3.98", "interpreter", "Python interpreter 3.98 not found", 1),
        Skip("tests-core-3.99", "interpreter", "Python interpreter 3.99 not found", 2),
    ]


def test_what_nox_leaves_out_comes_behind_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(skipped_tests.FOLDER, str(tmp_path))
    _log(tmp_path, "Session pythons-3.99 skipped: Python interpreter 3.99 not found.")
    warning = leave_out_wheel("tests-core-3.13", "tvm>=1", "3.13")
    assert warning == "tvm>=1 has no wheel for Python 3.13: tests of this package are skipped"
    skipped_tests.write_counts(tmp_path, "tests-core-3.13", ["could not import 'tvm'"] * 2)
    assert show_counts(read_counts(tmp_path)).splitlines() == [
        "skipped tests: 2 for library",
        "  tests-core-3.13          library         2  could not import 'tvm'",
        "sessions without an interpreter: 1",
        "  pythons-3.99             interpreter     1  Python interpreter 3.99 not found",
        "packages without a wheel: 1",
        "  tests-core-3.13          wheel           1  tvm>=1 has no wheel for Python 3.13",
    ]


@pytest.mark.parametrize("version", ["3.99", f"{sys.version_info.major}.{sys.version_info.minor}"])
def test_a_session_skipped_for_an_interpreter_that_is_there_fails_the_run(version: str, tmp_path: Path) -> None:
    script = f"""
import logging
from sessions.skips import list_at_the_end
list_at_the_end()
logging.getLogger("nox").warning("Session a-{version} skipped: Python interpreter {version} not found.")
"""
    is_there = version != "3.99"
    program = tmp_path / f"python{sys.version_info.major}.{sys.version_info.minor}"
    program.symlink_to(sys.executable)
    environment = os.environ | {"PYTHONPATH": str(_REPOSITORY), "PATH": str(tmp_path)}
    environment.pop(skipped_tests.FOLDER, None)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert done.returncode == is_there, done.stderr
    assert "sessions without an interpreter: 1" in done.stderr
    fault = f"skipped although nothing is missing (interpreter): Python interpreter {version} not found"
    assert (fault in done.stderr) == is_there
