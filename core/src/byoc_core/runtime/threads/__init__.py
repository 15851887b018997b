"""The threads of this process: one setting, which every machine and every runtime module keeps to.

A process has a number of threads (:func:`set_num_threads`, ``BYOC_NUM_THREADS``), a machine may have its own
(``VirtualMachine(executable, num_threads=2)``), and inside a call of a machine :func:`num_threads` tells the number
for this call. Code on OpenMP need not ask: during the call the calling thread's OpenMP setting is that number.

Calls from several threads share what there is; see :mod:`byoc_core.runtime.threads.worker_accounts`.

Names are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.runtime.threads.fork_lock import ForkLock
    from byoc_core.runtime.threads.setting import (
        MAX_THREADS,
        check_num_threads,
        default_num_threads,
        enter_call,
        leave_call,
        num_threads,
        open_accounts,
        set_num_threads,
        team_runner,
        use_openmp,
    )

__all__ = [
    "MAX_THREADS",
    "ForkLock",
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


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = "fork_lock" if name == "ForkLock" else "setting"
    return getattr(import_module(f"{__name__}.{home}"), name)
