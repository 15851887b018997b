"""The three ways into the kit give the same report: the same tests, with the same outcomes and texts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from conformance.tests.fakenpu_install import FAKES, install_fakenpu

EXPECTED_FAILURES = {"L0-options-described": "nobody reads it anyway", "L0-version": "this one is not broken"}
CLASS = f"""
from byoc_conformance import BackendSuite

class TestFakeNpu(BackendSuite):
    backend = "fakenpu"
    options = {{"effort": 2}}
    companions = ("host",)
    seed = 3
    xfail = {EXPECTED_FAILURES}
"""
CHOICES = {"option": "effort=2", "with": "host", "seed": "3", "xfail": "known.toml", "level": "L0"}


def run(folder: Path, *command: str) -> tuple[int, Any]:
    """Return the end of a command, and the report without parts varying from run to run."""
    path = [str(FAKES), str(install_fakenpu(folder)), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "FAKENPU_FAULT": "hides-an-option"}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (folder / "out").is_dir(), done.stdout + done.stderr
    report = json.loads((folder / "out" / "conformance.json").read_text())
    del report["started"], report["finished"]
    for item in report["items"]:
        del item["seconds"]
    return done.returncode, report


def test_all_three_give_one_report(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("command", "pytest", "class")]
    for folder in folders:
        folder.mkdir()
        overrides = "".join(f'"{name}" = "{reason}"\n' for name, reason in EXPECTED_FAILURES.items())
        (folder / "known.toml").write_text(f"[xfail]\n{overrides}")
    (folders[2] / "test_fakenpu.py").write_text(CLASS)
    main = "from byoc_core.cli.main import main; main()"
    by_command = run(
        folders[0], "-c", main, "conformance", "fakenpu", "--report", "out", *(f"--{k}={v}" for k, v in CHOICES.items())
    )
    test = ("-m", "pytest", "-p", "no:cacheprovider", "--byoc-report=out")
    options = [f"--byoc-{key}={value}" for key, value in CHOICES.items()]
    by_name = run(folders[1], *test, "--pyargs", "byoc_conformance", "--byoc-backend=fakenpu", *options)
    by_class = run(folders[2], *test, "--byoc-level=L0")
    assert by_command == by_name == by_class
    code, report = by_command
    found = {item["id"]: item["status"] for item in report["items"] if item["status"] != "not-run"}
    assert code == 1
    assert {name: found.pop(name) for name in EXPECTED_FAILURES} == dict(
        zip(EXPECTED_FAILURES, ("xfailed", "xpassed"), strict=True)
    )
    assert "passed" in found.values()
    assert {item["level"] for item in report["items"] if item["id"] in found} == {"L0"}
