"""The threads of this process: one setting for every machine and every runtime module.

A process has a number of threads (:func:`set_num_threads`, ``BYOC_NUM_THREADS``), a machine may have its own
(``VirtualMachine(executable, num_threads=2)``), and inside a call of a machine :func:`num_threads` returns the number
for this call. OpenMP code need not query the number: during the call the calling thread's OpenMP setting is the same.

Calls from several threads share the available threads; see :mod:`byoc_core.runtime.threads.worker_accounts`.

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc_core.runtime.threads.fork_gate import ForkGate
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
    "ForkGate",
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

    home = {"ForkGate": "fork_gate", "ForkLock": "fork_lock"}.get(name, "setting")
    return getattr(import_module(f"{__name__}.{home}"), name)
