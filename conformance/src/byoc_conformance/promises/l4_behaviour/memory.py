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
"""The growth of the first two phases is not judged: caches fill, and free memory is used up."""
_MEASUREMENTS = 2
"""The number of measurements with growth before a failure: a leak goes on, and growth of a slow cache ends."""
_PROCESS_ROUNDS_FACTOR = 4
"""The factor on the length of phases if the system counts: the growth must exceed the free memory."""
_PYTHON_BYTES = 16.0
"""The allowed growth per call of memory counted exactly by Python; no object is smaller."""
_PROCESS_BYTES = 2048.0
"""The allowed growth per call of memory counted in pages by the system; the allocator may keep some back."""


def _check_memory_of_calls(subject: Subject, case: str) -> None:
    machine = compile_examples(subject).vm
    examples = require_examples(subject)

    def call_all() -> int:
        for example in examples:
            run(machine, example)
        return len(examples)

    require_steady(call_all, rounds=20, label="call")


def _check_memory_of_compilation(subject: Subject, case: str) -> None:
    example = require_examples(subject)[0]

    def compile_once() -> int:
        run(compile_own(subject, [example])[0].vm, example)
        return 1

    require_steady(compile_once, rounds=3, label="compilation", process_bytes=1e6, python_bytes=65536.0)


def require_steady(
    work: Callable[[], int],
    *,
    rounds: int,
    label: str,
    python_bytes: float = _PYTHON_BYTES,
    process_bytes: float = _PROCESS_BYTES,
) -> None:
    """Run work in phases of equal length, and check for growth of memory from phase to phase.

    Singletons and caches take memory in the first phases only; a leak takes memory in each.

    Args:
        work: does the work, and returns the number of repetitions.
        rounds: the number of calls of ``work`` in a phase.
        label: the name of the work, for the message.
        python_bytes: the allowed growth per repetition, of the memory counted by Python.
        process_bytes: the allowed growth per repetition, of the whole process's memory.

    Raises:
        FailedError: every phase but the first two grew more than allowed, in two measurements.
    """
    for name, nbytes, allowed, count in (
        (
            "the process's memory",
            _process_nbytes,
            process_bytes,
            _PROCESS_ROUNDS_FACTOR * rounds,
        ),  # first: tracemalloc frees memory
        ("Python's memory", _python_nbytes, python_bytes, rounds),
    ):
        least = 0.0
        for _ in range(_MEASUREMENTS):
            least = _least_growth(work, count, nbytes)
            if least <= allowed:
                break
        else:
            raise FailedError(f"{name} keeps growing by {least:.0f} bytes with every {label}")


def _least_growth(work: Callable[[], int], count: int, nbytes: Callable[[], int]) -> float:
    """Return the least growth of memory per repetition over all phases but the first two."""
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
    """Return the bytes of memory held by the process; 0 if unknown to the system."""
    if sys.platform != "linux":
        return 0
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


PROMISES = (
    Promise(Level.L4, "memory-steady", "uses no more memory after many calls than after some", _check_memory_of_calls),
    Promise(
        Level.L4,
        "memory-steady-compiling",
        "uses no more memory after many compilations than after some",
        _check_memory_of_compilation,
    ),
)
