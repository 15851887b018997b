"""Run tests of the kit on a plugin with a fault: on a copy, in a process importing the copy."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from conformance.tests.planted_faults.fault import PlantedFault

__all__ = ["Caught", "check_origin", "copy_plugin", "find_catch", "hold_copy", "show_witness"]


class Caught(NamedTuple):
    """The catch of a fault.

    Attributes:
        test: the id of the first red test.
        text: the first line of the test's finding.
    """

    test: str
    text: str


def copy_plugin(package: str, folder: Path) -> None:
    """Copy an installed package, compiled extensions too, into a folder.

    Raises:
        RuntimeError: the package is not installed.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise RuntimeError(f"`{package}` is not installed")
    shutil.copytree(Path(spec.origin).parent, folder / package, ignore=shutil.ignore_patterns("__pycache__"))


@contextmanager
def _planted(fault: PlantedFault) -> Iterator[Path]:
    """Yield a folder with a copy of the fault's package including the fault."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        folder = Path(name)
        copy_plugin(fault.package, folder)
        (folder / fault.file).write_text(fault.faulty_text(), encoding="utf-8")
        yield folder


def find_catch(fault: PlantedFault) -> Caught | None:
    """Return the first catch of a fault by its named tests, or ``None``.

    Raises:
        RuntimeError: the process running the kit failed.
    """
    with _planted(fault) as folder:
        return hold_copy(folder, fault.plugin, fault.package, fault.tests)


def hold_copy(folder: Path, plugin: str, package: str, tests: Sequence[str]) -> Caught | None:
    """Return the first red test of a backend with a package in the given folder, found by a separate process.

    Raises:
        RuntimeError: the process failed, or would have imported the package from elsewhere.
    """
    run = _run_inner(folder, "kit", plugin, package, *tests)
    if run.returncode != 0:
        raise RuntimeError(f"the kit did not run on `{plugin}`:\n{run.stderr}")
    found = json.loads(run.stdout.splitlines()[-1])
    return None if found is None else Caught(*found)


def show_witness(fault: PlantedFault) -> str:
    """Return the mistake shown by the witness of a fault; empty if none is shown.

    Raises:
        RuntimeError: the witness shows a mistake without the fault.
    """
    arguments = ("witness", fault.plugin, fault.package, fault.name)
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        copy_plugin(fault.package, Path(name))
        sound = _run_inner(Path(name), *arguments)
    if sound.returncode != 0 or json.loads(sound.stdout.splitlines()[-1]):
        raise RuntimeError(f"the witness of `{fault.name}` is wrong without the fault:\n{sound.stdout}{sound.stderr}")
    with _planted(fault) as folder:
        run = _run_inner(folder, *arguments)
    if run.returncode != 0:
        return f"the process ended with status {run.returncode}"
    text: str = json.loads(run.stdout.splitlines()[-1])
    return text


def check_origin(folder: Path, package: str) -> None:
    """Check that a package is imported from a folder.

    Raises:
        RuntimeError: the package is imported from elsewhere, so the tests would not see a fault in the folder.
    """
    spec = importlib.util.find_spec(package)
    origin = None if spec is None else spec.origin
    if origin is None or not Path(origin).is_relative_to(folder):
        raise RuntimeError(f"`{package}` is imported from another folder; got {origin}, expected {folder}")


def _run_inner(folder: Path, task: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run :mod:`~conformance.tests.planted_faults.inner` with a folder first on the path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    command = [sys.executable, "-m", f"{__package__}.inner", task, str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
