"""Execution of the programs of a release: a failure ends the release, with the command and all its output."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ReleaseError", "python_module", "require_program", "run"]


class ReleaseError(Exception):
    """A step or a check of the release failed; the text names the step, the reason, and the remedy."""


def run(command: Sequence[str | Path], folder: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run a program and return the printed output.

    Args:
        command: the program and its arguments.
        folder: the working folder; by default the current folder.
        environment: variables beside the variables of this process.

    Raises:
        ReleaseError: the program failed.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        variables = "".join(f"{name}={shlex.quote(value)} " for name, value in (environment or {}).items())
        raise ReleaseError(f"{variables}{shlex.join(words)}\nfailed with {done.returncode}:\n{done.stdout}")
    return done.stdout


def python_module(*arguments: str | Path) -> tuple[str | Path, ...]:
    """Return a command running a module in this Python."""
    return (sys.executable, "-m", *arguments)


def require_program(name: str, remedy: str) -> str:
    """Return the path of a program of the system.

    Raises:
        ReleaseError: the program is not installed.
    """
    if found := shutil.which(name):
        return found
    raise ReleaseError(f"program `{name}`: is not installed, but needed by a check of the release. {remedy}")
