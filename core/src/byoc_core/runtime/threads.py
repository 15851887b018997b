"""The threads of this process: one setting, which every machine and every runtime module keeps to.

A process has a number of threads (:func:`set_num_threads`, ``BYOC_NUM_THREADS``), a machine may have its own
(``VirtualMachine(executable, num_threads=2)``), and inside a call of a machine :func:`num_threads` tells the number
for this call. Code on OpenMP need not ask: during the call the calling thread's OpenMP setting is that number.

Calls from several threads share what there is. A call gets all the workers that it wants beside its own thread, or none
where others have them: teams of changing sizes would end and start threads at every change.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from byoc_core.errors import OptionsError
from byoc_core.runtime.cpus import count_cpus
from byoc_core.runtime.openmp import OpenMP, load_openmp

__all__ = [
    "MAX_THREADS",
    "CallToken",
    "check_num_threads",
    "default_num_threads",
    "enter_call",
    "leave_call",
    "num_threads",
    "set_num_threads",
    "use_openmp",
]

MAX_THREADS = 1024
"""The largest number of threads that may be set."""

_KEPT_TEAMS = 8
"""How many teams of full size may wait for their next call; a thread beyond that has its team dissolved after each."""

_VARIABLE = "BYOC_NUM_THREADS"
_OPENMP_VARIABLE = "OMP_NUM_THREADS"

CallToken = tuple[int, int, int]
"""What :func:`leave_call` needs: the number of threads before, the workers taken, the OpenMP setting to restore."""


def num_threads() -> int:
    """Gives how many threads work may use now: inside a call of a machine the call's number, else the process's.

    Cost: some 100 nanoseconds.

    Raises:
        OptionsError: ``BYOC_NUM_THREADS`` is not a number of threads.
    """
    return _call.number or _process.limit()


def set_num_threads(number: int) -> None:
    """Sets the number of threads of the process, for all calls that begin from now on; see also `VirtualMachine`.

    Raises:
        OptionsError: it is no integer from 1 to :data:`MAX_THREADS`.
    """
    _process.set_limit(check_num_threads(number))


def default_num_threads(environment: Mapping[str, str] | None = None) -> int:
    """Gives the number of threads of a process that sets none.

    That is ``BYOC_NUM_THREADS``; else the first number of ``OMP_NUM_THREADS`` (a list has one for each level of nested
    parallel regions; OpenMP 5.2, section 21.1.2; what is not such a list is ignored, as libgomp does); else the
    processors that the process may use (see :func:`byoc_core.runtime.cpus.count_cpus`).

    Raises:
        OptionsError: ``BYOC_NUM_THREADS`` is not a number of threads.
    """
    environment = os.environ if environment is None else environment
    own = environment.get(_VARIABLE, "").strip()
    if own:
        return check_num_threads(int(own) if own.isascii() and own.isdigit() else own, f"${_VARIABLE}")
    levels = [level.strip() for level in environment.get(_OPENMP_VARIABLE, "").split(",")]
    if all(level.isascii() and level.isdigit() and int(level) > 0 for level in levels):
        return min(int(levels[0]), MAX_THREADS)
    return min(count_cpus(), MAX_THREADS)


def check_num_threads(number: object, where: str = "option `num_threads`") -> int:
    """Gives back a number of threads.

    Raises:
        OptionsError: it is no integer from 1 to :data:`MAX_THREADS`.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MAX_THREADS:
        raise OptionsError(where, "value not permitted", got=repr(number), expected=f"1 to {MAX_THREADS}")
    return number


def use_openmp() -> OpenMP | None:
    """Gives the process's OpenMP library, loaded with the first call; ``None`` where the system has none.

    A runtime whose code runs on OpenMP calls this before it loads that code: from then on each call's number of threads
    reaches OpenMP too.
    """
    return _process.use_openmp()


def enter_call(wanted: int | None) -> CallToken:
    """Begins a call in this thread; :func:`leave_call` must follow, in the same thread.

    Args:
        wanted: the machine's number of threads; ``None`` for the process's. A call inside another has at most the
            number of that one.
    """
    previous = _call.number
    workers = 0
    if previous:
        number = previous if wanted is None else min(previous, wanted)
    else:
        workers = _process.take(wanted)
        number = 1 + workers
    openmp = _process.openmp
    setting = 0
    if openmp is not None:
        setting = openmp.max_threads()
        openmp.set_num_threads(number)
    _call.number = number
    return previous, workers, setting


def leave_call(token: CallToken) -> None:
    """Ends the call that :func:`enter_call` began."""
    previous, workers, setting = token
    _call.number = previous
    openmp = _process.openmp
    if openmp is not None and setting:
        openmp.set_num_threads(setting)
    if workers:
        _process.give_back(workers)


class _Team:
    """The workers that wait for a thread's next call; they end with the thread, as this object does."""

    def __init__(self, process: _Process) -> None:
        self.workers = 0
        self._forget = process.forget

    def __del__(self) -> None:
        self._forget(self.workers)


class _Call(threading.local):
    """The call under way in a thread: its number of threads, 0 outside calls; and the thread's team."""

    number = 0

    def __init__(self) -> None:
        self.team = _Team(_process)


class _Process:
    """What all threads share.

    Attributes:
        openmp: the OpenMP library, once somebody uses it.
    """

    def __init__(self) -> None:
        self.openmp: OpenMP | None = None
        self._lock = threading.Lock()
        self._searched = False
        self._limit = 0
        self._busy = 0
        self._kept = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    def limit(self) -> int:
        if not self._limit:
            self._limit = default_num_threads()
        return self._limit

    def set_limit(self, number: int) -> None:
        self._limit = number

    def use_openmp(self) -> OpenMP | None:
        if not self._searched:
            with self._lock:
                if not self._searched:
                    self.openmp = load_openmp()
                    self._searched = True
        return self.openmp

    def take(self, wanted: int | None) -> int:
        """Gives the workers for a call: all that it wants, or none."""
        limit = self._limit or self.limit()
        workers = (limit if wanted is None else wanted) - 1
        if workers:
            with self._lock:
                if self._busy and self._busy + workers > limit - 1:
                    return 0
                self._busy += workers
        return workers

    def give_back(self, workers: int) -> None:
        """Takes back the workers of a call; its thread keeps its team, if few threads do."""
        team = _call.team
        with self._lock:
            self._busy -= workers
            self._kept += workers - team.workers
            crowded = workers != team.workers and self._kept > _KEPT_TEAMS * max(workers, self._limit - 1)
        team.workers = workers
        if crowded and self.openmp is not None and self.openmp.dissolve_team():
            self.forget(workers)
            team.workers = 0

    def forget(self, workers: int) -> None:
        """Counts workers off that have ended."""
        if workers:
            with self._lock:
                self._kept -= workers

    def _start_anew(self) -> None:
        """In a forked child: the other threads, and every team, are gone; a lock may have been held by one of them."""
        self._lock = threading.Lock()
        self._kept = 0
        _call.team.workers = 0
        self._busy = max(0, _call.number - 1)


_process = _Process()
_call = _Call()
