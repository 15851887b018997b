"""Mutates modules by single small changes, and counts the changes noticed by some test.

    python -m core.tests.mutation.run                        # all targets
    python -m core.tests.mutation.run vm-verify merging
    python -m core.tests.mutation.run vm-verify --least 0.85 --folder out/mutation

Each target (:mod:`core.tests.mutation.targets`) is copied with the tests from the installed package into a separate
folder, and mutated there by `mutmut`. mutmut forks a process for each mutant and runs the tests reaching the changed
function, quick tests first, within the limits of :mod:`core.tests.mutation.limits`. The surviving mutants are printed
as diffs. The exit status is 1 if a smaller share than ``--least`` of a target's mutants is killed.

With ``--folder``, an interrupted run continues, and a later run tries the mutants of changed functions and the
surviving mutants. Without ``--folder``, all mutants are tried.
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
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from core.tests.mutation.targets import TARGETS, Target

ROOT = Path(__file__).parents[3]
TEST_FOLDERS = ("core/tests", "plugins/dnnl/tests", "benchmarks")
LEAST_KILLED = 0.9
KILLED = (1, 3, 36)  # exit statuses: a test fails, pytest fails, a test does not end
SECONDS_BETWEEN_COUNTS = 10.0
_SETTINGS = """\
[tool.mutmut]
source_paths = ["src"]
only_mutate = {only_mutate}
also_copy = ["core", "plugins", "benchmarks", "conftest.py"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = {arguments}
use_git_change_detection = false
track_dependencies = false
timeout_constant = 120.0
timeout_multiplier = 50.0

[tool.pytest.ini_options]
addopts = {options}
filterwarnings = ["error"]
markers = {markers}
pythonpath = ["."]
"""

_SHOW = """\
import sys
from contextlib import suppress
from mutmut.__main__ import cli
for mutant in sys.argv[1:]:
    with suppress(SystemExit):
        cli(["show", mutant])
"""  # one process for all diffs


def make_copy(target: Target, folder: Path) -> None:
    """Copy the target's package and all tests to a folder, with the settings of mutmut and pytest.

    Outcomes of mutants from an earlier run in the folder stay there.
    """
    found = importlib.util.find_spec(target.package)
    assert found is not None
    assert found.submodule_search_locations is not None
    ignored = shutil.ignore_patterns("__pycache__")
    copies = {f"src/{target.package}": Path(found.submodule_search_locations[0])}
    copies |= {name: ROOT / name for name in TEST_FOLDERS}
    for name, source in copies.items():
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(source, folder / name, ignore=ignored)
    for name in TEST_FOLDERS:
        shutil.rmtree(folder / "mutants" / name, ignore_errors=True)
    shutil.copy(ROOT / "conftest.py", folder)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    left_out = [argument for test in target.left_out for argument in ("--deselect", test)]
    text = _SETTINGS.format(
        only_mutate=json.dumps([f"src/{target.package}/{name}" for name in target.modules]),
        tests=json.dumps([name for name in target.tests if (ROOT / name).exists()]),
        arguments=json.dumps(["-p", "no:cacheprovider", "-p", "core.tests.mutation.limits", *left_out]),
        options=json.dumps(settings["addopts"]),
        markers=json.dumps(settings["markers"]),
    )
    (folder / "pyproject.toml").write_text(text, "utf-8")


def forget_all_but_kills(folder: Path) -> None:
    """Schedule a new trial, with the present tests, of the mutants not killed by an earlier run in the folder."""
    (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    for path in (folder / "mutants").rglob("*.py.meta"):
        kept = json.loads(path.read_text("utf-8"))
        outcomes = kept["exit_code_by_key"]
        kept["exit_code_by_key"] = {name: code if code in KILLED else None for name, code in outcomes.items()}
        path.write_text(json.dumps(kept), "utf-8")


def mutmut(folder: Path, *arguments: str, show: bool = False) -> str:
    """Run mutmut in a folder and return the output; with ``show``, print the counts meanwhile."""
    command = [sys.executable, "-m", "mutmut", *arguments]
    lines: list[str] = []
    shown = 0.0
    environment = os.environ | {"BYOC_EXAMPLES": "mutation", "PYTHONHASHSEED": "0"}
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:  # universal newlines: what overwrites a line comes as one of its own
            lines.append(line)
            if show and time.monotonic() > shown + SECONDS_BETWEEN_COUNTS:
                shown = time.monotonic()
                print(line.strip(), flush=True)
    if process.returncode:
        raise SystemExit("\n".join([f"{' '.join(command)} exits with {process.returncode}", *lines[-60:]]))
    return "".join(lines)


def run_target(name: str, folder: Path, jobs: int) -> float:
    """Print the surviving mutants of a target, and return the killed share."""
    start = time.monotonic()
    make_copy(TARGETS[name], folder)
    forget_all_but_kills(folder)
    mutmut(folder, "run", "--max-children", str(jobs), show=True)
    mutmut(folder, "export-cicd-stats")
    counts = json.loads((folder / "mutants" / "mutmut-cicd-stats.json").read_text("utf-8"))
    killed = counts["killed"] + counts["timeout"]
    outcomes = [line.strip().rpartition(": ") for line in mutmut(folder, "results").splitlines()]
    living = [mutant for mutant, _, outcome in outcomes if mutant and outcome != "timeout"]
    print(subprocess.check_output([sys.executable, "-c", _SHOW, *living], cwd=folder, text=True))
    share = killed / counts["total"]
    minutes = (time.monotonic() - start) / 60
    text = f"{killed} of {counts['total']} mutants are killed, {share:.1%} ({counts['timeout']} of them do not end)"
    print(f"\n{name}: {text}; {minutes:.1f} minutes", flush=True)
    return float(share)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; all if none is given")
    parser.add_argument("--least", type=float, default=LEAST_KILLED, help="the share of mutants that must be killed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many mutants are tried at once")
    parser.add_argument("--folder", type=Path, help="where outcomes stay; a mutant killed there is not tried again")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.targets) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(chosen.folder or temporary).absolute()
        shares = {name: run_target(name, folder / name, chosen.jobs) for name in chosen.targets or TARGETS}
    failed = [name for name, share in shares.items() if share < chosen.least]
    if failed:
        print(f"fewer than {chosen.least:.0%} of the mutants are killed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
