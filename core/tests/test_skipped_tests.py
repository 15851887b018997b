"""Skips are counted by kind; one without a kind, or for want of what is there, fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import skipped_tests
from skipped_tests import Rule, Skip, find_faults, read_counts, show_counts, write_counts

_REPOSITORY = Path(skipped_tests.__file__).parent
_RULES = (Rule("library", r"could not import '(\w+)'", lambda match: match[1] == "json"), Rule("hardware", "no tiles"))


def test_faults() -> None:
    assert find_faults(["could not import 'numpy9'", "no tiles here"], _RULES) == []
    assert find_faults(["could not import 'json'", "too lazy", "too lazy"], _RULES) == [
        "skipped for want of library that this machine has: could not import 'json'",
        "skipped for a reason of no kind (see skipped_tests.py): too lazy",
    ]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("oneDNN has no instructions for float16 here", "hardware"),
        ("this machine has no tiles", "hardware"),
        ("this machine does not run cooperlake", "hardware"),
        ("there is one processor", "hardware"),
        ("could not import 'tvm_ffi'", "library"),
        ("could not import 'tvm_ffi': No module named 'tvm_ffi'", "library"),
        ("the system has no libgomp", "library"),
        ("there is no C compiler on this machine", "compiler"),
        ("clang is not installed", "compiler"),
        ("a system without fork", "system"),
        ("reads /proc", "system"),
        ("the source tree is under test; nox sets BYOC_TEST_INSTALLED=1 and tests the installed wheel", "design"),
    ],
)
def test_kinds(reason: str, kind: str, tmp_path: Path) -> None:
    write_counts(tmp_path, "s", [reason])
    assert read_counts(tmp_path) == [Skip("s", kind, reason, 1)]
    assert kind in skipped_tests.KINDS


def test_what_is_installed_is_no_reason_to_skip() -> None:
    assert find_faults(["could not import 'pytest'"]) == [
        "skipped for want of library that this machine has: could not import 'pytest'"
    ]
    assert find_faults(["could not import 'no_such_package'"]) == []


def test_counts_of_several_runs_are_one_table(tmp_path: Path) -> None:
    write_counts(tmp_path, "tests-core", ["could not import 'a'"] * 2 + ["nox tests the installed wheel"])
    write_counts(tmp_path, "docs", ["could not import 'b'"])
    assert show_counts(read_counts(tmp_path)).splitlines() == [
        "skipped tests: 1 for design, 3 for library",
        "  docs                     library        1  could not import 'b'",
        "  tests-core               library        2  could not import 'a'",
    ]
    assert show_counts([]) == "skipped tests: none"


@pytest.mark.parametrize(
    ("reason", "status", "text"),
    [
        ("could not import 'no_such_package'", 0, "1 skipped"),
        (
            "could not import 'pytest'",
            1,
            "skipped for want of library that this machine has: could not import 'pytest'",
        ),
        ("too lazy", 1, "skipped for a reason of no kind (see skipped_tests.py): too lazy"),
    ],
)
@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_fails_where_a_skip_is_at_fault(
    reason: str, status: int, text: str, workers: int, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_bytes((_REPOSITORY / "conftest.py").read_bytes())
    test = f"import pytest\n\ndef test_one():\n    pytest.skip({reason!r})\n\ndef test_two():\n    pass\n"
    (tmp_path / "test_it.py").write_text(test, "utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    counts = tmp_path / "counts"
    environment = os.environ | {skipped_tests.FOLDER: str(counts), "PYTHONPATH": str(_REPOSITORY)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    options = ["-n", str(workers)] if workers else []
    done = subprocess.run([*command, *options], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    assert text in done.stdout
    assert [(skip.reason, skip.count) for skip in read_counts(counts)] == [(reason, 1)]
