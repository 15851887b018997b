"""Memory after many calls."""

from __future__ import annotations

import gc
import os
import sys
import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from byoc_conformance.examples import compile_examples
from byoc_conformance.outcome import FailedError
from byoc_conformance.promise import Level, Promise
from byoc_conformance.promises.l4_behaviour.running import compile_own, require_examples, run
from byoc_conformance.subject import Subject

__all__ = ["PROMISES", "require_steady"]

_PHASES = 5
"""What the first two take is not judged: caches fill, and free memory is used up."""
_MEASUREMENTS = 2
"""How often memory must grow: a leak goes on, and what a cache of slow growth takes comes to an end."""
_LONGER = 4
"""How many times longer phases are where the system counts: what is taken must exceed what was free."""
_PYTHON_BYTES = 16.0
"""Of memory that Python counts exactly: what each call may leave; no object is smaller."""
_PROCESS_BYTES = 2048.0
"""Of memory that the system counts in pages: what each call may leave, where the allocator may keep some back."""


def _steady_calls(subject: Subject, case: str) -> None:
    machine = compile_examples(subject).vm
    examples = require_examples(subject)

    def call_all() -> int:
        for example in examples:
            run(machine, example)
        return len(examples)

    require_steady(call_all, rounds=20, what="call")


def _steady_compiling(subject: Subject, case: str) -> None:
    example = require_examples(subject)[0]

    def compile_once() -> int:
        run(compile_own(subject, [example])[0].vm, example)
        return 1

    require_steady(compile_once, rounds=3, what="compilation", process_bytes=1e6, python_bytes=65536.0)


def require_steady(
    work: Callable[[], int],
    *,
    rounds: int,
    what: str,
    python_bytes: float = _PYTHON_BYTES,
    process_bytes: float = _PROCESS_BYTES,
) -> None:
    """Works in phases of equal length, and looks whether each takes more memory than the one before.

    What is made once, and caches that fill up, take memory in the first phases only; a leak takes it in each.

    Args:
        work: does something, and says how many times.
        rounds: how often it is done in a phase.
        what: what it does, for the message.
        python_bytes: what may be left each time, of the memory that Python counts.
        process_bytes: what may be left each time, of the whole process's memory.

    Raises:
        FailedError: every phase but the first two took more than was allowed, and did so again when measured anew.
    """
    for name, nbytes, allowed, count in (
        ("the process's memory", _process_nbytes, process_bytes, _LONGER * rounds),  # counting Python's leaves it free
        ("Python's memory", _python_nbytes, python_bytes, rounds),
    ):
        least = 0.0
        for _ in range(_MEASUREMENTS):
            least = _least_growth(work, count, nbytes)
            if least <= allowed:
                break
        else:
            raise FailedError(f"{name} grows by {least:.0f} bytes with every {what}, on and on")


def _least_growth(work: Callable[[], int], count: int, nbytes: Callable[[], int]) -> float:
    """Return by how much memory grew each time, in the phase in which it grew least; the first two do not count."""
    sizes, times = [], 0
    if nbytes is _python_nbytes:
        tracemalloc.start()
    try:
        for _ in range(_PHASES):
            times = sum(work() for _ in range(count))
            gc.collect()
            sizes.append(nbytes())
    finally:
        tracemalloc.stop()
    return min(after - before for before, after in pairwise(sizes[1:])) / times


def _python_nbytes() -> int:
    return tracemalloc.get_traced_memory()[0]


def _process_nbytes() -> int:
    """Gives the bytes of memory that the process holds; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


PROMISES = (
    Promise(Level.L4, "memory-steady", "takes no more memory after many calls than after some", _steady_calls),
    Promise(
        Level.L4,
        "memory-steady-compiling",
        "takes no more memory after many compilations than after some",
        _steady_compiling,
    ),
)
