"""Run tests of the kit on a plugin with a fault: on a copy, in a process that imports the copy."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from byoc_conformance import Level, Runner, SubjectSpec, all_items
from byoc_conformance.choices import choose_items

from conformance.tests.planted_faults.fault import PlantedFault, source_of

__all__ = ["Caught", "copy_plugin", "find_catch", "find_red", "hold_copy"]


class Caught(NamedTuple):
    """How a fault was caught.

    Attributes:
        test: the id of the first test that was red.
        text: the first line of what the test saw.
    """

    test: str
    text: str

    @property
    def promise(self) -> str:
        """The name of the promise, without the case."""
        return self.test.partition("[")[0]


def copy_plugin(plugin: str, package: str, folder: Path) -> None:
    """Copy the package of a plugin, compiled extensions too, into a folder."""
    shutil.copytree(source_of(plugin) / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))


def find_catch(fault: PlantedFault) -> Caught | None:
    """Return what catches a fault first, of the tests that it names; ``None`` where nothing does.

    Raises:
        RuntimeError: the process that ran the kit failed.
    """
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        folder = Path(name)
        copy_plugin(fault.plugin, fault.package, folder)
        (folder / fault.file).write_text(fault.faulty_text(), encoding="utf-8")
        return hold_copy(folder, fault.plugin, fault.package, fault.tests)


def hold_copy(folder: Path, plugin: str, package: str, tests: Sequence[str]) -> Caught | None:
    """Return the first red test of a backend whose package lies in a folder, found by a process of its own.

    Raises:
        RuntimeError: the process failed, or would have imported the package from elsewhere.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    command = [sys.executable, "-m", f"{__package__}.inner", str(folder), plugin, package, *tests]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise RuntimeError(f"the kit did not run on `{plugin}`:\n{run.stderr}")
    found = json.loads(run.stdout.splitlines()[-1])
    return None if found is None else Caught(*found)


def find_red(folder: Path, plugin: str, package: str, tests: Sequence[str]) -> Caught | None:
    """Return the first test that is red, in this process's environment.

    Args:
        folder: where the package has to be imported from.
        plugin: the name of the backend.
        package: the name of its package.
        tests: patterns of ids, in the order in which they run.

    Raises:
        RuntimeError: the package would be imported from elsewhere.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None or not Path(spec.origin).is_relative_to(folder):
        got = spec and spec.origin
        raise RuntimeError(f"`{package}` is imported from another place; got {got}, expected {folder}")
    items = {item.id: item for pattern in tests for item in choose_items(all_items(), tuple(Level), [pattern])}
    with Runner(SubjectSpec(plugin)) as runner:
        for item in items.values():
            outcome = runner.run(item).outcome
            if outcome.status.is_broken:
                return Caught(item.id, outcome.text.partition("\n")[0])
    return None
