"""A run of a C compiler in a separate folder with the input files; a failure is an error with the details."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from byoc_core.errors import ToolchainError
from byoc_core.native.compiler_errors import compiler_failure

if TYPE_CHECKING:
    import subprocess

__all__ = ["REMEDY", "run_compiler", "write_files"]

REMEDY = "apt-get install gcc, or pip install ziglang, or set BYOC_CC to a C compiler."


def run_compiler(
    command: Sequence[str], timeout_s: float, *, folder: Path | None = None, files: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a compiler and return the finished process with the output.

    Args:
        command: program and arguments.
        timeout_s: timeout in seconds.
        folder: the working folder.
        files: texts by name, shown and kept in case of an error.

    Raises:
        ToolchainError: the compiler cannot be run, fails, or runs too long. Shows the command, the exit status, the end
            of stderr and the lines at fault.
    """
    import subprocess  # not needed by a process that only runs compiled code

    status: int | str
    try:
        finished = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        status, stderr = f"none: timed out after {timeout_s:g} s", ""
    except OSError as error:
        raise ToolchainError("C compiler", f"cannot be run: {error}", hint=REMEDY) from error
    else:
        if finished.returncode == 0:
            return finished
        status, stderr = finished.returncode, finished.stderr
    raise compiler_failure(command, status, stderr, files or {}, _keep(files) if files else None)


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts into a folder."""
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _keep(files: Mapping[str, str]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="byoc-failed-"))
    write_files(folder, files)
    return str(folder)
