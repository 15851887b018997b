"""Runs a little Python in a process of its own, which has imported nothing yet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping

from byoc_core.plugin import PluginRecord

from byoc_conformance.outcome import FailedError

__all__ = ["compile_side", "run_in_fresh_process"]

_PREFACE = "import json, sys; sys.path[:] = json.loads(sys.argv[1])\n"
_EPILOGUE = "\nimport os; sys.stdout.flush(); sys.stderr.flush(); os._exit(0)\n"
"""Ends the process whatever is left in it: that it can end by itself is a promise of its own."""
_NUM_STDERR_LINES = 6


def run_in_fresh_process(
    code: str,
    *arguments: str,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    ends_by_itself: bool = False,
) -> str:
    """Gives what the code printed.

    Args:
        code: Python; it imports from where this process does, and its arguments begin at ``sys.argv[2]``.
        arguments: for it.
        timeout: seconds.
        environment: variables that are other than in this process.
        ends_by_itself: the interpreter shuts down, for which threads and handlers may be waited; else the process ends
            behind the last line.

    Raises:
        FailedError: it raised, crashed, or did not end in time; with the last lines that it wrote to stderr.
    """
    command = [
        sys.executable,
        "-c",
        _PREFACE + code + ("" if ends_by_itself else _EPILOGUE),
        json.dumps(sys.path),
        *arguments,
    ]
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FailedError(f"a fresh process did not end within {timeout:g} s") from error
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-_NUM_STDERR_LINES:])
        raise FailedError(f"a fresh process ended with {done.returncode}:\n{last}")
    return done.stdout


def compile_side(backend: PluginRecord, runtime: PluginRecord) -> tuple[str, ...]:
    """Gives the modules that a runtime must do without, where the compile side is not installed.

    Args:
        backend: whose compile half is one of them; not where it is a package that the run half lies in, which cannot
            be missing where a module in it is to run.
        runtime: its run half.
    """
    compile_half, run_half = (record.value.partition(":")[0] for record in (backend, runtime))
    is_apart = compile_half and not f"{run_half}.".startswith(f"{compile_half}.")
    return ("byoc_core.ir", "byoc_core.backend", *([compile_half] if is_apart else []))
