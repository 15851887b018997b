"""The number of threads of this process and of each call, by one setting of the process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType

from byoc_core.errors import OptionsError
from byoc_core.native.processors import count_cpus
from byoc_core.runtime.extension import extension as extension_of_process
from byoc_core.runtime.threads.fork_lock import ForkLock
from byoc_core.runtime.threads.openmp import OpenMP, load_openmp
from byoc_core.runtime.threads.worker_accounts import CallToken, NativeAccounts, ThreadAccounts, WorkerAccounts

__all__ = [
    "MAX_THREADS",
    "check_num_threads",
    "default_num_threads",
    "enter_call",
    "leave_call",
    "num_threads",
    "open_accounts",
    "set_num_threads",
    "team_runner",
    "use_openmp",
]

MAX_THREADS = 1024
"""The largest number of threads that may be set."""

_VARIABLE = "BYOC_NUM_THREADS"
_OPENMP_VARIABLE = "OMP_NUM_THREADS"


def num_threads() -> int:
    """Return the number of threads for work now: inside a call of a machine the call's number, else the process's.

    Cost: some 100 nanoseconds.

    Raises:
        OptionsError: ``BYOC_NUM_THREADS`` is not a number of threads.
    """
    accounts = _process.accounts
    return (accounts.number() if accounts else 0) or _process.limit()


def set_num_threads(number: int) -> None:
    """Set the number of threads of the process, for all later calls; see also `VirtualMachine`.

    Raises:
        OptionsError: the number is no integer from 1 to :data:`MAX_THREADS`.
    """
    _process.set_limit(check_num_threads(number))


def default_num_threads(environment: Mapping[str, str] | None = None) -> int:
    """Return the number of threads of a process without a setting.

    The order is: ``BYOC_NUM_THREADS``; else the first number of ``OMP_NUM_THREADS``; else the processors available to
    the process (see :func:`byoc_core.native.processors.count_cpus`). ``OMP_NUM_THREADS`` is a list with one number for
    each level of nested parallel regions (OpenMP 5.2, section 21.1.2); any other text is ignored, as in libgomp.

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
    """Return a number of threads unchanged if valid.

    Raises:
        OptionsError: the number is no integer from 1 to :data:`MAX_THREADS`.
    """
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MAX_THREADS:
        raise OptionsError(where, "value not permitted", got=repr(number), expected=f"1 to {MAX_THREADS}")
    return number


def use_openmp() -> OpenMP | None:
    """Return the process's OpenMP library, loaded by the first call; ``None`` if the system has none.

    A runtime calls this function before loading OpenMP code: from then on each call's number of threads reaches OpenMP
    too.
    """
    return _process.use_openmp()


def open_accounts(extension: ModuleType | None = None) -> None:
    """Fix the number of threads of the process, and the keeper of the accounts of calls; the first time only.

    Args:
        extension: the C extension, with calls invisible to Python; ``None`` if absent.

    Raises:
        OptionsError: ``BYOC_NUM_THREADS`` is not a number of threads.
    """
    _process.open_accounts(extension)


def team_runner() -> int:
    """Return the address of a C function ``int run(int (*body)(void *), void *data)``; 0 without the C extension.

    The function calls ``body(data)`` once, in the calling thread, and returns the result. Before the call, the threads
    of the caller's OpenMP team are woken, and threads on the same processor are separated. Use the function for a
    ``body`` of several parallel regions: systems may wake several threads on the same processor, while other processors
    are idle. The address is available once the first machine of modules with threads is made.
    """
    return _process.accounts.team_runner if _process.accounts else 0


def enter_call(wanted: int = 0) -> CallToken:
    """Begin a call in this thread; :func:`leave_call` must follow, in the same thread.

    Args:
        wanted: the machine's number of threads; 0 for the process's. A nested call has at most the number of the outer
            call.

    Without a machine before, this call opens the accounts, kept by the C extension if available: later native calls
    know no other accounts.
    """
    return (_process.accounts or _process.open_accounts(extension_of_process())).enter(wanted)


def leave_call(token: CallToken) -> None:
    """End the call begun by :func:`enter_call`."""
    (_process.accounts or _process.open_accounts(extension_of_process())).leave(token)


class _Process:
    """The state shared by all threads: the number, the library, the accounts."""

    def __init__(self) -> None:
        self._fork_lock = ForkLock()
        self._limit: int | None = None
        self.accounts: ThreadAccounts | None = None
        self._openmp: OpenMP | None = None
        self._searched = False
        self._team_lost = False
        self._without_workers = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_child=self._in_child)

    def open_accounts(self, extension: ModuleType | None = None) -> ThreadAccounts:
        with self._fork_lock.lock:
            if self.accounts is None:
                accounts: ThreadAccounts = NativeAccounts(extension) if extension else WorkerAccounts()
                accounts.set_limit(self.limit())
                if self._openmp is not None:
                    accounts.set_openmp(self._openmp)
                if self._without_workers:
                    accounts.reset_after_fork(True)
                self.accounts = accounts
            return self.accounts

    def limit(self) -> int:
        if self._limit is None:
            self._limit = default_num_threads()
        return self._limit

    def set_limit(self, number: int) -> None:
        with self._fork_lock.lock:
            self._limit = number
            if self.accounts is not None:
                self.accounts.set_limit(number)

    def use_openmp(self) -> OpenMP | None:
        with self._fork_lock.lock:
            if not self._searched:
                self._openmp = load_openmp()
                self._searched = True
                if self._openmp is not None and self.accounts is not None:
                    self.accounts.set_openmp(self._openmp)
            return self._openmp

    def _before_fork(self) -> None:
        # A child has no threads of its parent, but OpenMP would wait for them: end the team of this thread before.
        self._team_lost = self._without_workers or (self._openmp is not None and not self._openmp.dissolve_team())

    def _in_child(self) -> None:
        self._without_workers = self._team_lost
        if self.accounts is not None:
            self.accounts.reset_after_fork(self._without_workers)


_process = _Process()
