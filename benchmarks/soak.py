"""A million calls in every way, right and wrong, with constant memory use.

Each kind of work runs a tenth of the calls as a warm-up, then all calls, in five parts. The memory in use is compared
before and after each part: blocks of Python's allocator, bytes of the C library's heap (glibc), resident bytes (Linux).

    python -m benchmarks.run soak
    python -m benchmarks.run soak --sizes 20000
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import byoc_core
import numpy as np
from byoc_core.errors import CallError, ExecutionError
from byoc_core.runtime.module import NDArray

from benchmarks.calls import OUTPUT
from benchmarks.tiny_models import BACKEND, DYNAMIC, MODELS

__all__ = ["Memory", "allowed_growth", "from_threads", "list_work", "read_memory", "run", "soak"]

NUM_THREADS = 4
MOST_ROWS = 64
NUM_PARTS = 5
CALLS_PER_ERROR = 1_000
CALLS_PER_LEAK = 100
LEAST_CHUNK = 32
"""Bytes of the smallest allocation of glibc."""
Work = Callable[[int], None]
"""A function making a number of calls and checking the results."""


class Memory(NamedTuple):
    """The memory in use; 0 if unknown on this system.

    Attributes:
        blocks: allocations of Python's own allocator.
        heap: bytes handed out by the C library.
        resident: bytes of this process in memory.
    """

    blocks: int
    heap: int
    resident: int

    def less(self, other: Memory) -> Memory:
        """Return the differences."""
        return Memory(self.blocks - other.blocks, self.heap - other.heap, self.resident - other.resident)

    def is_within(self, bound: Memory) -> bool:
        """Return whether no field exceeds the field of `bound`."""
        return all(found <= most for found, most in zip(self, bound, strict=True))


SLACK = Memory(250, 64 << 10, 4 << 20)
"""Allowed growth independent of the number of calls: threads meet for the first time and make a further frame; a page
is touched for the first time.
"""


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2`` of glibc 2.33 and later."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def read_memory() -> Memory:
    """Return the memory in use after a garbage collection, with the free memory of the C library trimmed (glibc)."""
    gc.collect()
    if os.name == "posix" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)
    return Memory(sys.getallocatedblocks(), _read_heap(), _read_resident())


def _read_heap() -> int:
    function = getattr(ctypes.CDLL(None), "mallinfo2", None) if os.name == "posix" else None
    if function is None:
        return 0
    function.restype = _MallInfo
    found = function()
    return int(found.uordblks + found.hblkhd)


def _read_resident() -> int:
    path = Path("/proc/self/statm")
    return int(path.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE") if path.is_file() else 0


def allowed_growth(num_calls: int) -> Memory:
    """Return the allowed growth after a number of calls of a kind: the slack, and a leak at every hundredth call."""
    leaks = num_calls // CALLS_PER_LEAK
    return Memory(SLACK.blocks + leaks, SLACK.heap + leaks * LEAST_CHUNK, SLACK.resident)


def list_work(backend: str = BACKEND, *, native: bool = True) -> dict[str, Work]:
    """Return the kinds of work over a machine, by name."""
    model = MODELS["chain"]
    executable, inputs = model.build(backend), model.draw_inputs()
    machine = byoc_core.VirtualMachine(executable, native=native)
    main, arguments = machine["main"], tuple(inputs.values())
    expected = _expect(inputs)
    fixed, out = ({OUTPUT: np.full_like(expected, np.nan)} for _ in range(2))
    bound = machine.bind("main", inputs, out=fixed)

    def call(num_calls: int) -> None:
        for _ in range(num_calls):
            result = main(*arguments)
        _check(result, expected)

    def call_bound(num_calls: int) -> None:
        for _ in range(num_calls):
            bound()
        _check(fixed[OUTPUT], expected)

    def bind_anew(num_calls: int) -> None:
        for _ in range(num_calls):
            result = machine.bind("main", inputs)()
        _check(result, expected)

    def run_into_buffers(num_calls: int) -> None:
        for _ in range(num_calls):
            machine.run("main", inputs, out=out)
        _check(out[OUTPUT], expected)

    return {
        "call": call,
        "bound": call_bound,
        "bind anew": bind_anew,
        "into buffers": run_into_buffers,
        "refused, now and then": _refused(main, arguments, expected),
        # A function of the host cannot stand in for a function of a device.
        **({} if executable.program.domains else {"failing": _failing(executable, arguments, native=native)}),
        "changing sizes": _changing_sizes(backend, native=native),
        "threads": from_threads(NUM_THREADS, call, call_bound),
    }


def _expect(inputs: Mapping[str, NDArray]) -> NDArray:
    a, b, c, d = inputs.values()
    expected: NDArray = (a + b - c) * d
    return expected


def _check(result: object, expected: NDArray) -> None:
    if not np.array_equal(np.asarray(result), expected):
        raise RuntimeError("a result is wrong")


def _refused(main: Callable[..., object], arguments: tuple[NDArray, ...], expected: NDArray) -> Work:
    first, *other_arguments = arguments
    wrong = (first[:, :-1], first.astype(np.float64), first.tolist())

    def work(num_calls: int) -> None:
        for number in range(num_calls):
            if number % CALLS_PER_ERROR:
                result = main(*arguments)
                continue
            for argument in wrong:
                try:
                    main(argument, *other_arguments)
                except CallError:
                    continue
                raise RuntimeError("a wrong argument was accepted")
        _check(result, expected)

    return work


def _failing(executable: byoc_core.Executable, arguments: tuple[NDArray, ...], *, native: bool) -> Work:
    def fail(*arrays: NDArray) -> None:
        raise ValueError("on purpose")

    (symbol,) = executable.program.externs
    main = byoc_core.VirtualMachine(executable, externs={symbol: fail}, native=native)["main"]

    def work(num_calls: int) -> None:
        for _ in range(num_calls):
            try:
                main(*arguments)
            except ExecutionError:
                continue
            raise RuntimeError("a failure was not reported")

    return work


def _changing_sizes(backend: str, *, native: bool) -> Work:
    main = byoc_core.VirtualMachine(DYNAMIC.build(backend), native=native)["main"]
    inputs = [DYNAMIC.draw_inputs(num_rows) for num_rows in range(MOST_ROWS)]
    cases = [(tuple(feeds.values()), _expect(feeds)) for feeds in inputs]

    def work(num_calls: int) -> None:
        for number in range(num_calls):
            arguments, expected = cases[number % MOST_ROWS]
            result = main(*arguments)
        _check(result, expected)

    return work


def from_threads(num_threads: int, *kinds: Work) -> Work:
    """Return work dividing the calls of some kinds among threads, kind by kind."""

    def work(num_calls: int) -> None:
        failures: list[BaseException] = []

        def run_one(kind: Work) -> None:
            try:
                kind(num_calls // num_threads)
            except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
                failures.append(error)

        threads = [threading.Thread(target=run_one, args=(kinds[i % len(kinds)],)) for i in range(num_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    return work


def soak(works: Mapping[str, Work], num_calls: int) -> dict[str, Memory]:
    """Return the growth of memory for each kind of work after the calls, once warm.

    The calls are made in parts. Growth in a single part is no leak (Python's table of interned strings doubles at some
    moment, to megabytes): the part with the largest growth is left out, and the total estimated from the other parts.
    """
    found = {}
    for name, work in works.items():
        work(_whole_turns(num_calls // 10) + MOST_ROWS)
        states = [read_memory()]
        for _ in range(NUM_PARTS):
            work(_whole_turns(num_calls // NUM_PARTS))
            states.append(read_memory())
        parts = [after.less(before) for before, after in itertools.pairwise(states)]
        found[name] = Memory(
            *((sum(grown) - max(grown)) * NUM_PARTS // (NUM_PARTS - 1) for grown in zip(*parts, strict=True))
        )
    return found


def _whole_turns(num_calls: int) -> int:
    """Return about the given number of calls, a multiple of the turn of changing sizes."""
    return max(1, num_calls // MOST_ROWS) * MOST_ROWS


def run(num_rounds: int, sizes: tuple[int, ...]) -> dict[str, Any]:
    """Return the growth of memory for each kind of work and number of calls; print a mark at too much growth."""
    figures: dict[str, Any] = {"units": Memory._fields}
    for num_calls in sizes:
        works = list_work()
        share = num_calls // len(works)
        allowed = allowed_growth(share)
        print(f"  {num_calls:,} calls; allowed for each kind: {tuple(allowed)}")
        start = read_memory()
        grown = soak(works, share)
        for name, found in grown.items():
            state = "steady" if found.is_within(allowed) else "GROWS"
            print(f"  {name:24} {found.blocks:8} blocks {found.heap:10} heap {found.resident:10} resident  {state}")
        end = read_memory()
        print(f"  resident: {start.resident:,} before, {end.resident:,} after")
        figures[str(num_calls)] = {"allowed": allowed, "grown": grown, "start": start, "end": end}
    return figures
