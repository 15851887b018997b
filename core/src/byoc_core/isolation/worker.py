"""A process answering requests, with a deadline for each.

The protocol is a JSON line for each request and reply; the first line of the process is ``{"ready": true}``
(:mod:`byoc_core.isolation.serving`). Users are the debugger, the check of installed plugins by the command line, and
the conformance kit.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Literal

from byoc_core.errors import InternalError
from byoc_core.isolation.fork_server import ForkedProcess, ForkServer
from byoc_core.isolation.waiting import wait_for

__all__ = ["Ended", "Worker"]

_START = (
    "import gc, importlib, json, sys; gc.disable(); sys.path[:] = json.loads(sys.argv[1]); "
    "module, _, name = sys.argv[2].partition(':'); "
    "getattr(importlib.import_module(module), name)(json.loads(sys.argv[3]))"
)
_NUM_STDERR_LINES = 8
_GRACE = 5.0
_START_SECONDS = 60.0
"""Seconds allowed for the imports of the process, unless the deadline is longer."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a process, in place of an answer.

    Attributes:
        code: ``"crash"``: the process ended by itself; ``"hang"``: no answer came in time, and the process should be
            stopped.
        text: how the process ended, with the last lines on stderr.
        server_ended: the process was forked, and the end of the server killed the process: another process of the
            server may be the cause.
    """

    code: Literal["crash", "hang"]
    text: str
    server_ended: bool = False


class Worker:
    """A process for answering requests, a JSON line each, with the import path of this process.

    Args:
        entry: ``"package.module:function"``; called with ``setup``; should end in :func:`serve`.
        setup: plain JSON values.
        stderr: a file for the output of the process.
        variables: environment variables for the process in addition to the variables of this process and of
            ``fork_server``.
        fork_server: forks the process, if given and possible; otherwise the process imports everything anew.
    """

    def __init__(
        self,
        entry: str,
        setup: Mapping[str, object],
        stderr: Path,
        variables: Mapping[str, str] = MappingProxyType({}),
        fork_server: ForkServer | None = None,
    ) -> None:
        self._entry = entry
        self._stderr = stderr
        environment = {**os.environ, **(fork_server.variables if fork_server else {}), **variables}
        with contextlib.ExitStack() as files:
            self._errors = files.enter_context(stderr.open("wb"))
            forked = fork_server and fork_server.start(entry, setup, self._errors.fileno(), environment)
            self._process = forked or subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path), entry, json.dumps(setup)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=environment,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # a separate group: child processes end with it; Ctrl-C goes to this process
            )
            files.pop_all()
        self._is_ready = False
        self._replies: queue.SimpleQueue[str] = queue.SimpleQueue()
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=_read_lines, args=(self._process.stdout, self._replies), daemon=True)
        self._reader.start()

    def ask(self, request: Mapping[str, object], deadline: float) -> dict[str, Any] | Ended:
        """Return the reply, or how the process ended; after an end the process takes no more requests.

        Args:
            request: plain JSON values.
            deadline: seconds.

        Raises:
            InternalError: the answering function raised an exception.
        """
        if not self._is_ready:
            started = self._receive(max(deadline, _START_SECONDS))
            if isinstance(started, Ended):
                return started
            self._is_ready = True
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except OSError:  # the process is dead
            return self._crash()
        return self._receive(deadline)

    def _receive(self, seconds: float) -> dict[str, Any] | Ended:
        try:
            line = wait_for(self._replies, seconds)
        except queue.Empty:
            if self._process.poll() is not None:  # child processes keep the stream open
                return self._crash()
            return Ended("hang", f"no result within {seconds:g} s")
        if not line:
            return self._crash()
        reply: dict[str, Any] = json.loads(line)
        if "bug" in reply:
            raise InternalError(f"process of `{self._entry}`", "failed", detail=str(reply["bug"]))
        return reply

    def _crash(self) -> Ended:
        try:
            status = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:  # stream closed, but still alive
            self._kill()
            status = self._process.wait()
        lines = self._stderr.read_text(encoding="utf-8", errors="replace").splitlines()[-_NUM_STDERR_LINES:]
        text = f"the process ended with {_describe_status(status)}"
        server_ended = isinstance(self._process, ForkedProcess) and self._process.server_ended
        if server_ended:
            text += ", killed by the end of the process's fork server"
        return Ended("crash", "\n".join([text, *lines]), server_ended)

    def _kill(self) -> None:
        """Kill the process and all child processes."""
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()

    def stop(self) -> None:
        """End the process and its group, and wait for the process."""
        assert self._process.stdin is not None
        self._kill()
        self._process.wait()
        self._reader.join(_GRACE)  # processes outside the group may keep the stream open: the reader outlives this
        with contextlib.suppress(OSError):  # unread requests cannot be flushed any more
            self._process.stdin.close()
        self._errors.close()


def _read_lines(stream: IO[str], lines: queue.SimpleQueue[str]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


def _describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
