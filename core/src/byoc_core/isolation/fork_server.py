"""A process with imported modules, forked for each worker: a fork takes milliseconds, the imports of a worker a second.

User and server exchange messages on a socket; :mod:`byoc_core.isolation.forking` is the inner half. A request is a
length, a JSON value of this length, and four file descriptors: stdin, stdout and stderr of the worker, and a channel.
On the channel the process writes a JSON line with its number, as the leader of a group, and the server a second line
with the status at the end. The ended process stays unreaped until the user closes the channel: until then, no other
process has the number.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Self

from byoc_core.isolation.forking import LENGTH_NBYTES

__all__ = ["ForkServer", "ForkedProcess"]

_START = (
    "import gc, importlib, json, sys; gc.disable(); sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module('byoc_core.isolation.forking').serve_forks(int(sys.argv[2]), json.loads(sys.argv[3]))"
)
_START_SECONDS = 60.0
"""Seconds allowed for the imports of the server."""
_READ_AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OMP_", "GOMP_", "OPENBLAS_", "MKL_", "BLIS_", "VECLIB_", "LC_")
"""The beginnings of variables read when a process starts, or when numpy is imported."""


class _Channel:
    """The lines written by the server about a process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""

    def read_line(self, timeout: float | None) -> bytes | None:
        """Return the next line; empty if the server has ended, ``None`` if no line came in time."""
        while b"\n" not in self._received:
            if not select.select([self._connection], [], [], timeout)[0]:
                return None
            part = self._connection.recv(4096)
            if not part:
                return b""
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def close(self) -> None:
        self._connection.close()


class ForkedProcess:
    """A process forked by a server, with the interface of :class:`subprocess.Popen` as far as workers use it.

    Attributes:
        pid: the number of the process; the process leads a group.
        stdin: the requests.
        stdout: the replies.
    """

    def __init__(self, pid: int, stdin: IO[str], stdout: IO[str], channel: _Channel) -> None:
        self.pid = pid
        self.stdin = stdin
        self.stdout = stdout
        self._channel = channel
        self._lock = threading.Lock()  # several threads may wait for the end
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the exit status (negative: the signal), or ``None`` while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status after the end of the process.

        Raises:
            subprocess.TimeoutExpired: the process still runs.
        """
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        try:
            if self._status is None:
                line = self._channel.read_line(timeout)
                if line is None:
                    raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
                # Processes end with a killed server.
                self._status = json.loads(line)["status"] if line else -signal.SIGKILL
                self._channel.close()
            return self._status
        finally:
            self._lock.release()

    def kill(self) -> None:
        """End the process, and the group led by the process, unless ended already."""
        if self.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)


class ForkServer:
    """A process forked for each worker, started at the first request, and ended by :meth:`close`.

    A worker has the current directory, import path and environment of the request. Modules imported by the server are
    shared: their import must not depend on import path or environment, except for the state renewed by ``renew``.

    Only on Linux: elsewhere, libraries of the system do not survive a fork. Several threads may use a server.

    Args:
        modules: imported by the server.
        renew: ``"package.module:function"``, called in each forked process: renews state depending on import path and
            environment.
        variables: environment variables of the server in addition to the variables of this process.
    """

    def __init__(self, modules: Sequence[str], renew: str, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        self._modules = tuple(modules)
        self._renew = renew
        self._variables = dict(variables)
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._environment: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the server and all its workers, and wait for the end."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._server is not None:
                self._server.wait()
            self._control = self._server = None

    def start(self, entry: str, setup: object, stderr: int, environment: Mapping[str, str]) -> ForkedProcess | None:
        """Fork a process running a function.

        Args:
            entry: ``"package.module:function"``; called with ``setup``.
            setup: plain JSON values.
            stderr: a file descriptor for the output of the process.
            environment: the environment of the process.

        Returns:
            The process; ``None`` if the server cannot be used, and an ordinary process is needed: on other systems, in
            a forked process, with other values of variables read at the start of a process, or after a failed import.
        """
        if sys.platform != "linux" or os.getpid() != self._owner:
            return None
        request = {
            "entry": entry,
            "setup": setup,
            "path": sys.path,
            "folder": str(Path.cwd()),
            "environment": dict(environment),
        }
        with self._lock, contextlib.suppress(OSError):
            if self._control is None:
                self._open({**environment, **self._variables})
            if _read_at_start(self._environment) == _read_at_start(environment):
                return self._fork(json.dumps(request).encode(), stderr)
        return None

    def _open(self, environment: Mapping[str, str]) -> None:
        self._control, inner = socket.socketpair()
        self._environment = environment
        with inner:
            arguments = [json.dumps(sys.path), str(inner.fileno()), json.dumps([self._modules, self._renew])]
            self._server = subprocess.Popen(
                [sys.executable, "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[inner.fileno()],
                start_new_session=True,  # Ctrl-C goes to this process
            )

    def _fork(self, request: bytes, stderr: int) -> ForkedProcess | None:
        assert self._control is not None
        stdin, requests = os.pipe()
        replies, stdout = os.pipe()
        outer, channel = socket.socketpair()
        with contextlib.ExitStack() as files:
            own_stdin = files.enter_context(os.fdopen(requests, "w", encoding="utf-8"))
            own_stdout = files.enter_context(os.fdopen(replies, encoding="utf-8"))
            files.enter_context(outer)
            try:
                passed = [stdin, stdout, stderr, channel.fileno()]
                socket.send_fds(self._control, [len(request).to_bytes(LENGTH_NBYTES, "big")], passed)
                self._control.sendall(request)
            finally:
                os.close(stdin)
                os.close(stdout)
                channel.close()
            lines = _Channel(outer)
            line = lines.read_line(_START_SECONDS)
            pid = json.loads(line).get("pid") if line else None
            if pid is None:
                return None
            files.pop_all()
            return ForkedProcess(pid, own_stdin, own_stdout, lines)


def _read_at_start(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}
