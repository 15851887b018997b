"""A process loading and running an artifact imports nothing of the compile side."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import byoc_core
import pytest

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

COMPILE_SIDE = (
    "ir", "ops", "script", "pattern", "transform", "backend", "partitioning", "lower", "frontend", "lint", "driver",
    "debugging", "cli", "authoring", "host",
)  # fmt: skip

BLOCKER = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] == "byoc_core" and len(parts) > 1 and parts[1] in {COMPILE_SIDE!r}:
            raise ImportError(f"blocked: {{name}}")

sys.meta_path.insert(0, Blocker())
"""

RUN = """
import byoc_core, numpy
from byoc_core.artifact import inspect, load, load_module, verify
from byoc_core.vm import VirtualMachine

path = sys.argv[1]
verify(path)
inspect(path).report()
executable = load(path)
print(VirtualMachine(executable)["main"](numpy.ones((1, 4), "float32")).tolist())
executable.report()
executable.get_source()
load_module(path).get_function("main")
executable.save(path + ".again")
print(sorted(n for n in sys.modules if n.startswith(("onnx", "typer", "rich"))))
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_loading_and_running_needs_no_compile_side(saved: Path) -> None:
    done = run(BLOCKER + RUN, str(saved))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[[3.0, 4.0, 5.0, 6.0]]", "[]"]
    assert Path(f"{saved}.again").read_bytes() == saved.read_bytes()


@pytest.mark.parametrize("part", ["ir", "ops", "host.backend"])
def test_the_blocker_blocks(part: str) -> None:
    done = run(f"{BLOCKER}\nimport byoc_core.{part}")
    assert done.returncode == 1
    assert f"blocked: byoc_core.{part.partition('.')[0]}" in done.stderr


def test_an_installation_without_the_compile_side_loads_and_runs(saved: Path, tmp_path: Path) -> None:
    installed = Path(byoc_core.__file__).parent
    cut = tmp_path / "site" / "byoc_core"
    deleted = shutil.ignore_patterns("__pycache__", *COMPILE_SIDE, *(f"{part}.py" for part in COMPILE_SIDE))
    shutil.copytree(
        installed, cut, ignore=lambda folder, names: deleted(folder, names) if folder == str(installed) else ()
    )
    assert not (cut / "ir").exists()
    checked = f"import sys, byoc_core\nassert byoc_core.__file__.startswith({str(cut)!r})\n{RUN}"
    environment = {**os.environ, "PYTHONPATH": str(cut.parent), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [sys.executable, "-c", checked, str(saved)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[[3.0, 4.0, 5.0, 6.0]]", "[]"]
