"""Who uses how many worker threads: the accounts that calls from all threads of a process share.

A call gets all the workers that it wants beside its own thread, or none where others have them: teams of changing sizes
would end and start threads at every change. So at any time calls use at most one worker less than the process has
threads, or than the call that wants most has.

The workers of OpenMP belong to the thread that calls, and wait for its next call. A few threads may keep such a team;
that of a thread beyond them is dissolved after each call, so that however many threads call, few workers exist.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Protocol

from byoc_core.runtime.threads.openmp import OpenMP

__all__ = ["Accounts", "CallToken", "NativeAccounts", "WorkerAccounts"]

CallToken = tuple[int, int, int]
"""What ends a call: the number of threads before it, the workers taken, the OpenMP setting to restore."""

_KEPT_TEAMS = 8


class Accounts(Protocol):
    """What keeps the accounts: :class:`WorkerAccounts`, or :class:`NativeAccounts`.

    Attributes:
        team_runner: see :func:`byoc_core.runtime.threads.team_runner`.
    """

    team_runner: int

    def enter(self, wanted: int, /) -> CallToken:
        """Begins a call in this thread that wants so many threads; 0 for the number of the process."""

    def leave(self, token: CallToken, /) -> None:
        """Ends the call in this thread that :meth:`enter` began."""

    def number(self) -> int:
        """Gives the number of threads of the call under way in this thread; 0 outside calls."""

    def set_limit(self, number: int, /) -> None:
        """Sets the number of threads of the process."""

    def set_openmp(self, openmp: OpenMP, /) -> None:
        """Says which library's setting follows the calls."""

    def start_anew(self, alone: bool, /) -> None:
        """Forgets the other threads, which a forked child does not have; ``alone``: it must never have workers."""


class WorkerAccounts:
    """The accounts in Python. Before :meth:`set_limit` each call has one thread."""

    team_runner = 0

    def __init__(self) -> None:
        self._limit = 1
        self._openmp: OpenMP | None = None
        self._lock = threading.Lock()
        self._busy = 0
        self._kept = 0
        self._ended: list[int] = []
        self._alone = False
        self._call = _Call(self)

    def enter(self, wanted: int, /) -> CallToken:
        """Begins a call; one inside another has at most the number of that one, and takes no workers."""
        call = self._call
        previous = call.number
        wanted = 1 if self._alone else wanted or self._limit
        workers = 0 if previous else self._take(wanted - 1)
        number = min(previous, wanted) if previous else 1 + workers
        setting = 0
        if self._openmp is not None:
            setting = self._openmp.max_threads()
            self._openmp.set_num_threads(number)
        call.number = number
        return previous, workers, setting

    def leave(self, token: CallToken, /) -> None:
        """Ends a call."""
        previous, workers, setting = token
        self._call.number = previous
        if setting and self._openmp is not None:
            self._openmp.set_num_threads(setting)
        if workers:
            self._give_back(workers)

    def number(self) -> int:
        """Gives the number of threads of the call under way in this thread."""
        return self._call.number

    def set_limit(self, number: int, /) -> None:
        """Sets the number of threads of the process."""
        self._limit = number

    def set_openmp(self, openmp: OpenMP, /) -> None:
        """Says which library's setting follows the calls."""
        self._openmp = openmp

    def start_anew(self, alone: bool, /) -> None:
        """Forgets the other threads, and the lock that one of them may have held."""
        self._lock = threading.Lock()
        self._alone = alone
        self._ended.clear()
        self._call.team.num_workers = self._kept = 0
        self._busy = self._call.taken

    def forget(self, workers: int) -> None:
        """Counts workers off that have ended.

        No lock: a thread's team also ends in a forked child, early, when another thread's lock is held for good.
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
        self._call.taken += workers
        return workers

    def _give_back(self, workers: int) -> None:
        self._keep_team(workers)  # before others may make workers in place of these
        self._call.taken -= workers
        with self._lock:
            self._busy -= workers

    def _keep_team(self, workers: int) -> None:
        """Counts the team that a call leaves in its thread, or ends it where too many wait."""
        team = self._call.team
        if workers == team.num_workers:
            return
        with self._lock:
            while self._ended:
                self._kept -= self._ended.pop()
            self._kept += workers - team.num_workers
            crowded = self._kept > _KEPT_TEAMS * max(workers, self._limit - 1)
        team.num_workers = workers
        if crowded and self._openmp is not None and self._openmp.dissolve_team():
            team.num_workers = 0
            self.forget(workers)


class NativeAccounts:
    """The accounts in the C extension, which its calls without Python share.

    Args:
        extension: the module ``byoc_core._native``.
    """

    def __init__(self, extension: ModuleType) -> None:
        self.enter: Callable[[int], CallToken] = extension.threads_enter
        self.leave: Callable[[CallToken], None] = extension.threads_leave
        self.number: Callable[[], int] = extension.threads_number
        self.set_limit: Callable[[int], None] = extension.threads_set_limit
        self.start_anew: Callable[[bool], None] = extension.threads_start_anew
        self.team_runner: int = extension.SPREAD_RUN
        self._set_openmp: Callable[[tuple[int, ...]], None] = extension.threads_set_openmp

    def set_openmp(self, openmp: OpenMP, /) -> None:
        """Says which library's setting follows the calls."""
        self._set_openmp(openmp.addresses)


class _Team:
    """The workers that wait for a thread's next call. It dies with its thread, as they do."""

    def __init__(self, accounts: WorkerAccounts) -> None:
        self.num_workers = 0
        self._accounts = accounts

    def __del__(self) -> None:
        self._accounts.forget(self.num_workers)


class _Call(threading.local):
    """The call under way in a thread, and the thread's team.

    Attributes:
        number: the call's number of threads; 0 outside calls.
        taken: the workers that the thread's calls have taken.
    """

    def __init__(self, accounts: WorkerAccounts) -> None:
        self.number = 0
        self.taken = 0
        self.team = _Team(accounts)
