"""The smoke test of an installed release works on the present state of the repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import byoc_core
from byoc_core.runtime.extension import extension_status

SMOKE = Path(__file__).parents[1] / "smoke.py"


def test_what_a_stranger_does_first_works(tmp_path: Path) -> None:
    extension = "present" if extension_status()[0] else "absent"
    site = Path(byoc_core.__file__).parents[1]
    command = [sys.executable, str(SMOKE), "--extension", extension, "--site", str(site)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f" works: host, extension {extension}\n")
