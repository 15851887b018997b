"""The steps of a new author, tried in the environment of this Python: from ``byoc new-backend`` to a green kit.

::

    python conformance/tests/new_backend_trial.py --reports out/conformance examples/byoc_scipy

writes a backend of each kind into a temporary folder. Then, for each of them and for the packages named on the command
line, the trial checks style and types, builds and installs the wheel, runs the own tests (including the kit, with at
least one pass on each level) and the lint, and uninstalls the wheel. The environment must hold the wheels of byoc-core
and byoc-conformance, the dependencies of the named packages, ruff, mypy, pytest-xdist and pip; only the build
requirements of wheels are downloaded. Exits with 1 if a step fails, and prints the duration of each step.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from byoc_core.scaffold.kind import Kind

BYOC = ("-c", "from byoc_core.cli.main import main; main()")
PIP = ("-m", "pip", "--quiet", "--disable-pip-version-check")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


def run(folder: Path, *arguments: str) -> None:
    """Run this Python in a folder.

    Raises:
        SystemExit: a failure; prints the output.
    """
    start = time.monotonic()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    shown = " ".join(arguments).replace(" ".join(BYOC), "byoc")
    print(f"{time.monotonic() - start:6.1f} s  {shown}", flush=True)
    if done.returncode != 0:
        raise SystemExit(f"failed with {done.returncode}:\n{done.stdout}{done.stderr}")


def require_something(report: Path) -> None:
    """Check that a green report does not come from declining.

    Raises:
        SystemExit: nothing passed on a level of the kit.
    """
    levels = json.loads((report / "conformance.json").read_text("utf-8"))["levels"]
    if idle := [level["level"] for level in levels if not level["counts"]["passed"]]:
        raise SystemExit(f"nothing passed on {', '.join(idle)}: see {report}")


def try_package(package: Path, scratch: Path, reports: Path, options: Sequence[str]) -> None:
    """Check a copy of a package, install the wheel, run the tests (for a report too) and the lint."""
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    (backend,) = project["entry-points"]["byoc.backends"]
    wheels, copy = scratch / f"wheels-{backend}", scratch / f"copy-{backend}"
    shutil.copytree(package, copy, ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    run(copy, "-m", "ruff", "check", "--no-cache", ".")
    run(copy, "-m", "ruff", "format", "--no-cache", "--check", ".")
    run(scratch, *PIP, "wheel", "--no-deps", "--wheel-dir", str(wheels), str(copy))
    (wheel,) = wheels.glob("*.whl")
    run(scratch, *PIP, "install", "--no-deps", "--force-reinstall", str(wheel))
    try:
        run(scratch, *PIP, "check")
        run(copy, "-m", "mypy", "--cache-dir", str(scratch / "mypy_cache"))
        run(copy, *PYTEST, *options, "tests", "--byoc-report", str(reports / backend))
        require_something(reports / backend)
        run(scratch, *BYOC, "lint-backend", backend, "--compile", "--strict")
    finally:
        run(scratch, *PIP, "uninstall", "--yes", project["name"])


def main(packages: Sequence[str], reports: Path, options: Sequence[str]) -> None:
    """Try a new backend of each kind, and some packages."""
    with tempfile.TemporaryDirectory(prefix="byoc-trial-") as folder:
        scratch = Path(folder)
        for kind in Kind:
            run(scratch, *BYOC, "new-backend", f"fresh_{kind}", "--kind", kind)
            try_package(scratch / f"byoc-fresh_{kind}", scratch, reports, options)
        for package in packages:
            try_package(Path(package), scratch, reports, options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reports", type=Path, required=True, help="a folder for the kit's reports")
    parser.add_argument("--jobs", default="1", help="how many tests run at once")
    parser.add_argument("--examples", default="20", help="random examples for each property of the kit")
    parser.add_argument("packages", nargs="*", help="folders of other packages to try")
    command_line = parser.parse_args()
    main(
        command_line.packages,
        command_line.reports.absolute(),
        # With a single job, the tests run in pytest's own process.
        ["-n", "0" if command_line.jobs == "1" else command_line.jobs, "--byoc-examples", command_line.examples],
    )
