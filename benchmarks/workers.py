"""Contestants in separate processes: all are started, then asked in turn; the others sleep meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

__all__ = ["Worker"]


class Worker:
    """A process answering each input line with a line of JSON.

    Args:
        module: the module run with ``python -m``.
        arguments: arguments of the module.
        environment: variables added to the environment of all, after removal of all variables about threads.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "OPENBLAS_"))}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            env={**inherited, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str = "") -> Any:
        """Return the answer to a line.

        Raises:
            RuntimeError: the process ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(question, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contestant ended with status {self._process.wait(30)}")
        return json.loads(line)

    def stop(self) -> None:
        """End the process; nothing happens if the process ended already."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(30)
