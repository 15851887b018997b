"""Plugins ending the process: no command succeeds without a result."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.lowest

BACKEND = """
import os
from byoc_core.backend.hooks import BackendInfo, CodegenResult, Support, hookimpl

@hookimpl
def byoc_backend_info():
    return BackendInfo(name="leaver", dynamic_shapes=True)

@hookimpl
def byoc_supports(binding):
    {supports}
    return Support()

@hookimpl
def byoc_codegen(functions):
    return CodegenResult(None)
"""
LEAVES = "os._exit(0)"
FORKS = "child = os.fork() or os._exit(3); assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3; os._exit(0)"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import os\nos._exit(0)", "raised SystemExit: 0"),
        (BACKEND.format(supports=LEAVES), "hook `byoc_supports`: raised SystemExit: 0"),
        (BACKEND.format(supports=FORKS), "hook `byoc_supports`: raised SystemExit: 0"),
    ],
)
def test_a_plugin_that_ends_the_process_is_named(
    source: str, expected: str, install_backend: Callable[[str, str], Path], model: Path
) -> None:
    folder = install_backend("leaver", source)
    arguments = ["compile", str(model), "--backend", "leaver", "--strict", "-o", "made.byoc"]
    done = subprocess.run(
        [sys.executable, "-c", "from byoc_core.cli.main import main; main()", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "leaver" in done.stderr
    assert expected in done.stderr
    assert not Path("made.byoc").exists()
