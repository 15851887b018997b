"""An executor of processes of this machine, for calls that may crash or hang their process."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any

__all__ = ["LocalProcesses"]


class LocalProcesses(Executor):
    """Fresh processes of this machine, each with one call at a time.

    A process that dies or takes too long is ended and replaced: the call fails with :class:`ChildProcessError` or
    :class:`TimeoutError`, and others go on. :class:`concurrent.futures.ProcessPoolExecutor` fails all calls once a
    process dies. Use the executor as a context manager: leaving ends all processes, and cancels waiting calls.

    Args:
        num_processes: the number of processes, started with the first calls.
        call_seconds: the time of a call after which the process is ended.
    """

    def __init__(self, num_processes: int, call_seconds: float = 300.0) -> None:
        self._threads = ThreadPoolExecutor(num_processes, thread_name_prefix="byoc-worker")
        self._processes = [_Process(call_seconds) for _ in range(num_processes)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function of an importable module in a process; arguments and result are pickled.

        Raises:
            RuntimeError: the executor was shut down.
        """
        return self._threads.submit(self._run, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End all processes: running calls fail, and waiting calls are cancelled by default."""
        self._threads.shutdown(wait=False, cancel_futures=cancel_futures)
        for process in self._processes:
            process.close()
        self._threads.shutdown(wait=wait)

    def _run(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        process = self._idle.get()
        try:
            return process.call(function, args, kwargs)
        finally:
            self._idle.put(process)


class _Process:
    """A process for calls, started when needed."""

    def __init__(self, call_seconds: float) -> None:
        self._call_seconds = call_seconds
        self._process: SpawnProcess | None = None
        self._connection: Connection | None = None
        self._is_closed = False

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call in the process.

        Raises:
            ChildProcessError: the process died.
            TimeoutError: the process took too long.
        """
        process, connection = self._start()
        try:
            connection.send((function, args, kwargs))
            has_answer = connection.poll(self._call_seconds)
            returned, error = connection.recv() if has_answer else (None, None)
        except (EOFError, OSError):
            process.join(1.0)
            code = process.exitcode
            self._end()
            raise ChildProcessError(f"the process died with exit code {code}") from None
        if not has_answer:
            self._end()
            raise TimeoutError(f"no answer after {self._call_seconds:.0f} s")
        if error is not None:
            raise error
        return returned

    def close(self) -> None:
        """End the process for good."""
        self._is_closed = True
        self._end()

    def _start(self) -> tuple[SpawnProcess, Connection]:
        if self._is_closed:
            raise ChildProcessError("the process was ended")
        if self._process is None or self._connection is None:
            context = multiprocessing.get_context("spawn")
            self._connection, other = context.Pipe()
            self._process = context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        return self._process, self._connection

    def _end(self) -> None:
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is not None and connection is not None:
            process.kill()
            process.join()
            connection.close()


def _serve(connection: Connection) -> None:
    """Answer calls until the other side closes the connection; Ctrl-C is for the other side."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Daemons end with their parent, but may not start processes; a compiler may.
    multiprocessing.current_process().daemon = False
    while True:
        try:
            function, args, kwargs = connection.recv()
        except EOFError:
            return
        answer: tuple[Any, Exception | None]
        try:
            answer = function(*args, **kwargs), None
        except Exception as error:  # noqa: BLE001 - raised by the caller's future
            answer = None, error
        try:
            connection.send(answer)
        except Exception as error:  # noqa: BLE001 - an answer that cannot be pickled
            connection.send((None, RuntimeError(f"{type(error).__name__}: {error}")))
