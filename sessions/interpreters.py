"""The Pythons of the sessions: the Python running nox, and the others by distance from this version."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sessions.packages import GROUPS

__all__ = ["FARTHEST", "MAIN", "OTHER_VERSIONS", "PYTHONS", "THIRD", "answers"]

PYTHONS: tuple[str, ...] = tuple(GROUPS["tool"]["byoc"]["pythons"])
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
MAIN = OWN if OWN in PYTHONS else PYTHONS[0]


def answers(version: str) -> bool:
    """Return whether an interpreter is on the search path and runs; a shim of pyenv may have no interpreter."""
    found = shutil.which(f"python{version}")
    return found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


def find_pyenv_interpreters() -> None:
    """Put pyenv's interpreters on the search path: the shims work only for the version switched on."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for version in PYTHONS:
        for found in [] if answers(version) else sorted(root.glob(f"versions/{version}.*/bin"))[-1:]:
            os.environ["PATH"] = f"{found}{os.pathsep}{os.environ['PATH']}"


find_pyenv_interpreters()
# Installed interpreters first, of these the farthest from MAIN first.
OTHER_VERSIONS = tuple(
    sorted(
        (version for version in PYTHONS if version != MAIN),
        key=lambda version: (answers(version), abs(PYTHONS.index(version) - PYTHONS.index(MAIN))),
        reverse=True,
    )
)
FARTHEST, THIRD = OTHER_VERSIONS[:2]
