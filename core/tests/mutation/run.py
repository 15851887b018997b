"""Changes modules in small ways, one at a time, and counts the changes that some test notices.

    python -m core.tests.mutation.run                        # all targets
    python -m core.tests.mutation.run vm-verify merging
    python -m core.tests.mutation.run vm-verify --least 0.85

Each target (:mod:`core.tests.mutation.targets`) is copied with its tests into a folder of its own, from the installed
package, and mutated there by `mutmut`, which runs the tests that reach a changed function. The mutants that live are
printed as diffs. The exit status is 1 where a smaller share than ``--least`` of a target's mutants is killed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from core.tests.mutation.targets import TARGETS, Target

ROOT = Path(__file__).parents[3]
TEST_FOLDERS = ("core/tests", "plugins/dnnl/tests", "benchmarks")
LEAST_KILLED = 0.9
_SETTINGS = """\
[tool.mutmut]
source_paths = ["src"]
only_mutate = {only_mutate}
also_copy = ["core", "plugins", "benchmarks", "conftest.py"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = {arguments}
use_git_change_detection = false
track_dependencies = false
timeout_constant = 10.0
timeout_multiplier = 4.0

[tool.pytest.ini_options]
addopts = {options}
filterwarnings = ["error"]
pythonpath = ["."]
"""


def make_copy(target: Target, folder: Path) -> None:
    """Copy the target's package and all tests to a folder, with the settings of mutmut and pytest."""
    found = importlib.util.find_spec(target.package)
    assert found is not None
    assert found.submodule_search_locations is not None
    ignored = shutil.ignore_patterns("__pycache__")
    source = Path(found.submodule_search_locations[0])
    shutil.copytree(source, folder / "src" / target.package, ignore=ignored)
    for name in TEST_FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "conftest.py", folder)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    left_out = [argument for test in target.left_out for argument in ("--deselect", test)]
    text = _SETTINGS.format(
        only_mutate=json.dumps([f"src/{target.package}/{name}" for name in target.modules]),
        tests=json.dumps([name for name in target.tests if (ROOT / name).exists()]),
        arguments=json.dumps(["-p", "no:cacheprovider", *left_out]),
        options=json.dumps(settings["addopts"]),
    )
    (folder / "pyproject.toml").write_text(text, "utf-8")


def mutmut(folder: Path, *arguments: str) -> str:
    """Run mutmut in a folder and return its output."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"BYOC_EXAMPLES": "mutation"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stdout.replace("\r", "\n").splitlines()
        raise SystemExit("\n".join([f"{' '.join(command)} exits with {done.returncode}", *lines[-60:]]))
    return done.stdout


def run_target(name: str, folder: Path, jobs: int) -> float:
    """Print the mutants of a target that live, and return the share that is killed."""
    make_copy(TARGETS[name], folder)
    mutmut(folder, "run", "--max-children", str(jobs))
    mutmut(folder, "export-cicd-stats")
    counts = json.loads((folder / "mutants" / "mutmut-cicd-stats.json").read_text("utf-8"))
    killed = counts["killed"] + counts["timeout"]
    for line in mutmut(folder, "results").splitlines():
        mutant, _, outcome = line.strip().rpartition(": ")
        if mutant and outcome != "killed":
            print(f"\n{outcome}: {mutant}", mutmut(folder, "show", mutant), sep="\n")
    print(f"\n{name}: {killed} of {counts['total']} mutants are killed, {killed / counts['total']:.1%}", flush=True)
    return float(killed / counts["total"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets that the command line names; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all if none is given")
    parser.add_argument("--least", type=float, default=LEAST_KILLED, help="the share of mutants that must be killed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many mutants are tried at once")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    failed = []
    for name in chosen.targets or TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            if run_target(name, Path(folder), chosen.jobs) < chosen.least:
                failed.append(name)
    if failed:
        print(f"fewer than {chosen.least:.0%} of the mutants are killed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
