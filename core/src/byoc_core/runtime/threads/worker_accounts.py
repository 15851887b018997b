"""Accounts of worker threads, shared by calls from all threads of a process.

A call gets all requested workers beside the calling thread, or none if other calls have them: teams of changing sizes
would end and start threads at every change. So all calls together use fewer workers than the larger of two numbers:
the process's number of threads, and the largest number of threads requested by a call.

The workers of OpenMP belong to the calling thread, and wait for the thread's next call. A few threads may keep such a
team. Further teams are dissolved after each call, so few workers exist for any number of calling threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Protocol

from byoc_core.runtime.threads.openmp import OpenMP

__all__ = ["CallToken", "NativeAccounts", "ThreadAccounts", "WorkerAccounts"]

CallToken = tuple[int, int, int]
"""The data for ending a call: the number of threads before, the workers taken, the OpenMP setting to restore."""

_MAX_WAITING_TEAMS = 8


class ThreadAccounts(Protocol):
    """The accounts of worker threads: :class:`WorkerAccounts`, or :class:`NativeAccounts`.

    Attributes:
        team_runner: see :func:`byoc_core.runtime.threads.team_runner`.
    """

    team_runner: int

    def enter(self, requested: int, /) -> CallToken:
        """Begin a call in this thread with so many requested threads; 0 for the number of the process."""

    def leave(self, token: CallToken, /) -> None:
        """End the call in this thread begun by :meth:`enter`."""

    def number(self) -> int:
        """Return the number of threads of the call under way in this thread; 0 outside calls."""

    def set_limit(self, number: int, /) -> None:
        """Set the number of threads of the process."""

    def set_openmp(self, openmp: OpenMP, /) -> None:
        """Set the library whose setting follows the calls."""

    def reset_after_fork(self, without_workers: bool, /) -> None:
        """Forget the other threads, absent from a forked child; ``without_workers``: the child never has workers."""


class WorkerAccounts:
    """The accounts in Python. Before :meth:`set_limit` each call has one thread.

    The C extension keeps accounts by the same rules (``csrc/threads.c``, see :class:`NativeAccounts`): change both
    alike.
    """

    team_runner = 0

    def __init__(self) -> None:
        self._limit = 1
        self._openmp: OpenMP | None = None
        self._lock = threading.Lock()
        self._busy = 0
        self._num_waiting = 0
        self._ended: list[int] = []
        self._without_workers = False
        self._call = _Call(self)

    def enter(self, requested: int, /) -> CallToken:
        """Begin a call; a nested call has at most the number of the outer call, and takes no workers."""
        call = self._call
        previous = call.number
        requested = 1 if self._without_workers else requested or self._limit
        workers = 0 if previous else self._take(requested - 1)
        number = min(previous, requested) if previous else 1 + workers
        setting = 0
        if self._openmp is not None:
            setting = self._openmp.max_threads()
            self._openmp.set_num_threads(number)
        call.number = number
        return previous, workers, setting

    def leave(self, token: CallToken, /) -> None:
        """End a call."""
        previous, workers, setting = token
        self._call.number = previous
        if setting and self._openmp is not None:
            self._openmp.set_num_threads(setting)
        if workers:
            self._give_back(workers)

    def number(self) -> int:
        """Return the number of threads of the call under way in this thread."""
        return self._call.number

    def set_limit(self, number: int, /) -> None:
        """Set the number of threads of the process."""
        self._limit = number

    def set_openmp(self, openmp: OpenMP, /) -> None:
        """Set the library whose setting follows the calls."""
        self._openmp = openmp

    def reset_after_fork(self, without_workers: bool, /) -> None:
        """Forget the other threads, and replace the lock, perhaps held by another thread."""
        self._lock = threading.Lock()
        self._without_workers = without_workers
        self._ended.clear()
        self._call.team.num_workers = self._num_waiting = 0
        self._busy = self._call.num_workers

    def forget(self, workers: int) -> None:
        """Record ended workers, to be subtracted when a later call ends.

        No lock is taken: in a forked child, a thread's team may end early, while the lock is held for good by another
        thread.
        """
        if workers:
            self._ended.append(workers)

    def _take(self, workers: int) -> int:
        if not workers:
            return 0
        with self._lock:
            if self._busy and self._busy + workers > self._limit - 1:
                return 0
            self._busy += workers
        self._call.num_workers += workers
        return workers

    def _give_back(self, workers: int) -> None:
        self._keep_team(workers)  # before other calls may make workers in place of these
        self._call.num_workers -= workers
        with self._lock:
            self._busy -= workers

    def _keep_team(self, workers: int) -> None:
        """Count the team left by a call in the thread, or end the team if too many workers wait."""
        team = self._call.team
        if workers == team.num_workers:
            return
        with self._lock:
            while self._ended:
                self._num_waiting -= self._ended.pop()
            self._num_waiting += workers - team.num_workers
            has_too_many = self._num_waiting > _MAX_WAITING_TEAMS * max(workers, self._limit - 1)
        team.num_workers = workers
        if has_too_many and self._openmp is not None and self._openmp.dissolve_team():
            team.num_workers = 0
            self.forget(workers)


class NativeAccounts:
    """The accounts in the C extension, shared with the extension's calls without Python.

    Args:
        extension: the module ``byoc_core._native``.
    """

    def __init__(self, extension: ModuleType) -> None:
        self.enter: Callable[[int], CallToken] = extension.threads_enter
        self.leave: Callable[[CallToken], None] = extension.threads_leave
        self.number: Callable[[], int] = extension.threads_number
        self.set_limit: Callable[[int], None] = extension.threads_set_limit
        self.reset_after_fork: Callable[[bool], None] = extension.threads_reset_after_fork
        self.team_runner: int = extension.TEAM_RUNNER
        self._set_openmp: Callable[[tuple[int, ...]], None] = extension.threads_set_openmp

    def set_openmp(self, openmp: OpenMP, /) -> None:
        """Set the library whose setting follows the calls."""
        self._set_openmp(openmp.addresses)


class _Team:
    """The workers waiting for a thread's next call. The object dies with its thread, like the workers."""

    def __init__(self, accounts: WorkerAccounts) -> None:
        self.num_workers = 0
        self._accounts = accounts

    def __del__(self) -> None:
        self._accounts.forget(self.num_workers)


class _Call(threading.local):
    """The call under way in a thread, and the thread's team.

    Attributes:
        number: the call's number of threads; 0 outside calls.
        num_workers: the number of workers taken by the thread's calls.
    """

    def __init__(self, accounts: WorkerAccounts) -> None:
        self.number = 0
        self.num_workers = 0
        self.team = _Team(accounts)
