"""The modules loaded by a bare ``import byoc_core`` and by running an artifact, measured in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import byoc_core
import pytest

pytestmark = [pytest.mark.interpreter, pytest.mark.asks_for_plugins]

HEAVY = {
    *("click", "ml_dtypes", "onnx", "onnxruntime", "pluggy", "pydantic", "rich", "scipy", "threadpoolctl"),
    *("tvm_ffi", "typer"),
    *("asyncio", "ctypes", "difflib", "email", "logging", "packaging", "subprocess", "zipfile"),
}
"""Modules not needed by a bare import."""
UNUSED = HEAVY - {"ctypes", "pluggy"} | {
    "byoc_core.cli",
    "byoc_core.driver",
    "byoc_core.ir",
    "byoc_core.reporting",
    "importlib.metadata",
}
"""Modules not needed for loading and running an artifact of the core's own runtimes."""
RUN = """
import numpy, byoc_core
byoc_core.VirtualMachine(byoc_core.load({path!r}, allow_native=True))["main"](numpy.ones((2, 4), "float32"))
"""
MODULE = """
def main(x: R.Tensor((2, 4), "float32")):
    y = R.nn.relu(x)
    return y
"""


def modules_after(statements: str) -> set[str]:
    """Return the names in ``sys.modules`` of a fresh process after some statements."""
    script = f"{statements}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


def loaded_by(statements: str) -> set[str]:
    """Return the modules loaded by some statements and not by numpy alone, and their packages."""
    names = modules_after(statements) - modules_after("import numpy")
    return {".".join(name.split(".")[: length + 1]) for name in names for length in range(name.count(".") + 1)}


def heavy_after(statements: str) -> set[str]:
    """Return the heavy modules loaded by some statements and not by numpy alone."""
    return loaded_by(statements) & HEAVY


def test_a_bare_import_loads_nothing_heavy() -> None:
    assert heavy_after("import byoc_core") == set()


def test_a_heavy_import_is_seen() -> None:
    assert heavy_after("import byoc_core, pluggy, asyncio") >= {"pluggy", "asyncio"}


def test_a_bare_import_parses_no_metadata_twice() -> None:
    assert "importlib.metadata" not in loaded_by("import byoc_core")


@pytest.mark.parametrize("backend", ["host", "ccompiler"])
def test_running_an_artifact_loads_nothing_that_it_does_not_need(backend: str, tmp_path: Path) -> None:
    if backend not in byoc_core.backends.names() or not byoc_core.backends.get(backend).compile_status().ok:
        pytest.skip(f"no backend {backend} here")
    path = tmp_path / "model.byoc"
    byoc_core.build(byoc_core.parse(MODULE), backends=[backend]).save(path)
    loaded = loaded_by(RUN.format(path=str(path)))
    assert "byoc_core.vm.machine" in loaded
    assert loaded & UNUSED == set()


def test_a_command_line_imports_the_command_that_it_names() -> None:
    script = (
        "import sys\nfrom byoc_core.cli.main import main\nsys.argv = ['byoc', 'verify', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass"
    )
    loaded = loaded_by(script)
    assert {name for name in loaded if name.startswith("byoc_core.cli.commands.")} == {"byoc_core.cli.commands.verify"}


def test_a_bare_import_loads_no_plugin_code() -> None:
    loaded = {name.split(".")[0] for name in modules_after("import byoc_core")}
    assert {name for name in loaded if name.startswith("byoc_")} == {"byoc_core"}


def test_a_bare_import_reads_plugin_metadata_and_settings() -> None:
    later = "import os, byoc_core\nos.environ['BYOC_PREFER'] = 'malformed'\nassert 'host' in byoc_core.backends.names()"
    assert "byoc_core.backend.registry" in modules_after(later)


@pytest.mark.parametrize("room", ["csource", "graph", "threads"])
def test_a_room_of_the_runtime_loads_none_of_its_modules_by_itself(room: str) -> None:
    loaded = modules_after(f"import byoc_core.runtime.{room}")
    assert {name for name in loaded if name.startswith("byoc_core.runtime.")} == {f"byoc_core.runtime.{room}"}


def test_a_malformed_setting_does_not_break_the_import() -> None:
    statements = (
        "import os\nos.environ['BYOC_PREFER'] = 'malformed'\nimport byoc_core\n"
        "try:\n    byoc_core.backends\nexcept byoc_core.errors.OptionsError as error:\n"
        "    assert 'BYOC_PREFER' in str(error)\nelse:\n    raise SystemExit('no error')"
    )
    assert "byoc_core" in modules_after(statements)


def test_every_module_imports() -> None:
    walk = (
        "import pkgutil, importlib, byoc_core\n"
        "for found in pkgutil.walk_packages(byoc_core.__path__, 'byoc_core.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
    )
    assert {"byoc_core.ir.module", "byoc_core.runtime.module"} <= modules_after(walk)
