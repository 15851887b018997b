"""The processor time of sessions and tests is recorded, and printed when nox ends."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import processor_times
from processor_times import SessionTime, TestTime, read_sessions, read_tests, show, spent, write_times
from sessions.times import TimeListener

_REPOSITORY = Path(processor_times.__file__).parent
_BUSY = "import time\nwhile time.process_time() < {seconds}:\n    pass\n"


def test_records_come_back_with_the_longest_first(tmp_path: Path) -> None:
    write_times(tmp_path, "tests", [TestTime("docs", "a.py::test_a", 0.5), TestTime("docs", "a.py::test_b", 2.0)])
    write_times(tmp_path, "tests", [TestTime("core", "b.py::test_c", 1.0)])
    write_times(tmp_path, "sessions", [SessionTime("core", 3.0, 4.0)])
    write_times(tmp_path, "sessions", [SessionTime("docs", 5.0, 6.0)])
    assert [row.test[-1] for row in read_tests(tmp_path)] == ["b", "c", "a"]
    assert [row.name for row in read_sessions(tmp_path)] == ["docs", "core"]


def test_the_tables_name_sessions_files_and_tests() -> None:
    sessions = [SessionTime("tests-core-3.13", 100.0, 120.5), SessionTime("lint", 9.0, 6.0)]
    tests = [
        TestTime("tests-core-3.13", "core/tests/a.py::test_a[1]", 2.5),
        TestTime("tests-core-3.13", "core/tests/a.py::test_a[2]", 0.5),
        TestTime("docs", "docs/b.py::test_b", 1.0),
        TestTime("docs", "docs/c.py::test_c", 0.9),
    ]
    assert show(sessions, tests, 36).splitlines() == [
        "processor time: 2.1 minutes, within the budget of 36 for all sessions",
        "  tests-core-3.13              120.5 s in  100.0 s of the clock",
        "  lint                           6.0 s in    9.0 s of the clock",
        "longest test files:",
        "      3.0 s  tests-core-3.13            core/tests/a.py",
        "      1.0 s  docs                       docs/b.py",
        "longest tests:",
        "      2.5 s  tests-core-3.13            core/tests/a.py::test_a[1]",
        "      1.0 s  docs                       docs/b.py::test_b",
    ]
    assert show(sessions, [], 2).splitlines()[0] == (
        "processor time: 2.1 minutes, over the budget of 2 for all sessions"
    )


def test_the_time_of_ended_processes_counts() -> None:
    before = spent()
    subprocess.run([sys.executable, "-c", _BUSY.format(seconds=0.2)], check=True, timeout=60)
    assert spent() - before > 0.15


def test_a_session_is_measured_between_two_lines_of_the_log(tmp_path: Path) -> None:
    listener = TimeListener(tmp_path)

    def log(line: str) -> None:
        listener.emit(logging.LogRecord("nox", logging.INFO, "", 0, line, (), None))

    for name, end in (("lint", "was successful in 2 seconds."), ("docs", "failed."), ("a", "skipped: no Python a.")):
        log(f"Running session {name}")
        log("a line of something else")
        subprocess.run([sys.executable, "-c", _BUSY.format(seconds=0.1)], check=True, timeout=60)
        log(f"Session {name} {end}")
    log("Session never-started was successful.")
    rows = read_sessions(tmp_path)
    assert sorted(row.name for row in rows) == ["a", "docs", "lint"]
    assert all(row.processor > 0.05 and row.wall > 0.05 for row in rows)


@pytest.mark.parametrize("workers", [0, 2])
def test_each_process_of_a_run_records_its_tests(workers: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_bytes((_REPOSITORY / "conftest.py").read_bytes())
    test = "import pytest\n\n@pytest.mark.parametrize('k', range(4))\ndef test_it(k):\n    pass\n"
    (tmp_path / "test_it.py").write_text(test, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    folder = tmp_path / "times"
    environment = os.environ | {processor_times.FOLDER: str(folder), "PYTHONPATH": str(_REPOSITORY)}
    environment |= {"NOX_CURRENT_SESSION": "docs"}
    environment.pop("PYTEST_XDIST_WORKER", None)
    subprocess.run([*command, "-n", str(workers)], capture_output=True, env=environment, check=True, timeout=120)
    assert sorted((row.session, row.test) for row in read_tests(folder)) == [
        ("docs", f"test_it.py::test_it[{k}]") for k in range(4)
    ]
