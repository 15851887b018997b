"""The process of a :class:`byoc_core.isolation.ForkServer`: import modules, then fork a process for each request."""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

__all__ = ["LENGTH_NBYTES", "serve_forks"]

LENGTH_NBYTES = 8
"""The size of the length before a request."""
_NUM_FILES = 4


def serve_forks(control: int, settings: tuple[list[str], str]) -> NoReturn:
    """Fork a process for each request, report the ends of processes, and end all at the end of the requests.

    Only the user's own code runs in this process: a worker is a separate process, in a separate group. A request is
    answered with an error if the system allows no other process, and by the end of the channel without descriptors.

    Args:
        control: the descriptor of the socket of the requests.
        settings: the modules to import, and the function to call in each forked process.
    """
    modules, renew = settings
    for module in modules:
        importlib.import_module(module)
    renew_state = _find(renew)
    gc.freeze()  # a collection in a worker would copy the memory of all imported modules
    _Server(socket.socket(fileno=control), renew_state).run()
    os._exit(0)


@dataclass(frozen=True, eq=False, slots=True)
class _Child:
    """A forked process, and the channel for reports about the process."""

    pid: int
    channel: socket.socket


class _Server:
    def __init__(self, control: socket.socket, renew_state: Callable[[], object]) -> None:
        self._control = control
        self._renew_state = renew_state
        self._children: dict[int, _Child] = {}
        self._running: set[int] = set()
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()

    def run(self) -> None:
        """Serve until the end of the requests, then kill all processes."""
        for end in (self._woken, self._waker):
            end.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a signal without a handler wakes nobody
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if isinstance(key.data, _Child):
                    self._release(key.data)
                elif key.fileobj is self._woken:
                    self._report_ends()
                elif not self._answer():
                    for child in list(self._children.values()):
                        self._release(child)
                    return

    def _answer(self) -> bool:
        """Fork a process for the next request; return ``False`` at the end of the requests."""
        head, files, _, _ = socket.recv_fds(self._control, LENGTH_NBYTES, _NUM_FILES)
        if not head:
            return False
        head += self._receive(LENGTH_NBYTES - len(head))
        request = json.loads(self._receive(int.from_bytes(head, "big")))
        if len(files) < _NUM_FILES:  # this process has no more descriptors
            for file in files:
                os.close(file)
            return True
        try:
            pid = os.fork()
        except OSError as error:  # no more processes, or no memory
            with contextlib.suppress(OSError):
                os.write(files[3], json.dumps({"error": str(error)}).encode() + b"\n")
            for file in files:
                os.close(file)
            return True
        if pid == 0:
            self._become_worker(request, files)
        *standard, number = files
        for file in standard:
            os.close(file)
        child = _Child(pid, socket.socket(fileno=number))
        self._children[pid] = child
        self._running.add(pid)
        self._selector.register(child.channel, selectors.EVENT_READ, child)
        return True

    def _receive(self, nbytes: int) -> bytes:
        parts = bytearray()
        while len(parts) < nbytes:
            part = self._control.recv(nbytes - len(parts))
            if not part:
                raise EOFError("a request is cut off")
            parts += part
        return bytes(parts)

    def _report_ends(self) -> None:
        """Report each ended process; the process stays unreaped."""
        with contextlib.suppress(BlockingIOError):
            while self._woken.recv(4096):
                pass
        for pid in sorted(self._running):
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self._running.discard(pid)
                is_exit = ended.si_code == os.CLD_EXITED
                _write(self._children[pid], {"status": ended.si_status if is_exit else -ended.si_status})

    def _release(self, child: _Child) -> None:
        """Reap a process; kill the process and its group before if still running."""
        if child.pid in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            self._running.discard(child.pid)
        os.waitpid(child.pid, 0)
        self._selector.unregister(child.channel)
        child.channel.close()
        del self._children[child.pid]

    def _become_worker(self, request: Mapping[str, Any], files: list[int]) -> NoReturn:
        """Turn the forked process into a worker, as if started by a command."""
        status = 1
        try:
            os.setsid()
            os.write(files[3], json.dumps({"pid": os.getpid()}).encode() + b"\n")  # from now on the group can be killed
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for number, file in enumerate(files[:3]):
                os.dup2(file, number)
            self._selector.close()
            channels = [child.channel for child in self._children.values()]
            for connection in (self._control, self._woken, self._waker, *channels):
                connection.close()
            for file in files:
                os.close(file)
            os.chdir(request["folder"])
            os.environ.clear()
            os.environ.update(request["environment"])
            sys.path[:] = request["path"]
            importlib.invalidate_caches()
            self._renew_state()
            _find(request["entry"])(request["setup"])
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(bool(end.code))
        except BaseException:  # noqa: BLE001 - the end of the process, as of a command
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(status)


def _find(entry: str) -> Any:
    """Return the function of ``"package.module:function"``."""
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


def _write(child: _Child, report: Mapping[str, int]) -> None:
    with contextlib.suppress(OSError):  # the user has closed the channel
        child.channel.sendall(json.dumps(report).encode() + b"\n")
