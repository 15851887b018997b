"""The limits of this machine, measured: float32 operations and bytes of memory per second.

The roofline model (Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52(4), 2009) bounds a computation by both limits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from byoc_core.runtime.vector_functions import vector_function

__all__ = ["Peaks", "measure_peaks"]

_ROUNDS = 300_000
"""Rounds of multiply-adds in a measurement: under a millisecond of a thread."""
_COPIED_NBYTES = 64 << 20
"""Bytes copied in a measurement: more than caches hold."""
_REPEATS = 7


@dataclass(frozen=True, slots=True)
class Peaks:
    """The limits of a machine with a number of threads.

    Attributes:
        flops: float32 operations per second; a multiply-add counts as two. 0 without a measurement.
        bandwidth: bytes per second between processor and memory, read and written.
    """

    flops: float
    bandwidth: float

    def fastest_seconds(self, flops: float, nbytes: float) -> float:
        """Return the least seconds of a computation with these operations and bytes of memory."""
        return max(flops / self.flops if self.flops else 0.0, nbytes / self.bandwidth if self.bandwidth else 0.0)


def measure_peaks(num_threads: int = 1) -> Peaks:
    """Measure this machine, in about 0.2 s: multiply-adds in vector registers, and a copy of a large array.

    Args:
        num_threads: the threads working at once.
    """
    with ThreadPoolExecutor(num_threads) as pool:
        return Peaks(_measure_flops(pool, num_threads), _measure_bandwidth(pool, num_threads))


def _fastest(pool: ThreadPoolExecutor, works: list[Callable[[], object]]) -> float:
    """Return the seconds of the fastest of several runs of all works at once."""
    seconds = []
    for _ in range(_REPEATS):
        start = perf_counter()
        for future in [pool.submit(work) for work in works]:
            future.result()
        seconds.append(perf_counter() - start)
    return min(seconds)


def _measure_flops(pool: ThreadPoolExecutor, num_threads: int) -> float:
    address = vector_function("multiply_adds")
    if not address:
        return 0.0
    multiply_adds = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(address)
    factors = np.full(2, 0.5, np.float32)
    results = np.zeros((num_threads, 16), np.float32)

    def work(row: np.ndarray[tuple[int], np.dtype[np.float32]]) -> Callable[[], object]:
        return lambda: multiply_adds(factors.ctypes.data, row.ctypes.data, _ROUNDS)

    seconds = _fastest(pool, [work(row) for row in results])
    return float(results[:, 0].sum()) * _ROUNDS / seconds


def _measure_bandwidth(pool: ThreadPoolExecutor, num_threads: int) -> float:
    source, target = np.ones(_COPIED_NBYTES, np.uint8), np.zeros(_COPIED_NBYTES, np.uint8)
    pairs = zip(np.array_split(target, num_threads), np.array_split(source, num_threads), strict=True)

    def work(to: np.ndarray[tuple[int], np.dtype[np.uint8]], from_: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> None:
        np.copyto(to, from_)

    works: list[Callable[[], object]] = [lambda pair=pair: work(*pair) for pair in pairs]  # type: ignore[misc]
    return 2 * _COPIED_NBYTES / _fastest(pool, works)
