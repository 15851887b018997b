"""Short Python programs, each run in a fresh process without prior imports.

A program is text: renaming ``print_partition``, ``use_and_drop`` or ``digests_of_examples`` of the promises must change
the text of the program too.
"""

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
"""Code ending the process, whatever threads remain: ending without help is a separate promise."""
_NUM_STDERR_LINES = 6


def run_in_fresh_process(
    code: str,
    *arguments: str,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    ends_by_itself: bool = False,
) -> str:
    """Return the text printed by the code.

    Args:
        code: Python code with this process's import path; ``json`` and ``sys`` are imported already, and arguments
            begin at ``sys.argv[2]``.
        arguments: the arguments of the code.
        timeout: seconds.
        environment: variables with other values than in this process.
        ends_by_itself: whether the interpreter shuts down, with possible waits for threads and handlers; else the
            process ends behind the last line.

    Raises:
        FailedError: the code raised, crashed, or did not end in time; with the last lines on stderr.
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
    """Return the modules unavailable to a runtime if the compile side is not installed.

    Args:
        backend: the backend; the compile half is included, except a package around the run half, because importing
            the run half imports the package.
        runtime: the run half of the backend.
    """
    compile_half, run_half = (record.value.partition(":")[0] for record in (backend, runtime))
    is_apart = compile_half and not f"{run_half}.".startswith(f"{compile_half}.")
    return ("byoc_core.ir", "byoc_core.backend", *([compile_half] if is_apart else []))
