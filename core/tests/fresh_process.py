"""Test scripts in a fresh process, without the thread settings of this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["answer_of"]

_SETTINGS = ("OMP_", "GOMP_", "BYOC_NUM_THREADS")


def answer_of(
    script: str, *arguments: str, environment: Mapping[str, str] | None = None, flags: Sequence[str] = ()
) -> Any:
    """Run a script in a fresh process, and return the last line of output, parsed as JSON."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
    done = subprocess.run(
        [sys.executable, *flags, "-c", script, *arguments],
        env={**kept, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
