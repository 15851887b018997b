"""A process with imported modules, forked for each worker: a fork takes milliseconds, the imports of a worker a second.

User and server exchange messages on a socket; :mod:`byoc_core.isolation.forking` is the code of the server. A request
is a length, a JSON value of this length, and four file descriptors: stdin, stdout and stderr of the worker, and a
channel. On the channel the process writes a JSON line with its number, as the leader of a group, and the server a
second line with the status at the end. After a failed fork, the server writes a line with the error instead. The ended
process stays unreaped until the user closes the channel: until then, no other process has the number.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Self

from byoc_core.isolation.forking import LENGTH_NBYTES

__all__ = ["ForkServer", "ForkedProcess", "variables_read_at_start"]

_START = (
    "import gc, importlib, json, sys; gc.disable(); sys.path[:] = json.loads(sys.argv[1]); "
    "importlib.import_module('byoc_core.isolation.forking').serve_forks(int(sys.argv[2]), json.loads(sys.argv[3]))"
)
_START_SECONDS = 60.0
"""Seconds allowed for the imports of the server."""
_READ_AT_START = (
    *("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_"),
    *("NPY_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "MKL_", "BLIS_", "VECLIB_"),
)
"""The beginnings of variables read when a process starts, or when numpy is imported."""
_END_SECONDS = 1.0
"""Seconds allowed for the end of a server after the end of the server's sockets."""
_NUM_STDERR_NBYTES = 4096


def variables_read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without effect on a forked process: read at the start of Python, or by numpy's import."""
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


class _Channel:
    """The lines written by the server about a process."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""

    def read_line(self, timeout: float | None) -> bytes | None:
        """Return the next line; empty if the server has ended, ``None`` if no line came in time."""
        while b"\n" not in self._received:
            poll = select.poll()  # not `select.select`: a descriptor may be 1024 or more
            poll.register(self._connection, select.POLLIN)
            if not poll.poll(None if timeout is None else math.ceil(timeout * 1000)):
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
        self._reading = threading.Lock()  # several threads may wait for the end
        self._ending = threading.Lock()  # while the status is unknown, no other process has the number
        self._status: int | None = None
        self._server_ended = False

    @property
    def server_ended(self) -> bool:
        """Whether the server ended first, and killed the process by its own end; known with the exit status."""
        return self._server_ended

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
        if not self._reading.acquire(timeout=-1 if timeout is None else timeout):
            raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
        try:
            if self._status is None:
                line = self._channel.read_line(timeout)
                if line is None:
                    raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
                with self._ending:
                    self._server_ended = not line
                    self._status = json.loads(line)["status"] if line else -signal.SIGKILL
                    self._channel.close()
            return self._status
        finally:
            self._reading.release()

    def kill(self) -> None:
        """End the process, and the group led by the process, unless ended already."""
        if self.poll() is not None:
            return
        with self._ending:
            if self._status is None:
                with contextlib.suppress(ProcessLookupError):  # the server has just ended
                    os.killpg(self.pid, signal.SIGKILL)


class ForkServer:
    """A process forked for each worker, started at the first request, and ended by :meth:`close`.

    A worker has the current directory, import path and environment of the request. Modules imported by the server are
    shared: their import must not depend on import path or environment, except for the state renewed by ``renew``.

    The server has the environment of this process at the construction of this object. Variables read at the start of
    Python, or by numpy's import, have no effect on a forked process: a request with other values of these variables
    needs an ordinary process.

    Only on Linux: elsewhere, libraries of the system do not survive a fork. Several threads may use a server.

    Args:
        modules: imported by the server.
        renew: ``"package.module:function"``, called in each forked process: renews state depending on import path and
            environment.
        variables: environment variables of the server, and of all workers without other values of these variables.

    Attributes:
        variables: the argument.
    """

    def __init__(self, modules: Sequence[str], renew: str, variables: Mapping[str, str] = MappingProxyType({})) -> None:
        self.variables: Mapping[str, str] = MappingProxyType(dict(variables))
        self._modules = tuple(modules)
        self._renew = renew
        self._environment = {**os.environ, **variables}
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._server: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._errors: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def failure(self) -> str | None:
        """Why the server can fork no more processes: how it ended, with the last output; ``None`` before the end."""
        with self._lock:
            if self._server is None or self._errors is None or self._server.poll() is None:
                return None
            nbytes = os.fstat(self._errors.fileno()).st_size
            start = max(0, nbytes - _NUM_STDERR_NBYTES)
            output = os.pread(self._errors.fileno(), _NUM_STDERR_NBYTES, start).decode(errors="replace")
            return f"the server ended with status {self._server.returncode}\n{output}".rstrip()

    def close(self) -> None:
        """End the server and all its workers, and wait for the end."""
        with self._lock:
            if self._control is not None:
                self._control.close()
            if self._server is not None:
                self._server.wait()
            if self._errors is not None:
                self._errors.close()
            self._control = self._server = self._errors = None

    def start(self, entry: str, setup: object, stderr: int, environment: Mapping[str, str]) -> ForkedProcess | None:
        """Fork a process running a function.

        Args:
            entry: ``"package.module:function"``; called with ``setup``.
            setup: plain JSON values.
            stderr: a file descriptor for the output of the process.
            environment: the environment of the process; missing variables of the server are added.

        Returns:
            The process; ``None`` if the server cannot be used, and an ordinary process is needed: on other systems, in
            a forked process, with other values of variables read at the start of a process, after a failed fork, or
            after the end of the server (see :attr:`failure`).
        """
        if sys.platform != "linux" or os.getpid() != self._owner:
            return None
        completed = {**self.variables, **environment}
        if variables_read_at_start(completed) != variables_read_at_start(self._environment):
            return None
        with self._lock, contextlib.suppress(OSError):
            request = {
                "entry": entry,
                "setup": setup,
                "path": sys.path,
                "folder": str(Path.cwd()),
                "environment": completed,
            }
            if self._control is None:
                self._open()
            return self._fork(json.dumps(request).encode(), stderr)
        return None

    def _open(self) -> None:
        if self._errors is None:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        control, inner = socket.socketpair()
        with contextlib.ExitStack() as undo, inner:
            undo.enter_context(control)
            arguments = [json.dumps(sys.path), str(inner.fileno()), json.dumps([self._modules, self._renew])]
            self._server = subprocess.Popen(
                [sys.executable, "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=self._environment,
                pass_fds=[inner.fileno()],
                start_new_session=True,  # Ctrl-C goes to this process
            )
            undo.pop_all()
            self._control = control

    def _fork(self, request: bytes, stderr: int) -> ForkedProcess | None:
        with contextlib.ExitStack() as own:
            with contextlib.ExitStack() as passed:
                stdin, own_stdin = _open_pipe(passed, own, writes=True)
                stdout, own_stdout = _open_pipe(passed, own, writes=False)
                outer, channel = socket.socketpair()
                own.enter_context(outer)
                passed.enter_context(channel)
                self._send(request, [stdin, stdout, stderr, channel.fileno()])
            lines = _Channel(outer)
            line = lines.read_line(_START_SECONDS)
            if not line:
                self._notice_end(is_late=line is None)
                return None
            pid = json.loads(line).get("pid")
            if pid is None:  # the fork failed
                return None
            own.pop_all()
            return ForkedProcess(pid, own_stdin, own_stdout, lines)

    def _send(self, request: bytes, files: Sequence[int]) -> None:
        """Send a request; close the socket after a part of a request, for the server would misread the next one."""
        assert self._control is not None
        try:
            socket.send_fds(self._control, [len(request).to_bytes(LENGTH_NBYTES, "big")], files)
            self._control.sendall(request)
        except BaseException:
            self._control.close()
            raise

    def _notice_end(self, *, is_late: bool) -> None:
        """Send no more requests to a server blocked during an import; wait for the end of a server ending now."""
        assert self._control is not None
        assert self._server is not None
        if is_late:
            self._control.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(_END_SECONDS)


def _open_pipe(passed: contextlib.ExitStack, own: contextlib.ExitStack, *, writes: bool) -> tuple[int, IO[str]]:
    """Return the passed end of a pipe, and the own end, for writing or reading; each stack closes its end."""
    reader, writer = os.pipe()
    theirs, ours = (reader, writer) if writes else (writer, reader)
    passed.callback(os.close, theirs)
    return theirs, own.enter_context(os.fdopen(ours, "w" if writes else "r", encoding="utf-8"))
