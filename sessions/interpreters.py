"""The Pythons that sessions run on: the one that runs nox, and the others by how far they are from it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sessions.packages import GROUPS

__all__ = ["FARTHEST", "MAIN", "OTHERS", "PYTHONS", "THIRD", "answers"]

PYTHONS: tuple[str, ...] = tuple(GROUPS["tool"]["byoc"]["pythons"])
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
MAIN = OWN if OWN in PYTHONS else PYTHONS[0]


def answers(version: str) -> bool:
    """Tells whether there is an interpreter on the search path; a shim of pyenv may be none."""
    found = shutil.which(f"python{version}")
    return found is not None and subprocess.run([found, "--version"], capture_output=True, check=False).returncode == 0


def find_pyenv_interpreters() -> None:
    """Puts pyenv's interpreters on the search path: its shims answer only for the version that is switched on."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for version in PYTHONS:
        for found in [] if answers(version) else sorted(root.glob(f"versions/{version}.*/bin"))[-1:]:
            os.environ["PATH"] = f"{found}{os.pathsep}{os.environ['PATH']}"


find_pyenv_interpreters()
# Those that are here first, of these the farthest from MAIN first.
OTHERS = tuple(
    sorted(
        (version for version in PYTHONS if version != MAIN),
        key=lambda version: (answers(version), abs(PYTHONS.index(version) - PYTHONS.index(MAIN))),
        reverse=True,
    )
)
FARTHEST, THIRD = OTHERS[:2]
